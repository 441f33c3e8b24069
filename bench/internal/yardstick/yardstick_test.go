package yardstick

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRounds_warm_up_and_are_bounded(t *testing.T) {
	now, later := time.Now(), time.Now().Add(time.Hour)
	for _, tc := range []struct {
		name     string
		most     int
		deadline time.Time
		costs    []float64
		want     Figure
	}{
		{
			"the first is not counted", 3, later, []float64{99, 3, 1, 2},
			Figure{Median: 2, Least: 1, Greatest: 3, Rounds: 3},
		},
		{
			"late, but three times", 50, now, []float64{99, 5, 7, 6},
			Figure{Median: 6, Least: 5, Greatest: 7, Rounds: 3},
		},
		{
			"one fails", 50, later, []float64{99, 5, -1},
			Figure{Missing: "refused"},
		},
	} {
		calls := 0
		got := Rounds(tc.most, tc.deadline, func() (float64, error) {
			cost := tc.costs[calls]
			calls++
			if cost < 0 {
				return 0, errors.New("refused")
			}
			return cost, nil
		})
		if diff := cmp.Diff(tc.want, got); diff != "" || calls != len(tc.costs) {
			t.Errorf("%s: %d calls, want %d (-want +got):\n%s", tc.name, calls, len(tc.costs), diff)
		}
	}
}

func TestSocket_and_sync_measure_something(t *testing.T) {
	dir := t.TempDir()
	for name, got := range map[string]Figure{
		"socket": Socket(time.Millisecond), "fdatasync": Sync(dir, time.Millisecond),
	} {
		if got.Missing != "" || got.Rounds < leastRounds ||
			!(0 < got.Least && got.Least <= got.Median && got.Median <= got.Greatest) {
			t.Errorf("%s: %+v, want at least %d rounds, each above 0", name, got, leastRounds)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the directory has %v, %v; want nothing left", left, err)
	}
	if got := Sync(filepath.Join(dir, "missing"), time.Millisecond); got.Missing == "" {
		t.Errorf("in a directory that does not exist: %+v", got)
	}
}
