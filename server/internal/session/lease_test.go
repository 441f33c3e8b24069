package session

import "testing"

func TestLease_steps(t *testing.T) {
	for _, tt := range []struct {
		from                  lease
		ask, granted, silence lease
		settled               bool
	}{
		{acquiring, acquiring, held, unconfirmed, false},
		{held, reacquiring, held, unconfirmed, true},
		{unconfirmed, reacquiring, held, unconfirmed, true},
		{reacquiring, reacquiring, held, unconfirmed, false},
	} {
		l := tt.from
		if l.ask(); l != tt.ask {
			t.Errorf("state %d, ask: got %d, want %d", tt.from, l, tt.ask)
		}
		for granted, want := range map[bool]lease{true: tt.granted, false: tt.silence} {
			l = tt.from
			first := l.answer(granted)
			if l != want || first != (tt.from == acquiring) {
				t.Errorf("state %d, answer(%v): got %d, first %v, want %d",
					tt.from, granted, l, first, want)
			}
		}
		if got := tt.from.settled(); got != tt.settled {
			t.Errorf("state %d: settled = %v, want %v", tt.from, got, tt.settled)
		}
	}
}
