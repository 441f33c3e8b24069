package session

import (
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
)

// residenceSteps are the events of a residence. A step that a state does not allow does nothing.
var residenceSteps = map[string]func(*residence){
	"request": func(r *residence) {
		if r.arrives() {
			r.request(bus.Request{ID: "r"})
		}
	},
	"land": func(r *residence) {
		if r.arrives() {
			r.land()
		}
	},
	"drain": (*residence).drain,
	"end": func(r *residence) {
		if !r.final() {
			r.end(Closed)
		}
	},
	"freeze": func(r *residence) {
		if r.serves() {
			r.freeze()
		}
	},
}

func TestResidence_steps(t *testing.T) {
	for _, tt := range []struct {
		from                              residenceState
		request, land, drain, end, freeze residenceState
		decided                           map[string]bool
	}{
		{live, live, live, draining, ended, transferred, nil},
		{draining, draining, draining, draining, ended, transferred, nil},
		{
			arriving, overtaken, live, arriving, unlanded, arriving,
			map[string]bool{"request": true, "land": true, "end": true},
		},
		{
			overtaken, overtaken, live, overtaken, unlanded, overtaken,
			map[string]bool{
				"request": true, "land": true, "drain": true, "end": true, "freeze": true,
			},
		},
		{unlanded, unlanded, unlanded, unlanded, unlanded, unlanded, nil},
		{ended, ended, ended, ended, ended, ended, nil},
		{transferred, transferred, transferred, transferred, transferred, transferred, nil},
	} {
		for step, want := range map[string]residenceState{
			"request": tt.request, "land": tt.land, "drain": tt.drain, "end": tt.end,
			"freeze": tt.freeze,
		} {
			r := residence{state: tt.from}
			if r.arrives() {
				r = newArrival("a")
			}
			if tt.from == overtaken {
				r.request(bus.Request{ID: "q"})
			}
			if residenceSteps[step](&r); r.state != want {
				t.Errorf("state %d, %s: got state %d, want %d", tt.from, step, r.state, want)
			}
			if r.arrival != nil && isClosed(r.arrival.decided) != tt.decided[step] {
				t.Errorf("state %d, %s: decided is %v, want %v",
					tt.from, step, !tt.decided[step], tt.decided[step])
			}
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A reader of a final session gets the reason as an error, and a final session accepts no
// notification.
func TestResidence_what_it_allows(t *testing.T) {
	for _, tt := range []struct {
		residence
		serves, final bool
		code          tidemark.Code
	}{
		{residence{state: live}, true, false, ""},
		{residence{state: draining}, true, false, tidemark.Unavailable},
		{residence{state: arriving}, false, false, tidemark.Unavailable},
		{residence{state: overtaken}, false, false, tidemark.Unavailable},
		{residence{state: unlanded}, false, true, tidemark.Unavailable},
		{residence{state: ended, reason: Closed}, false, true, tidemark.Gone},
		{residence{state: ended, reason: Superseded}, false, true, tidemark.Replaced},
		{residence{state: ended, reason: Stopped}, false, true, tidemark.Unavailable},
		{residence{state: transferred}, false, true, tidemark.Replaced},
	} {
		err := tt.readable()
		if tt.serves != tt.residence.serves() || tt.final != tt.residence.final() {
			t.Errorf("state %d: serves %v, final %v, want %v, %v",
				tt.state, tt.residence.serves(), tt.residence.final(), tt.serves, tt.final)
		}
		if (err == nil) != (tt.code == "") || err != nil && tidemark.CodeOf(err) != tt.code {
			t.Errorf("state %d, reason %d: readable: %v, want code %q",
				tt.state, tt.reason, err, tt.code)
		}
	}
}
