package frame_test

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/internal/frame"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/tracing"
)

func to() registry.Node { return registry.Node{ID: "a", Boot: "1"} }

func leases(users ...tidemark.UserID) []registry.Lease {
	var all []registry.Lease
	for _, user := range users {
		all = append(all, registry.Lease{
			User:    user,
			Device:  "phone",
			Node:    "a",
			Boot:    "1",
			Session: "s-" + tidemark.SessionID(user),
		})
	}
	return all
}

func message(content string, attachments []byte) *tidemark.Message {
	draft := tidemark.Draft{
		ChatID:          "c",
		SenderID:        "alice",
		ClientMessageID: "k",
		Content:         content,
		Kind:            tidemark.KindMessage,
		ContentType:     "text/plain",
		Attachments:     attachments,
		MessageID:       "m",
		CreatedAt:       time.UnixMilli(1_700_000_000_123).UTC(),
	}
	m := draft.Message(7, 3)
	return &m
}

// annotation returns a reaction to a message, or a pin of one.
func annotation(kind tidemark.Kind, target tidemark.Sequence, emoji string) *tidemark.Message {
	m := message("", nil)
	m.Kind, m.Relation = kind, &tidemark.Relation{Sequence: target, Emoji: emoji}
	return m
}

// examples returns events by the names of their golden files.
func examples() map[string]bus.Event {
	m, plain := message("héllo\n\"", []byte(`[{"a": 1}]`)), message("x", nil)
	m.Metadata = []byte(`{"b": 2}`)
	m.Kind = tidemark.KindSystem
	m.Mentions = tidemark.NewMentions(true, []tidemark.UserID{"bob"})
	reaction := annotation(tidemark.KindReact, 3, "👍")
	pin := annotation(tidemark.KindPin, tidemark.MaxSequence, "")
	other := registry.Node{ID: "b", Boot: "2"}
	return map[string]bus.Event{
		"notification": {
			To: leases("bob", "eve"),
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: 7,
				Message:  m,
				Encoded:  m.AppendJSON(nil),
			},
		},
		"notification_traced": {
			To: leases("bob"),
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: 7,
				Message:  plain,
				Encoded:  plain.AppendJSON(nil),
				Trace:    tracing.Context{Trace: [16]byte{1, 15: 2}, Span: [8]byte{3, 7: 4}},
			},
		},
		"notification_marked": {
			To: leases("bob"),
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: tidemark.MaxSequence,
				Marked:   true,
			},
		},
		"notification_plain": {
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: 7,
				Message:  plain,
				Encoded:  plain.AppendJSON(nil),
				Marked:   true,
			},
		},
		"notification_reaction": {
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: 7,
				Message:  reaction,
				Encoded:  reaction.AppendJSON(nil),
			},
		},
		"notification_pin_traced": {
			To: leases("bob"),
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: 7,
				Message:  pin,
				Encoded:  pin.AppendJSON(nil),
				Trace:    tracing.Context{Trace: [16]byte{1, 15: 2}, Span: [8]byte{3, 7: 4}},
			},
		},
		"status": {
			To: leases("bob"),
			Status: &bus.Status{
				Updates: []tidemark.StatusUpdate{
					{ChatID: "c", UserID: "bob", Boundary: tidemark.Boundary{
						Acked: 5, Read: 4, AckedAt: 1_769_853_605_100, ReadAt: 1,
					}},
					{ChatID: "c"},
				},
				Version: 9,
			},
		},
		"membership": {
			To: leases("bob"),
			Membership: &bus.Membership{
				Changes: []tidemark.MembershipChange{
					{ChatID: "c", UserID: "eve", Change: tidemark.Removed},
					{
						ChatID: "c", UserID: "bob", Change: tidemark.RoleChanged,
						Role: tidemark.Owner,
					},
				},
				Version: 1 << 60,
				Members: 300,
			},
		},
		"update": updated(1<<40, false, "eve"),

		"update_receipts": updated(3, true, "eve", "bob"),

		"own":      {To: leases("bob"), Own: &bus.Own{Chat: "c"}},
		"receipts": {To: leases("bob"), Own: &bus.Own{}},
		"typing":   {To: leases("eve"), Typing: &tidemark.Typing{ChatID: "c", UserID: "bob"}},
		"presence": {Presence: &bus.Presence{
			From: other, Looking: true, At: 1 << 41, Came: []tidemark.UserID{"bob", "eve"},
			Left: []tidemark.UserID{"carol"}, Changed: []tidemark.UserID{"dave"},
		}},
		"look": {Presence: &bus.Presence{From: other, Look: &bus.Look{
			ID: "q4", Session: "s", User: "bob", Chats: []tidemark.ChatID{"c", "d"},
		}}},
		"request": {
			Request: &bus.Request{ID: "q1", Session: "s", User: "bob", To: other, Hops: 3},
		},
		"transfer": {Transfer: &bus.Transfer{ID: "q1", Snapshot: []byte("{\"x\":\n\"\x00\"}")}},
		"seek": {
			Seek: &bus.Seek{
				ID:        "q1",
				Session:   "s",
				User:      "bob",
				From:      other,
				Positions: []byte("{}"),
			},
		},
		"end":    {End: &bus.End{ID: "q2", Session: "s", User: "bob", From: other}},
		"done":   {Done: &bus.Done{ID: "q1"}},
		"survey": {Survey: &bus.Survey{ID: "q3", From: other}},
		"access": {Access: &bus.Access{User: "bob"}},
		"report": {
			Report: &bus.Report{ID: "q3", Node: other, Figures: []byte("{\"n\":\n1}")},
		},
	}
}

