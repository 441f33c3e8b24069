package sqlite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/vfstest"
)

// TestFault_every_call_of_the_file_system runs a fixed history many times. Each run fails the n-th
// read, write, fsync, truncation or mapping, once or from there on. The fault may hit the opening,
// a commit, a checkpoint or the closing.
//
// Then the test looks at the files as a crash leaves them, and at those of a closed store.
// Everything that was confirmed is there. A refused message is there at most once, and a repeated
// send confirms it (confirmed_is_durable, send_idempotent, sequence_gapless, watermark_monotonic).
//
// TIDEMARK_FAULT_RUNS is the maximum number of places for each kind of fault. The default is 8, or
// 2 with -short.
func TestFault_every_call_of_the_file_system(t *testing.T) {
	places := faultRuns(t, 8)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	template := faultTemplate(t)
	total, ended := 0, 0
	for _, kind := range []struct {
		op      vfstest.Op
		fault   vfstest.Fault
		lasting bool
	}{
		{vfstest.Write, vfstest.Broken, false},
		{vfstest.Write, vfstest.Broken, true},
		{vfstest.Write, vfstest.Lost, false},
		{vfstest.Write, vfstest.Full, false},
		{vfstest.Write, vfstest.Full, true},
		{vfstest.Write, vfstest.Short, false},
		{vfstest.Sync, vfstest.Broken, false},
		{vfstest.Sync, vfstest.Broken, true},
		{vfstest.Read, vfstest.Broken, false},
		{vfstest.Read, vfstest.Broken, true},
		{vfstest.Truncate, vfstest.Broken, false},
		{vfstest.Map, vfstest.Full, false},
		{vfstest.Map, vfstest.Broken, false},
	} {
		t.Run(fmt.Sprintf("%s_%d_lasting_%v", kind.op, kind.fault, kind.lasting),
			func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "tidemark.db")
				fs := vfstest.Install(t, path)
				run := &faultRun{t: t, path: path, template: template, fs: fs}
				// A run without a fault counts the places.
				there := 0
				run.play(func(c vfstest.Call) vfstest.Fault {
					if c.Op == kind.op {
						there++
					}
					return vfstest.None
				}, false)
				if there == 0 {
					t.Fatalf("the history has no %s: nothing is tested", kind.op)
				}
				fired := 0
				for _, n := range placesOf(there, places, random) {
					at := 0
					run.place = fmt.Sprintf("%s %d of %d (seed %d)", kind.op, n, there, seed)
					if run.play(func(c vfstest.Call) vfstest.Fault {
						if c.Op != kind.op {
							return vfstest.None
						}
						if at++; at == n || kind.lasting && at > n {
							return kind.fault
						}
						return vfstest.None
					}, n%2 == 0) {
						fired++
					}
					if t.Failed() {
						return
					}
				}
				// A run may not reach a place near the end, because an earlier fault changed the
				// sequence of calls.
				if want := min(there, places); fired < want-2 {
					t.Errorf("%d of %d faults fired", fired, want)
				}
				t.Logf("%d places, %d faults fired, %d stores ended by them",
					there, fired, run.ended)
				total, ended = total+fired, ended+run.ended
			})
	}
	t.Logf("%d faults fired, %d of them ended the store (seed %d)", total, ended, seed)
}

// faultRuns returns TIDEMARK_FAULT_RUNS, or the default if it is not set.
func faultRuns(t *testing.T, byDefault int) int {
	t.Helper()
	text := os.Getenv("TIDEMARK_FAULT_RUNS")
	if text == "" {
		if testing.Short() {
			return (byDefault + 3) / 4
		}
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("TIDEMARK_FAULT_RUNS is %q, not a number above 0", text)
	}
	return n
}

// placesOf returns at most `most` numbers of 1..n, spread over the whole range, or all if n is
// lower.
func placesOf(n, most int, random *rand.Rand) []int {
	var at []int
	for i := range min(n, most) {
		from, to := i*n/min(n, most), (i+1)*n/min(n, most)
		at = append(at, 1+from+random.IntN(to-from))
	}
	return at
}

// faultTemplate returns the path of a closed database with a chat "c" of anna and ben and three
// messages.
func faultTemplate(t *testing.T) string {
	t.Helper()
	s, path := openNew(t)
	for i := range 3 {
		send(t, s, fmt.Sprint("old", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// faultRun runs the history many times, each time from the same files.
type faultRun struct {
	t        *testing.T
	path     string
	template string
	fs       *vfstest.FS
	place    string
	// ended counts the stores that failed and had to end.
	ended int
}

// play runs the history with a fault, and checks the data afterwards. It reports whether the fault
// occurred. closeBroken says that the fault still applies during Close.
func (r *faultRun) play(decide func(vfstest.Call) vfstest.Fault, closeBroken bool) (fired bool) {
	t := r.t
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(r.path + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	copyFile(t, r.template, r.path)
	confirmed := &record{
		t:     t,
		place: r.place,
		sent:  map[string]tidemark.Sequence{"old0": 1, "old1": 2, "old2": 3},
	}
	r.fs.Arm(decide)
	s, err := Open(t.Context(), Config{Path: r.path, Readers: 1})
	if err != nil {
		if fired = r.fs.Disarm() > 0; !fired || tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Fatalf("%s: Open: %v", r.place, err)
		}
		s = openTest(t, r.path)
		confirmed.check(s, "after an open that failed")
		r.close(s)
		return fired
	}
	confirmed.history(s)
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	for _, suffix := range []string{"", "-wal"} {
		copyFile(t, r.path+suffix, crashed+suffix)
	}
	before := confirmed.clone()
	if closeBroken {
		r.close(s)
		fired = r.fs.Disarm() > 0
	} else {
		fired = r.fs.Disarm() > 0
		if !s.hasFailed() {
			confirmed.sendAgain(s, "when the cause is gone")
			confirmed.check(s, "when the cause is gone")
		}
		r.close(s)
	}
	if s.hasFailed() {
		r.ended++
	}
	for _, end := range []struct {
		path, where string
		want        *record
	}{{crashed, "after a crash", before}, {r.path, "after a close", confirmed}} {
		again, err := Open(t.Context(), Config{Path: end.path, Readers: 1})
		if err != nil {
			t.Fatalf("%s: Open %s: %v", r.place, end.where, err)
		}
		end.want.check(again, end.where)
		end.want.sendAgain(again, end.where)
		end.want.check(again, end.where+" and sending again")
		r.close(again)
	}
	return fired
}

func (r *faultRun) close(s *Store) {
	r.t.Helper()
	if err := s.Close(); err != nil {
		r.t.Fatalf("%s: Close: %v", r.place, err)
	}
}

func (s *Store) hasFailed() bool {
	select {
	case <-s.Failed():
		return true
	default:
		return false
	}
}
