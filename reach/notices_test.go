package reach

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// ops is the receiver of an outlet that asks for notices only.
const ops = "https://ops"

// noticeWorld has an outlet that refuses the message 2 of each chat, and one for notices.
func noticeWorld(t *testing.T) (w *world, p *process, id storage.OutletID) {
	w = newWorld(t)
	w.times = seldom
	w.times.Park = time.Hour
	p = w.start(nil)
	id = w.outlet(p, NewOutlet{Batch: true, ID: "crm"})
	w.outlet(p, NewOutlet{ID: "ops", URL: ops, Events: []outlet.Type{
		outlet.EventParked, outlet.OutletDisabled,
	}})
	w.inbox(home).does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
		if slices.ContainsFunc(events, func(e outlet.Event) bool {
			return e.Type == outlet.MessagePersisted && sequenceOf(e) == 2
		}) {
			return 0, &outlet.Refusal{Action: outlet.Split, Status: 422, Detail: "cannot read"}
		}
		return len(events), nil
	})
	return w, p, id
}

// poison sends what is refused, and goes on with another chat until it is parked.
func (w *world) poison() {
	w.Helper()
	bad, good := w.group(), w.group()
	w.send(bad)
	w.send(bad)
	for range 26 {
		w.group()
		w.send(w.chats[len(w.chats)-1])
		time.Sleep(10 * time.Minute)
	}
	w.send(good)
	time.Sleep(time.Hour)
}

// TestEngine_notices_reach_others: what was parked, and what was disabled, is told to the other
// outlets that ask for it, once they accept something. It is not told to the outlet itself.
func TestEngine_notices_reach_others(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, id := noticeWorld(t)
		w.outlet(p, NewOutlet{ID: "only", URL: "https://only", Events: []outlet.Type{
			outlet.MessagePersisted,
		}})
		w.inbox(ops).does(refuse(500))
		w.poison()
		parked, _, err := p.ParkedEvents(w.ctx, id, "", 10)
		w.ok(err)
		if len(parked) != 1 {
			t.Fatalf("parked %+v, want one event", parked)
		}
		w.inbox(home).does(func(context.Context, []outlet.Event) (int, *outlet.Refusal) {
			return 0, &outlet.Refusal{Action: outlet.Disable, Status: 410, Detail: "gone"}
		})
		w.send(w.chats[0], p)
		w.state(p, id, Disabled)
		resumed := false
		_, err = p.Update(w.ctx, id, Change{Paused: &resumed})
		w.ok(err)
		time.Sleep(2 * time.Hour)
		w.inbox(ops).does(nil)
		time.Sleep(2 * time.Hour)
		var got []string
		for _, e := range w.inbox(ops).events() {
			var d struct {
				Outlet string `json:"outlet_id"`
				Event  string `json:"event_id"`
				Type   string `json:"event_type"`
				Chat   string `json:"chat_id"`
				Reason string `json:"reason"`
				Detail string `json:"detail"`
			}
			w.ok(json.Unmarshal(e.Data, &d))
			got = append(got, string(e.Type)+" "+d.Outlet+" "+d.Event+" "+d.Type+" "+d.Chat+" "+
				d.Reason+d.Detail)
		}
		slices.Sort(got)
		want := []string{
			"event.parked crm " + parked[0].Event.ID + " message.persisted c0 cannot read",
			"outlet.disabled crm    gone",
		}
		got = slices.Compact(got) // It was disabled again after it was resumed.
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, url := range []string{home, "https://only"} {
			for _, e := range w.inbox(url).events() {
				if e.Type == outlet.EventParked || e.Type == outlet.OutletDisabled {
					t.Errorf("%s has got %s", url, e.Data)
				}
			}
		}
		w.ok(p.Delete(w.ctx, "ops"))
		time.Sleep(time.Hour)
		if n := w.notices("ops"); n != 0 {
			t.Errorf("%d notices are left of a deleted outlet", n)
		}
	})
}

// notices returns how many notices wait for an outlet.
func (w *world) notices(id storage.OutletID) int {
	w.Helper()
	found, _, err := w.store.Documents(w.ctx, noticeKind(id), "", storage.MaxBatch)
	w.ok(err)
	return len(found)
}

// TestEngine_notices_reach_others_after_a_crash: a process dies before or after any write that has
// to do with what is parked or disabled. The notice comes all the same.
func TestEngine_notices_reach_others_after_a_crash(t *testing.T) {
	matters := func(d storage.Document) bool {
		return d.Kind == listKind || strings.HasPrefix(d.Kind, "notice:") ||
			strings.HasPrefix(d.Kind, "parked:")
	}
	for _, disabled := range []bool{false, true} {
		for dies := int64(1); ; dies++ {
			var writes atomic.Int64
			synctest.Test(t, func(t *testing.T) {
				w, p, id := noticeWorld(t)
				w.onWrite(func(by *process, d storage.Document) {
					if by == p && matters(d) {
						if writes.Add(1) == dies {
							by.kill()
						}
					}
				})
				if disabled {
					w.inbox(home).does(func(
						context.Context, []outlet.Event,
					) (int, *outlet.Refusal) {
						return 0, &outlet.Refusal{Action: outlet.Disable, Status: 410}
					})
				}
				next := w.start(nil)
				w.poison()
				w.poison()
				w.state(next, id, map[bool]State{false: Active, true: Disabled}[disabled])
				time.Sleep(3 * time.Hour)
				told := map[outlet.Type]int{}
				for _, e := range w.inbox(ops).events() {
					told[e.Type]++
				}
				parked, _, err := next.ParkedEvents(w.ctx, id, "", 10)
				w.ok(err)
				if told[outlet.EventParked] < len(parked) || !disabled && len(parked) != 2 {
					t.Errorf("died at the write %d: %d events are parked, %d notices came", dies,
						len(parked), told[outlet.EventParked])
				}
				if disabled != (told[outlet.OutletDisabled] > 0) {
					t.Errorf("died at the write %d: %d notices say that it is disabled", dies,
						told[outlet.OutletDisabled])
				}
				if n := w.notices("ops"); n != 0 {
					t.Errorf("died at the write %d: %d notices are left", dies, n)
				}
			})
			if writes.Load() < dies {
				break
			}
		}
	}
}

// TestEngine_refused_notices_are_parked, and nobody gets a notice of that: two outlets that refuse
// each other's notices would make more of them each day.
func TestEngine_refused_notices_are_parked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p, id := noticeWorld(t)
		w.outlet(p, NewOutlet{ID: "more", URL: "https://more"})
		w.inbox(ops).does(refuse(422))
		w.inbox("https://more").does(func(
			_ context.Context, events []outlet.Event,
		) (int, *outlet.Refusal) {
			for i, e := range events {
				if e.Type == outlet.EventParked {
					return i, &outlet.Refusal{Status: 422}
				}
			}
			return len(events), nil
		})
		w.poison()
		for range 4 {
			w.poison()
		}
		parked, _, err := p.ParkedEvents(w.ctx, "more", "", 100)
		w.ok(err)
		if len(parked) == 0 {
			t.Error("no notice was parked")
		}
		of, _, err := p.ParkedEvents(w.ctx, id, "", 100)
		w.ok(err)
		if n := w.notices("ops"); n != len(of) {
			t.Errorf("%d notices of %d parked events of the other outlet", n, len(of))
		}
	})
}
