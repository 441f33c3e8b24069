package reach

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// write stores a message of alice. change may change the draft.
func (w *world) write(chat tidemark.ChatID, text string, change func(*tidemark.Draft)) {
	w.Helper()
	w.mu.Lock()
	w.sent++
	n := strconv.Itoa(w.sent)
	w.mu.Unlock()
	d := tidemark.Draft{
		ChatID: chat, SenderID: "alice", ClientMessageID: n, MessageID: tidemark.MessageID("m" + n),
		Content: text, ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
		CreatedAt: time.Now(),
	}
	if change != nil {
		change(&d)
	}
	_, err := storage.AppendOne(w.ctx, w.store, d)
	w.ok(err)
}

// edit edits a message, and redact redacts it.
func (w *world) edit(chat tidemark.ChatID, target tidemark.Sequence, text string) {
	w.Helper()
	w.write(chat, text, func(d *tidemark.Draft) {
		d.Kind, d.Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: target}
	})
}

func (w *world) redact(chat tidemark.ChatID, target tidemark.Sequence) {
	w.Helper()
	w.write(chat, "", func(d *tidemark.Draft) {
		d.Kind, d.Relation = tidemark.KindRedact, &tidemark.Relation{Sequence: target}
	})
}

// TestEngine_redacted_stays: a page of messages waits for a receiver that is slow. What is edited
// or redacted meanwhile comes as it is then. So it does after hours of refusals. The relations
// come, too, with their targets.
func TestEngine_redacted_stays(t *testing.T) {
	for name, batch := range map[string]bool{"one by one": false, "in batches": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.times = seldom
				p := w.start(nil)
				w.outlet(p, NewOutlet{Batch: batch})
				c := w.group()
				w.send(c, p)
				w.whole(home, 10*time.Second)
				redacted, old, later := rand.Text(), rand.Text(), rand.Text()
				for _, text := range []string{"first", old, later, redacted} { // 2 to 5
					w.write(c, text, nil)
				}
				var mu sync.Mutex
				gone, refuses, leaked := []string(nil), false, 0
				w.inbox(home).does(func(
					_ context.Context, events []outlet.Event,
				) (int, *outlet.Refusal) {
					mu.Lock()
					for _, e := range events {
						for _, text := range gone {
							if strings.Contains(string(e.Data), text) {
								leaked++
								t.Errorf("what is gone comes: %s", e.Data)
							}
						}
					}
					no := refuses
					mu.Unlock()
					time.Sleep(6 * time.Second)
					switch {
					case no:
						return 0, &outlet.Refusal{Status: 500}
					case len(events) > 1:
						return 0, &outlet.Refusal{Action: outlet.Split, Status: 422}
					}
					return len(events), nil
				})
				p.Hint(c)
				time.Sleep(time.Second)
				w.edit(c, 3, "new")
				w.redact(c, 5)
				mu.Lock()
				gone = []string{redacted, old}
				mu.Unlock()
				time.Sleep(4 * time.Minute)
				mu.Lock()
				refuses = true
				mu.Unlock()
				w.write(c, later, nil)
				p.Hint(c)
				time.Sleep(time.Second)
				w.redact(c, 4)
				w.redact(c, 8)
				mu.Lock()
				gone = append(gone, later)
				mu.Unlock()
				time.Sleep(2 * time.Hour)
				mu.Lock()
				refuses = false
				mu.Unlock()
				time.Sleep(2 * time.Hour)
				if got := w.inbox(home).upTo(c); got != 10 || leaked > 0 {
					t.Errorf("the chat came up to %d, want 10", got)
				}
				last := map[tidemark.Sequence]*tidemark.Message{}
				for _, e := range w.inbox(home).events() {
					if e.Type != outlet.MessagePersisted {
						continue
					}
					m, err := tidemark.ParseMessage(e.Data)
					w.ok(err)
					last[m.Sequence] = &m
				}
				edit, redaction := last[6], last[10]
				if edit.Kind != tidemark.KindEdit || edit.Content != "" ||
					edit.Relation.Target.Content != "new" ||
					edit.Relation.Target.Revision.Sequence != 6 {
					t.Errorf("the edit is %+v", edit)
				}
				if redaction.Kind != tidemark.KindRedact || redaction.Relation.Sequence != 8 ||
					!redaction.Relation.Target.Redacted() || !last[8].Redacted() {
					t.Errorf("the redaction is %+v", redaction)
				}
			})
		})
	}
}

