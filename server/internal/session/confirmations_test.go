package session_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// scene is a session of Bob, who has caught up and is about to send. Bob and Alice have a chat with
// one message.
type scene struct {
	t      *testing.T
	store  *memory.Store
	node   *session.Host
	bob    *session.Session
	reader *session.Reader
}

func newScene(t *testing.T) *scene {
	t.Helper()
	sc := &scene{t: t, store: memory.New(), node: newNode()}
	sc.node.Storage, sc.node.Unreads = sc.store, sc.store
	sc.node.Chats = chat.New(sc.store, chat.Config{Chats: 10, Bytes: 1 << 20, Messages: 10})
	_, _, err := sc.store.CreateChat(t.Context(), storage.NewChat{
		ID: "ab", Type: tidemark.Direct, History: tidemark.HistoryFull, CreatedAt: sc.node.Now(),
		Creator: "alice", Members: []tidemark.UserID{"alice", "bob"},
	})
	if err != nil {
		t.Fatal(err)
	}
	sc.bob = sc.node.New(lease, false)
	sc.reader = sc.bob.Attach("")
	sc.bob.LeaseAnswered(session.LeaseAnswer{Granted: true, Proven: true})
	sc.bob.Notify(session.Notification{Chat: "ab", Sequence: sc.stored("alice", "1").Sequence})
	sc.reads("session", "message 1", "caught_up")
	return sc
}

func (sc *scene) draft(user tidemark.UserID, id string) tidemark.Draft {
	return tidemark.Draft{
		ChatID: "ab", SenderID: user, ClientMessageID: id, Content: "x", Kind: tidemark.KindMessage,
		ContentType: tidemark.DefaultContentType, CreatedAt: sc.node.Now(),
		MessageID: tidemark.MessageID(id),
	}
}

// stored stores a message of a user.
func (sc *scene) stored(user tidemark.UserID, id string) *tidemark.Message {
	sc.t.Helper()
	all, err := sc.store.Append(sc.t.Context(), []tidemark.Draft{sc.draft(user, id)})
	if err == nil {
		err = all[0].Err
	}
	if err != nil {
		sc.t.Fatal(err)
	}
	return &all[0].Message
}

// notifies notifies the session of a message.
func (sc *scene) notifies(m *tidemark.Message) {
	sc.bob.Notify(session.Notification{Chat: "ab", Sequence: m.Sequence, Message: m})
}

// sending begins to send a message, which is stored, and not confirmed yet.
func (sc *scene) sending(id string) *tidemark.Message {
	sc.t.Helper()
	sc.reader.Sending([]tidemark.Draft{sc.draft("bob", id)})
	return sc.stored("bob", id)
}

// sent confirms a message, or says that it is not confirmed.
func (sc *scene) sent(m *tidemark.Message, confirmed bool) (taken bool) {
	c := session.Confirmation{}
	if confirmed {
		c = session.Confirmation{Sequence: m.Sequence, Event: tidemark.Event{
			Type: tidemark.EventConfirmation, RequestID: fmt.Sprint(m.Sequence),
		}}
	}
	return sc.reader.Sent([]tidemark.Draft{sc.draft("bob", m.ClientMessageID)},
		[]session.Confirmation{c})[0]
}