func TestRead_what_was_written(t *testing.T) {
	b := frame.Begin(nil)
	var want frame.Contents
	for _, e := range examples() {
		b = frame.AppendEvent(b, &e)
		want.Events = append(want.Events, e)
	}
	b = frame.AppendPing(b, 1<<63)
	want.Pings = []uint64{1 << 63}
	got, err := frame.Read(string(b), to())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if e := (bus.Event{}); string(frame.AppendEvent(nil, &e)) != "" {
		t.Error("an event of no kind is something")
	}
}

// Nodes of other versions read these bytes. If a change adds fields at the end of a body, write the
// new file with TIDEMARK_GOLDEN=write, and keep the old one under another name.
func TestGolden_bytes_stay(t *testing.T) {
	for name, e := range examples() {
		path := filepath.Join("testdata", name+".hex")
		b := hex.EncodeToString(frame.AppendEvent(frame.Begin(nil), &e)) + "\n"
		if os.Getenv("TIDEMARK_GOLDEN") == "write" {
			if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(golden) != b {
			t.Errorf("%s is %s, want %s", name, b, golden)
		}
		raw, err := hex.DecodeString(strings.TrimSpace(string(golden)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := frame.Read(string(raw), to())
		if diff := cmp.Diff(frame.Contents{Events: []bus.Event{e}}, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// event returns an event's bytes.
func event(kind byte, body string) string { return string([]byte{kind, byte(len(body))}) + body }

func TestRead_skips_what_a_later_version_adds(t *testing.T) {
	good := examples()["seek"]
	whole := string(frame.AppendEvent(nil, &good))
	longer := event(whole[0], whole[2:]+"something new")
	got, err := frame.Read(string(rune(frame.Version))+event(99,
		"a kind of tomorrow")+longer+event(98, ""), to())
	if diff := cmp.Diff(frame.Contents{Events: []bus.Event{good}, Unknown: 2}, got); err != nil ||
		diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestRead_refuses_garbage(t *testing.T) {
	good := examples()["typing"]
	whole := string(frame.AppendEvent(nil, &good))
	for _, tc := range []struct {
		name, frame       string
		events, malformed int
		wrong             bool
	}{
		{"nothing", "", 0, 0, true},
		{"another version", "\x02" + whole, 0, 0, true},
		{"no events", "\x01", 0, 0, false},
		{"cut in the second event", "\x01" + whole + whole[:len(whole)-1], 1, 0, true},
		{"cut behind a kind", "\x01" + whole + "\x05", 1, 0, true},
		{
			"a length that never ends",
			"\x01\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 0, 0, true,
		},
		{"a length above 64 bits", "\x01\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 0, 0, true},
		{
			"a body that ends early, between good ones",
			"\x01" + whole + event(5, "\x01c") + whole, 2, 1, false,
		},
		{"a billion leases", "\x01" + event(5, "\x01c\x01u\x80\x94\xeb\xdc\x03"), 0, 1, false},
		{"a billion updates", "\x01" + event(3, "\x00\x00\x80\x94\xeb\xdc\x03"), 0, 1, false},
		{
			"a sequence of 2^53",
			"\x01" + event(2, "\x00\x01c\x80\x80\x80\x80\x80\x80\x80\x10\x00"), 0, 1, false,
		},
		{
			"the greatest sequence",
			"\x01" + event(2, "\x00\x01c\xff\xff\xff\xff\xff\xff\xff\x0f\x00"), 1, 0, false,
		},
		{"a notification without its message", "\x01" + event(2, "\x02\x01c\x07\x00"), 0, 1, false},
		{"an empty ping", "\x01" + event(1, ""), 0, 1, false},
		{"a chat of another alphabet, beside a good one", badChat + whole, 1, 1, false},
	} {
		got, err := frame.Read(tc.frame, to())
		if len(got.Events) != tc.events || got.Malformed != tc.malformed ||
			(err != nil) != tc.wrong {
			t.Errorf("%s: %d events, %d malformed, %v, want %d, %d, error %v",
				tc.name, len(got.Events), got.Malformed, err, tc.events, tc.malformed, tc.wrong)
		}
	}
}

// badChat is a notification of a chat with an invalid id.
const badChat = "\x01\x02\x11\x00\x02c\xff\x01\x01\x06nobody\x01d\x01s"

// Invalid ids, sequence 0 and unknown changes are malformed.
func TestRead_what_no_node_writes_is_malformed(t *testing.T) {
	for name, spoil := range map[string]func(m map[string]bus.Event){
		"a notification of a chat without a name": func(m map[string]bus.Event) {
			m["notification"].Notification.Chat = ""
		},
		"a notification of another alphabet": func(m map[string]bus.Event) {
			m["notification_marked"].Notification.Chat = "c\xff"
		},
		"a notification of a chat with too long a name": func(m map[string]bus.Event) {
			m["notification_marked"].Notification.Chat = tidemark.ChatID(strings.Repeat("c",
				tidemark.MaxIDLength+1))
		},
		"a notification for nothing": func(m map[string]bus.Event) {
			m["notification_marked"].Notification.Sequence = 0
		},
		"a lease of no user": func(m map[string]bus.Event) {
			m["notification"].To[1].User = ""
		},
		"a lease of no device": func(m map[string]bus.Event) {
			m["status"].To[0].Device = "a phone"
		},
		"a lease of no session": func(m map[string]bus.Event) {
			m["typing"].To[0].Session = "s\n"
		},
		"a message of another chat": func(m map[string]bus.Event) {
			m["notification"].Notification.Message.ChatID = "d"
		},
		"another message of the chat": func(m map[string]bus.Event) {
			m["notification"].Notification.Message.Sequence++
		},
		"a message without an id": func(m map[string]bus.Event) {
			m["notification"].Notification.Message.MessageID = ""
		},
		"a message of nobody": func(m map[string]bus.Event) {
			m["notification"].Notification.Message.SenderID = ""
		},
		"a message without a key": func(m map[string]bus.Event) {
			m["notification"].Notification.Message.ClientMessageID = ""
		},
		"a reaction to no message": func(m map[string]bus.Event) {
			m["notification_reaction"].Notification.Message.Relation.Sequence = 0
		},
		"a boundary in no chat": func(m map[string]bus.Event) {
			m["status"].Status.Updates[1].ChatID = ""
		},
		"a boundary of another alphabet": func(m map[string]bus.Event) {
			m["status"].Status.Updates[0].UserID = "bob'"
		},
		"a change in no chat": func(m map[string]bus.Event) {
			m["membership"].Membership.Changes[0].ChatID = ""
		},
		"a change of nobody": func(m map[string]bus.Event) {
			m["membership"].Membership.Changes[0].UserID = ""
		},
		"no change": func(m map[string]bus.Event) {
			m["membership"].Membership.Changes[0].Change = "invited"
		},
		"an update of no chat": func(m map[string]bus.Event) {
			m["update"].Update.ChatID = ""
		},
		"an own state in a bad chat": func(m map[string]bus.Event) {
			m["own"].Own.Chat = "c'"
		},
		"typing in no chat": func(m map[string]bus.Event) {
			m["typing"].Typing.ChatID = ""
		},
		"nobody typing": func(m map[string]bus.Event) {
			m["typing"].Typing.UserID = ""
		},
		"a request that cannot be served": func(m map[string]bus.Event) {
			m["request"].Request.To.ID = ""
		},
		"a request of no life": func(m map[string]bus.Event) {
			m["request"].Request.To.Boot = "1:}"
		},
		"a request without an id": func(m map[string]bus.Event) {
			m["request"].Request.ID = ""
		},
		"a request for no session": func(m map[string]bus.Event) {
			m["request"].Request.Session = ""
		},
		"a request of nobody": func(m map[string]bus.Event) {
			m["request"].Request.User = ""
		},
		"a request that goes round": func(m map[string]bus.Event) {
			m["request"].Request.Hops = 4
		},
		"a transfer that nobody asked": func(m map[string]bus.Event) {
			m["transfer"].Transfer.ID = ""
		},
		"a seek that cannot be answered": func(m map[string]bus.Event) {
			m["seek"].Seek.From.ID = ""
		},
		"a seek without an id": func(m map[string]bus.Event) { m["seek"].Seek.ID = "" },
		"a seek in no session": func(m map[string]bus.Event) {
			m["seek"].Seek.Session = ""
		},
		"a seek of nobody": func(m map[string]bus.Event) {
			m["seek"].Seek.User = ""
		},
		"an end of no session": func(m map[string]bus.Event) { m["end"].End.Session = "" },
		"an end of nobody":     func(m map[string]bus.Event) { m["end"].End.User = "" },
		"an end without an id": func(m map[string]bus.Event) { m["end"].End.ID = "" },
		"an end that cannot be answered": func(m map[string]bus.Event) {
			m["end"].End.From.ID = ""
		},
		"a survey that cannot be answered": func(m map[string]bus.Event) {
			m["survey"].Survey.From.ID = ""
		},
		"a survey without an id": func(m map[string]bus.Event) { m["survey"].Survey.ID = "" },
		"a report to no survey":  func(m map[string]bus.Event) { m["report"].Report.ID = "" },
		"a report of no node": func(m map[string]bus.Event) {
			m["report"].Report.Node.Boot = ""
		},
		"an answer to no seek": func(m map[string]bus.Event) {
			m["done"].Done.ID = ""
		},
	} {
		spoiled := examples()
		spoil(spoiled)
		b := frame.Begin(nil)
		for _, e := range spoiled {
			b = frame.AppendEvent(b, &e)
		}
		got, err := frame.Read(string(b), to())
		if err != nil || got.Malformed != 1 || len(got.Events) != len(spoiled)-1 {
			t.Errorf("%s: %d are malformed, %d are read, %v, want 1 and %d",
				name, got.Malformed, len(got.Events), err, len(spoiled)-1)
		}
	}
}

// A message that storage could not hold is dropped, and its notification stays.
func TestRead_a_message_that_cannot_be_stored_is_read_instead(t *testing.T) {
	for name, m := range map[string]*tidemark.Message{
		"no text":         message("\xff", nil),
		"no attachments":  message("x", []byte("[")),
		"nothing in it":   message("", nil),
		"a text as emoji": annotation(tidemark.KindReact, 3, "a text"),
	} {
		e := bus.Event{
			To:           leases("bob"),
			Notification: &bus.Notification{Chat: "c", Sequence: 7, Message: m},
		}
		want := frame.Contents{
			Events: []bus.Event{
				{To: leases("bob"), Notification: &bus.Notification{Chat: "c", Sequence: 7}},
			},
		}
		got, err := frame.Read(string(frame.AppendEvent(frame.Begin(nil), &e)), to())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// A node of a program without reactions ignores their flag and what follows the trace. It finds a
// message without content, so its sessions read the message from storage.
func TestRead_of_an_older_node_reads_a_reaction_from_storage(t *testing.T) {
	for _, name := range []string{"notification_reaction", "notification_pin_traced"} {
		e := examples()[name]
		b := frame.AppendEvent(frame.Begin(nil), &e)
		const annotation, flags = 64, 3 // after the version, the kind, and the length
		if b[flags]&annotation == 0 {
			t.Fatalf("%s: the flags are %b", name, b[flags])
		}
		b[flags] &^= annotation
		got, err := frame.Read(string(b), to())
		if err != nil || len(got.Events) != 1 || got.Events[0].Notification.Sequence != 7 ||
			got.Events[0].Notification.Message != nil {
			t.Errorf("%s: got %+v, %v, want a notification without message", name, got, err)
		}
	}
}

// A session keeps a chat's id for as long as it knows the chat. The id must not keep a message in
// memory.
func TestRead_names_are_no_part_of_what_came_along(t *testing.T) {
	e := examples()["notification"]
	b := string(frame.AppendEvent(frame.Begin(nil), &e))
	got, err := frame.Read(b, to())
	if err != nil {
		t.Fatal(err)
	}
	w := got.Events[0].Notification
	at := func(s string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(s))) }
	// Where the frame begins, and where it would begin if the event's texts were part of it.
	begins := map[string]uintptr{
		"the frame": at(b),
		"the event": at(w.Message.Content) - uintptr(strings.Index(b, w.Message.Content)),
	}
	for what, name := range map[string]tidemark.ChatID{
		"the chat of the notification": w.Chat, "the chat of the message": w.Message.ChatID,
	} {
		for of, begin := range begins {
			if p := at(string(name)); p >= begin && p < begin+uintptr(len(b)) {
				t.Errorf("%s is a part of %s, and keeps it", what, of)
			}
		}
	}
}

// Reading never panics and allocates at most a multiple of the input. What was read is the same
// after writing and reading it again.
func FuzzRead(f *testing.F) {
	for _, e := range examples() {
		f.Add(string(frame.AppendEvent(frame.Begin(nil), &e)))
	}
	f.Add("\x01" + event(99, "x") + event(5, "\x01c\x01u\x80\x94\xeb\xdc\x03"))
	f.Add(badChat)
	f.Add("\x01" + event(2, "\x00\x01c\x00\x00") + event(3, "\x00\x00\x01\x01c\x00\x05\x04"))
	f.Fuzz(func(t *testing.T, text string) {
		got, _ := frame.Read(text, to())
		held := 0
		b := frame.Begin(nil)
		for i := range got.Events {
			held += things(&got.Events[i])
			if w := got.Events[i].Notification; w != nil &&
				(!tidemark.ValidID(w.Chat) || w.Sequence == 0) {
				t.Errorf("%q is notified of %d", w.Chat, w.Sequence)
			}
			b = frame.AppendEvent(b, &got.Events[i])
		}
		if held > len(text) {
			t.Errorf("%d leases, updates and changes out of %d bytes", held, len(text))
		}
		again, err := frame.Read(string(b), to())
		if diff := cmp.Diff(got.Events, again.Events); err != nil || diff != "" {
			t.Errorf("%v (-read +read again):\n%s", err, diff)
		}
	})
}

// things counts the leases, updates and changes of an event.
func things(e *bus.Event) int {
	switch {
	case e.Notification != nil:
		return len(e.To)
	case e.Status != nil:
		return len(e.To) + len(e.Status.Updates)
	case e.Membership != nil:
		return len(e.To) + len(e.Membership.Changes)
	case e.Presence != nil:
		p := e.Presence
		n := len(p.Came) + len(p.Left) + len(p.Changed)
		if p.Look != nil {
			n += len(p.Look.Chats)
		}
		return n
	case e.Typing != nil, e.Own != nil, e.Update != nil:
		return len(e.To)
	}
	return 0
}

func BenchmarkWrite(b *testing.B) {
	e := examples()["notification"]
	b.ReportAllocs()
	for b.Loop() {
		_ = frame.AppendEvent(frame.Begin(nil), &e)
	}
}

func BenchmarkRead(b *testing.B) {
	e := examples()["notification"]
	text := string(frame.AppendEvent(frame.Begin(nil), &e))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := frame.Read(text, to()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestTrace_to_acknowledgement_over_versions: a traced notification begins with all that a node
// without traces writes and reads, and such a node ignores what follows. A notification that is not
// traced is the same on both.
func TestTrace_to_acknowledgement_over_versions(t *testing.T) {
	traced := examples()["notification_traced"]
	notification := *traced.Notification
	notification.Trace = tracing.Context{}
	plain := bus.Event{To: traced.To, Notification: &notification}
	body := func(e *bus.Event) string {
		b := frame.AppendEvent(nil, e)
		_, n := binary.Uvarint(b[1:])
		return string(b[1+n:])
	}
	rest, same := strings.CutPrefix(body(&traced), body(&plain))
	if want := 1 + 16 + 8; !same || len(rest) != want {
		t.Errorf("%d bytes follow, %v, want %d behind the same ones", len(rest), same, want)
	}
	for name, odd := range map[string]string{"short": "\x01x", "empty": "\x00"} {
		text := body(&plain) + odd
		b := binary.AppendUvarint(append(frame.Begin(nil), 2), uint64(len(text)))
		got, err := frame.Read(string(append(b, text...)), to())
		if err != nil || len(got.Events) != 1 || got.Events[0].Notification.Trace.Valid() {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