// TestEngine_redacted_stays_when_parked: a parked message is stored without its text. It is listed,
// and sent again, as it is now.
func TestEngine_redacted_stays_when_parked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.times = seldom
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{Batch: true})
		bad, good := w.group(), w.group()
		text := rand.Text()
		poisoned := func(e outlet.Event) bool {
			return e.Chat == bad && e.Type == outlet.MessagePersisted && e.Sequence == 1
		}
		refuse := func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			if slices.ContainsFunc(events, poisoned) {
				return 0, &outlet.Refusal{Action: outlet.Split, Status: 422}
			}
			return len(events), nil
		}
		w.inbox(home).does(refuse)
		w.write(bad, text, func(d *tidemark.Draft) {
			d.CreatedAt = time.Now().Add(-2 * parkAfter)
		})
		p.Hint(bad)
		for range 8 * 6 {
			w.send(good, p)
			time.Sleep(10 * time.Minute)
		}
		listed := func() string {
			parked, _, err := p.ParkedEvents(w.ctx, id, "", 10)
			w.ok(err)
			var all []string
			for _, one := range parked {
				all = append(all, string(one.Event.Data))
			}
			return strings.Join(all, "\n")
		}
		stored, _, err := w.store.Documents(w.ctx, parkedKind(id), "", 10)
		w.ok(err)
		if len(stored) != 1 || strings.Contains(string(stored[0].Value), text) {
			t.Fatalf("the text is stored, or nothing: %+v", stored)
		}
		if got := listed(); !strings.Contains(got, text) {
			t.Errorf("before the redaction, the list has %s", got)
		}
		w.redact(bad, 1)
		if got := listed(); strings.Contains(got, text) ||
			!strings.Contains(got, `"kind":"redact"`) {
			t.Errorf("after the redaction, the list has %s", got)
		}
		var sent []string
		w.inbox(home).does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			for _, e := range events {
				if poisoned(e) {
					sent = append(sent, string(e.Data))
				}
			}
			return len(events), nil
		})
		if refused, err := p.Resend(w.ctx, id, stored[0].Name); refused != nil || err != nil {
			t.Errorf("resent: %+v, %v", refused, err)
		}
		if len(sent) != 1 || strings.Contains(sent[0], text) ||
			!strings.Contains(sent[0], `"kind":"redact"`) {
			t.Errorf("sent %s", sent)
		}
		// An earlier version has stored texts. This message is no more.
		value, err := json.Marshal(Parked{Event: outlet.Event{
			ID: "evt_old", Type: outlet.MessagePersisted, Chat: bad, Sequence: 99,
			Data: []byte(`{"content":"` + text + `"}`),
		}})
		w.ok(err)
		_, err = w.store.PutDocument(w.ctx, storage.Document{
			Kind: parkedKind(id), Name: "evt_old", Value: value,
		})
		w.ok(err)
		if got, want := listed(), `{"chat_id":"c0","sequence":99}`; got != want {
			t.Errorf("of a message that is no more, the list has %s, want %s", got, want)
		}
		refused, err := p.Resend(w.ctx, id, "evt_old")
		if err != nil || refused == nil || refused.Action != outlet.Later || len(sent) != 1 {
			t.Errorf("resent: %+v, %v, %s", refused, err, sent)
		}
	})
}

// recorder is a client that notes the deliveries.
type recorder struct {
	got [][]outlet.Event
	// takes is how many events it accepts of a delivery.
	takes int
}

func (r *recorder) Deliver(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
	r.got = append(r.got, events)
	if n := min(r.takes, len(events)); n < len(events) {
		return n, &outlet.Refusal{Status: 500}
	}
	return len(events), nil
}

func (r *recorder) Limits() outlet.Limits { return outlet.Limits{Events: 10, Bytes: 1_500} }

func (r *recorder) Close() error { return nil }

// recorderEach is a recorder that answers for each event.
type recorderEach struct{ *recorder }

func (r recorderEach) DeliverEach(ctx context.Context, events []outlet.Event) []*outlet.Refusal {
	n, refused := r.Deliver(ctx, events)
	refusals := make([]*outlet.Refusal, n, len(events))
	for len(refusals) < len(events) {
		refusals = append(refusals, refused)
	}
	return refusals
}

// lossy is a store whose message 3 cannot be read.
type lossy struct {
	*memory.Store
	reads int
}