// reads checks all that is due: "message N", "confirmed N" for a confirmation that stands for its
// event, and "answered N" for one that does not.
func (sc *scene) reads(want ...string) {
	sc.t.Helper()
	var got []string
	for {
		events, err := sc.reader.Next(sc.t.Context(), nil, false)
		if err != nil {
			sc.t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			what := string(e.Type)
			switch {
			case e.Type == tidemark.EventConfirmation && e.ID != 0:
				what = "confirmed " + e.RequestID
			case e.Type == tidemark.EventConfirmation:
				what = "answered " + e.RequestID
			case e.Type == tidemark.EventMessage:
				n, err := sequenceOf(e.Payload)
				if err != nil {
					sc.t.Fatal(err)
				}
				what = fmt.Sprint("message ", n)
			}
			got = append(got, what)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		sc.t.Errorf("what the client gets (-want +got):\n%s", diff)
	}
}

func sequenceOf(payload []byte) (n int, err error) {
	_, err = fmt.Sscanf(string(payload), `{"chat_id":"ab","sequence":%d,`, &n)
	return n, err
}

// The messages of a pipelined send are confirmed together, while a later one is on its way.
func TestOwn_confirmation_stands_for_the_event_of_its_message(t *testing.T) {
	sc := newScene(t)
	second, third, fourth := sc.sending("2"), sc.sending("3"), sc.sending("4")
	for _, m := range []*tidemark.Message{second, third, fourth} {
		sc.notifies(m)
	}
	sc.reads()
	if !sc.sent(second, true) || !sc.sent(third, true) {
		t.Error("the session does not take the confirmations")
	}
	sc.reads("confirmed 2", "confirmed 3")
	sc.sent(fourth, true)
	sc.notifies(sc.stored("alice", "5"))
	sc.reads("confirmed 4", "message 5")
}

// Neither a message of somebody else nor one before it waits for the confirmation of a message. In
// order and once, whatever comes first.
func TestOwn_confirmation_of_a_message_that_was_sent_as_an_event(t *testing.T) {
	sc := newScene(t)
	own := sc.sending("2")
	sc.notifies(own)
	sc.notifies(sc.stored("alice", "3"))
	sc.reads("message 2", "message 3")
	sc.sent(own, true)
	sc.reads("answered 2")

	earlier, own := sc.stored("alice", "4"), sc.sending("5")
	sc.notifies(own)
	sc.sent(own, true)
	sc.notifies(earlier)
	sc.reads("answered 5", "message 4", "message 5")
}

// A send may fail although its message is stored: its client is told so, and gets the event.
func TestOwn_confirmation_that_does_not_come_leaves_the_event(t *testing.T) {
	sc := newScene(t)
	own := sc.sending("2")
	sc.notifies(own)
	if sc.sent(own, false) {
		t.Error("the session takes a confirmation that there is not")
	}
	sc.reads("message 2")
}

// A client that comes back did not get a confirmation of its last connection.
func TestOwn_confirmation_to_a_connection_that_is_lost_is_sent_as_an_event(t *testing.T) {
	for _, tt := range []struct {
		name            string
		before          bool // the client comes back before the message is confirmed
		read            bool // the confirmation was sent on the lost connection
		wantTaken       bool
		onOld, onNewOne []string
	}{
		{"before it", true, false, false, nil, []string{"session", "message 2", "caught_up"}},
		{"after it", false, false, true, nil, []string{"session", "message 2", "caught_up"}},
		{
			"on the way", false, true, true, []string{"confirmed 2"},
			[]string{"session", "message 2", "caught_up"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sc := newScene(t)
			own := sc.sending("2")
			sc.notifies(own)
			old := sc.reader
			resume := func() {
				var err error
				sc.reader, err = sc.bob.Resume(session.At{After: 3, Announce: true})
				if err != nil {
					t.Fatal(err)
				}
			}
			if tt.before {
				resume()
			}
			newest := sc.reader
			sc.reader = old
			if got := sc.sent(own, true); got != tt.wantTaken {
				t.Errorf("taken = %v, want %v", got, tt.wantTaken)
			}
			if tt.read {
				sc.reads(tt.onOld...)
			}
			sc.reader = newest
			if !tt.before {
				resume()
			}
			sc.reads(tt.onNewOne...)
		})
	}
}

// A client that does not read gets no more than some confirmations from the session. The adapter
// answers the others, and waits for the client.
func TestOwn_confirmation_few_wait_for_the_client(t *testing.T) {
	sc := newScene(t)
	taken := 0
	for i := range 100 {
		own := sc.sending(fmt.Sprint(i + 2))
		sc.notifies(own)
		if sc.sent(own, true) {
			taken++
		}
	}
	if taken != 64 {
		t.Errorf("the session takes %d confirmations, want 64", taken)
	}
}

// TestOwn_confirmation_of_the_same_id: alice gives her message the id of the one that bob is
// sending. It does not wait for that confirmation.
func TestOwn_confirmation_of_the_same_id(t *testing.T) {
	sc := newScene(t)
	m := sc.sending("7")
	sc.notifies(m)
	sc.notifies(sc.stored("alice", "7"))
	sc.reads("message 2", "message 3")
	if !sc.sent(m, true) {
		t.Error("the confirmation was not taken")
	}
	sc.reads("answered 2")
}
