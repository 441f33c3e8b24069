package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// residenceSteps are the events of a residence, each as far as its state takes it.
var residenceSteps = map[string]func(*residence){
	"restore": func(r *residence) {
		if r.state == arriving {
			r.restore()
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
		from                        residenceState
		restore, drain, end, freeze residenceState
	}{
		{live, live, draining, ended, transferred},
		{draining, draining, draining, ended, transferred},
		{arriving, live, arriving, ended, arriving},
		{ended, ended, ended, ended, ended},
		{transferred, transferred, transferred, transferred, transferred},
	} {
		for step, want := range map[string]residenceState{
			"restore": tt.restore, "drain": tt.drain, "end": tt.end, "freeze": tt.freeze,
		} {
			r := residence{state: tt.from}
			if tt.from == arriving {
				r = newArriving()
			}
			if residenceSteps[step](&r); r.state != want {
				t.Errorf("state %d, %s: got state %d, want %d", tt.from, step, r.state, want)
			}
		}
	}
}

// TestResidence_what_it_allows: who reads a session is told why they may not, and a final one takes
// no notification.
func TestResidence_what_it_allows(t *testing.T) {
	for _, tt := range []struct {
		residence
		serves, final bool
		code          tidemark.Code
	}{
		{residence{state: live}, true, false, ""},
		{residence{state: draining}, true, false, tidemark.Unavailable},
		{residence{state: arriving}, false, false, tidemark.Unavailable},
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
			t.Errorf("state %d, reason %d: readable: %v, want code %q", tt.state, tt.reason, err, tt.code)
		}
	}
}

// TestResidence_collects_the_least_and_the_greatest: an arriving session keeps two sequences of each
// chat, whatever the order, and refuses further chats than it has room for.
func TestResidence_collects_the_least_and_the_greatest(t *testing.T) {
	r := newArriving()
	for _, n := range []Notification{{"b", 7, false}, {"a", 3, true}, {"b", 5, false}, {"b", 6, true}} {
		if !r.collect(n, 2) {
			t.Errorf("collect(%v) = false, want true", n)
		}
	}
	if r.collect(Notification{"c", 1, false}, 2) {
		t.Error("collect of a third chat = true, want false")
	}
	want := []Notification{{"a", 3, true}, {"a", 3, true}, {"b", 5, true}, {"b", 7, true}}
	if diff := cmp.Diff(want, r.restore()); diff != "" {
		t.Errorf("restore (-want +got):\n%s", diff)
	}
	select {
	case <-r.landed:
	default:
		t.Error("landed is not closed")
	}
}

// TestResidence_end_of_an_arriving_session_hands_over: what it collected has to be marked.
func TestResidence_end_of_an_arriving_session_hands_over(t *testing.T) {
	r := newArriving()
	r.collect(Notification{"a", 3, false}, 1)
	if got := r.end(Closed); len(got) != 1 || got["a"].low != 3 {
		t.Errorf("end: got %v, want a from 3", got)
	}
	select {
	case <-r.landed:
	default:
		t.Error("landed is not closed: those who wait would wait for ever")
	}
}