func (l *lossy) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	l.reads++
	pages, err := l.Store.Ranges(ctx, ranges)
	for i, r := range ranges {
		if r.After < 3 {
			pages[i] = pages[i][:min(len(pages[i]), int(2-r.After))]
		}
	}
	return pages, err
}

// TestRenewing: what is fresh is delivered as it is. What is not is read again, and ends before
// what cannot be read. What has become too large is delivered in parts.
func TestRenewing(t *testing.T) {
	w := newWorld(t)
	c := w.group()
	for range 3 {
		w.write(c, "old", nil)
	}
	w.edit(c, 1, "new")
	store := &lossy{Store: w.store}
	event := func(n tidemark.Sequence, age time.Duration) outlet.Event {
		m := tidemark.Message{ChatID: c, Sequence: n, Content: "old"}
		e := messagePersisted(&m, time.Now().Add(-age))
		e.Again = true
		return e
	}
	state := outlet.Event{Type: outlet.ChatUpdated, Chat: c, Data: []byte(`{"content":"old"}`)}
	for name, tc := range map[string]struct {
		events   []outlet.Event
		takes    int
		got      string // the first content of what is delivered
		accepted int
		why      outlet.Action // of the first that is not accepted
		reads    int
	}{
		"fresh": {[]outlet.Event{event(1, 0), event(3, 0), state}, 9, "old old old", 3, 0, 0},
		"old":   {[]outlet.Event{event(1, fresh), event(2, 0)}, 9, "new old", 2, 0, 1},
		"not read": {
			[]outlet.Event{{Type: outlet.MessagePersisted, Chat: c, Sequence: 1}}, 9, "new",
			1, 0, 1,
		},
		"damaged": {
			[]outlet.Event{event(1, fresh), event(2, fresh), event(3, fresh), state}, 9, "new old",
			2, outlet.Later, 1,
		},
		"all damaged": {[]outlet.Event{event(3, fresh), state}, 9, "", 0, outlet.Later, 1},
		"refused": {
			[]outlet.Event{event(1, fresh), event(2, fresh), event(3, fresh)}, 1, "new old", 1,
			outlet.Retry, 1,
		},
	} {
		for kind, each := range map[string]bool{"": false, ", each": true} {
			r := &recorder{takes: tc.takes}
			client := newRenewing(r, store)
			if each {
				client = newRenewing(recorderEach{r}, store)
			}
			before := slices.Clone(tc.events)
			store.reads = 0
			var accepted int
			var why *outlet.Refusal
			if e, is := client.(outlet.Each); is != each {
				t.Fatalf("%s%s: got a %T", name, kind, client)
			} else if is {
				refusals := e.DeliverEach(t.Context(), tc.events)
				if len(refusals) != len(tc.events) {
					t.Fatalf("%s%s: %d refusals", name, kind, len(refusals))
				}
				for accepted < len(refusals) && refusals[accepted] == nil {
					accepted++
				}
				if accepted < len(refusals) {
					why = refusals[accepted]
				}
			} else {
				accepted, why = client.Deliver(t.Context(), tc.events)
			}
			var got []string
			for _, delivery := range r.got {
				for _, e := range delivery {
					var m struct{ Content string }
					w.ok(json.Unmarshal(e.Data, &m))
					got = append(got, m.Content)
				}
			}
			if strings.Join(got, " ") != tc.got || accepted != tc.accepted ||
				store.reads != tc.reads || (why == nil) != (accepted == len(tc.events)) ||
				why != nil && why.Action != tc.why {
				t.Errorf("%s%s: delivered %q by %d reads, accepted %d, refused %+v", name, kind,
					got, store.reads, accepted, why)
			}
			for i := range before {
				if string(before[i].Data) != string(tc.events[i].Data) {
					t.Errorf("%s%s: the caller's events have changed", name, kind)
				}
			}
		}
	}
	w.edit(c, 1, strings.Repeat("x", 1_000))
	w.edit(c, 2, strings.Repeat("x", 1_000))
	r := &recorder{takes: 9}
	client := newRenewing(r, w.store)
	both := []outlet.Event{event(1, fresh), event(2, fresh)}
	if n, why := client.Deliver(t.Context(), both); n != 0 || why == nil ||
		why.Action != outlet.Split {
		t.Errorf("of what is too large, %d are accepted: %+v", n, why)
	}
	if n, why := client.Deliver(t.Context(), both[:1]); n != 1 || why != nil {
		t.Errorf("a large message is refused: %+v", why)
	}
}
