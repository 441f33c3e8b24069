package reach

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// TestEngine_writes_a_log_seldom: while an outlet refuses much, its log is not written after each
// poll. No refusal is missing, also after the process has stopped.
func TestEngine_writes_a_log_seldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{})
		var refused, writes atomic.Int64
		w.inbox(home).does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			if events[0].Type == outlet.MessagePersisted {
				refused.Add(1)
				return 0, &outlet.Refusal{Status: 422}
			}
			return len(events), nil
		})
		w.onWrite(func(_ *process, d storage.Document) {
			if d.Kind == logKind(id) {
				writes.Add(1) // before and after each
			}
		})
		for range 60 {
			w.send(w.group(), p)
			time.Sleep(time.Second)
		}
		p.stop()
		log, _, err := logOf(w.ctx, w.store, id)
		w.ok(err)
		if got, want := int64(len(log)), refused.Load(); got != want || want < 60 {
			t.Errorf("the log has %d of %d refusals", got, want)
		}
		if n := writes.Load() / 2; n > 8 {
			t.Errorf("the log was written %d times in a minute, want at most 8", n)
		}
	})
}

// TestEngine_resends_the_last_of_many: a call for one parked event does not read all of them.
func TestEngine_resends_the_last_of_many(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := w.start(nil)
		id := w.outlet(p, NewOutlet{})
		const many = 3*listed + 1
		for n := range many {
			value, err := json.Marshal(Parked{Event: outlet.Event{
				ID: fmt.Sprintf("evt_%04d", n), Type: outlet.ChatUpdated, Data: []byte(`{}`),
			}})
			w.ok(err)
			_, err = w.store.PutDocument(w.ctx, storage.Document{
				Kind: parkedKind(id), Name: fmt.Sprintf("evt_%04d", n), Value: value,
			})
			w.ok(err)
		}
		for name, want := range map[string]tidemark.Code{
			fmt.Sprintf("evt_%04d", many-1): "", fmt.Sprintf("evt_%04d", many): tidemark.NotFound,
		} {
			began := p.pages.Load()
			refused, err := p.Resend(w.ctx, id, name)
			if got := tidemark.CodeOf(err); got != want || refused != nil {
				t.Errorf("Resend(%s) = %+v, %v; want the code %q", name, refused, err, want)
			}
			// The list of outlets is a page, too.
			if pages := p.pages.Load() - began; pages > 2 {
				t.Errorf("Resend(%s) reads %d pages of documents, want at most 2", name, pages)
			}
		}
		left, _, err := p.ParkedEvents(w.ctx, id, fmt.Sprintf("evt_%04d", many-3), listed)
		w.ok(err)
		if len(left) != 1 {
			t.Errorf("%d of the last two events are parked, want 1", len(left))
		}
	})
}

// brokenLog is a store that refuses the log of one outlet.
type brokenLog struct {
	*memory.Store
	of storage.OutletID
}

func (s *brokenLog) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	if d.Kind == logKind(s.of) {
		return 0, tidemark.Errorf(tidemark.Unavailable, "the disk is full")
	}
	return s.Store.PutDocument(ctx, d)
}

// TestSaveFailures: if one log cannot be written, those of the other outlets are.
func TestSaveFailures(t *testing.T) {
	store := &brokenLog{memory.New(), "o0"}
	e := New(Config{Store: store})
	for n := range MaxOutlets {
		id := storage.OutletID(fmt.Sprint("o", n))
		e.failures.add(id, &outlet.Event{ID: "evt"}, &outlet.Refusal{Status: 500})
	}
	err := e.saveFailures(t.Context(), true)
	if got := tidemark.CodeOf(err); got != tidemark.Unavailable {
		t.Errorf("saveFailures: %v, want Unavailable", err)
	}
	for n := range MaxOutlets {
		id := storage.OutletID(fmt.Sprint("o", n))
		log, _, err := logOf(t.Context(), store, id)
		if want := min(n, 1); err != nil || len(log) != want {
			t.Errorf("the log of %s has %d failures, %v; want %d", id, len(log), err, want)
		}
	}
}
