package sqlite

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite/waltest"
)

// TestOpen_torn_log damages the end of the log of a store that was killed. Damage after the last
// commit loses nothing. Damage before it, as after an fsync that did not reach the disk, leaves the
// messages of whole commits. These are 1..n, with all that were committed before the damage. Every
// third is an edit: it is there if and only if its target has the change. The store continues from
// there.
//
// TIDEMARK_FAULT_RUNS is the number of runs, 60 by default.
func TestOpen_torn_log(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 2))
	s, path := openNew(t)
	// ends[n] is the length of the log when n messages were confirmed.
	ends := []int64{0}
	const messages = 60
	for n := range messages {
		sendTorn(t, s, n)
		commits, err := waltest.Commits(path + "-wal")
		if err != nil || len(commits) == 0 {
			t.Fatalf("the log has the commits %v, %v", commits, err)
		}
		ends = append(ends, commits[len(commits)-1])
	}
	last := ends[messages]
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() != last {
		t.Fatalf("the log ends at %v, %v, and its last commit at %d", info, err, last)
	}
	lost, whole := 0, 0
	for run := range faultRuns(t, 60) {
		crashed := filepath.Join(t.TempDir(), "crashed.db")
		for _, suffix := range []string{"", "-wal"} {
			copyFile(t, path+suffix, crashed+suffix)
		}
		offset := last
		if run%2 == 1 {
			offset = random.Int64N(last)
		}
		how, err := waltest.Tear(crashed+"-wal", offset, random)
		if err != nil {
			t.Fatal(err)
		}
		least := 0
		for least < messages && ends[least+1] <= offset {
			least++
		}
		again, err := Open(t.Context(), Config{Path: crashed, Readers: 1})
		if err != nil {
			t.Fatalf("%s (seed %d): %v", how, seed, err)
		}
		// If the damage is in the first commits, the chat does not exist and must be created again.
		_, _, err = again.CreateChat(t.Context(), storage.NewChat{
			ID:      "c",
			Type:    tidemark.Group,
			History: tidemark.HistoryFull,
			Creator: "anna",
			Members: []tidemark.UserID{"anna", "ben"},
		})
		if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
			t.Fatal(err)
		}
		heads, err := again.Heads(t.Context(), []tidemark.ChatID{"c"})
		if err != nil {
			t.Fatal(err)
		}
		head := int(heads[0])
		if head < least || head > messages {
			t.Errorf("%s (seed %d): the chat ends at %d, want %d to %d",
				how, seed, head, least, messages)
		}
		wantGapless(t, again, heads[0])
		wantEdited(t, again, heads[0])
		// A repeated send of a confirmed message stores it once: it is there, or it gets its
		// sequence again.
		for n := range messages {
			want := tidemark.Sequence(n + 1)
			if got := sendTorn(t, again, n); got != want {
				t.Errorf("%s (seed %d): message %d, sent again, has sequence %d, want %d",
					how, seed, n, got, want)
			}
		}
		wantGapless(t, again, messages)
		wantEdited(t, again, messages)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if head < messages {
			lost++
		} else {
			whole++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d logs torn without a loss, %d with one (seed %d)", whole, lost, seed)
	if lost == 0 || whole == 0 {
		t.Errorf("%d logs had lost something, %d nothing: the runs do not show both (seed %d)",
			lost, whole, seed)
	}
}

// sendTorn appends message n of the test, counted from 0, and returns its sequence. Every third
// edits the message before it.
func sendTorn(t *testing.T, s *Store, n int) tidemark.Sequence {
	t.Helper()
	d := draft(fmt.Sprint(n), "hello")
	if n%3 == 2 {
		d = relation(fmt.Sprint(n), tidemark.KindEdit, tidemark.Sequence(n))
		d.Content = "edited"
	}
	appended, err := storage.AppendOne(t.Context(), s, d)
	if err != nil {
		t.Fatalf("Append(%d): %v", n, err)
	}
	return appended.Message.Sequence
}

// wantEdited checks that messages up to a head are edited if and only if their edit is there.
func wantEdited(t *testing.T, s *Store, head tidemark.Sequence) {
	t.Helper()
	pages, err := s.Ranges(t.Context(), []storage.Range{{Chat: "c", Limit: 1_000}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pages[0] {
		want := m.Sequence%3 == 2 && m.Sequence < head
		if got := m.Content == "edited"; got != want || (m.Revision != nil) != want {
			t.Errorf("of %d messages, message %d is edited: %v, %+v, want %v",
				head, m.Sequence, got, m.Revision, want)
		}
	}
}
