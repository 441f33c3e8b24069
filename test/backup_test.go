package test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// backupChats receive messages while backups are taken.
var backupChats = []string{"b0", "b1", "b2"}

// ledger is what a server confirmed: sequences by chat and client_message_id, and the highest
// acknowledgement of each chat.
type ledger struct {
	mu       sync.Mutex
	messages map[string]int64
	acked    map[string]int64
}

func (l *ledger) copy() (messages, acked map[string]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.messages), maps.Clone(l.acked)
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.messages)
}

// TestBackup_while_the_server_runs_is_a_gapless_prefix takes backups under load, as docs/sqlite.md
// says. Each backup has what was confirmed before it began, without a gap, and the server goes on
// meanwhile. Then the last backup replaces the database. A device that has more than the backup
// gets a reset.
func TestBackup_while_the_server_runs_is_a_gapless_prefix(t *testing.T) {
	t.Parallel() // It waits more than it works.
	s := newSite(t)
	alice, bob := s.user("alice", "http://"+s.address, nil), s.user("bob", "http://"+s.address, nil)
	for _, chat := range backupChats {
		alice.call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": chat, "member_ids": []string{"bob"}}, nil)
	}
	confirmed := &ledger{messages: map[string]int64{}, acked: map[string]int64{}}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); clients.Wait() })
	t.Cleanup(end)
	for c := range 3 {
		clients.Go(func() { writeUntil(t, stop, alice, bob, backupChats[c], confirmed) })
	}

	// A backup may be so fast that nothing is confirmed meanwhile. Then the test takes more of
	// them.
	const backups, mostBackups = 3, 30
	type taken struct {
		file            string
		messages, acked map[string]int64
	}
	var copies []taken
	meanwhile := 0
	for n := 0; n < backups || meanwhile == 0 && n < mostBackups; n++ {
		enough := 60 * (n + 1)
		until(t, "the load runs", func() bool { return t.Failed() || confirmed.size() >= enough },
			func() string { return fmt.Sprint(confirmed.size(), " confirmed") })
		messages, acked := confirmed.copy()
		file := filepath.Join(t.TempDir(), "copy.db")
		s.run("backup", "--store", "sqlite:"+s.database(), "--to", file)
		copies = append(copies, taken{file, messages, acked})
		during := confirmed.size() - len(messages)
		t.Logf("backup %d: %d confirmed before it, %d while it ran", n+1, len(messages), during)
		meanwhile += during
	}
	if meanwhile == 0 {
		t.Errorf("nothing was confirmed during %d backups: they keep the server waiting",
			mostBackups)
	}
	end()
	all, _ := confirmed.copy()

	live := s.database()
	for _, c := range copies {
		s.stop()
		s.serveFrom(c.file)
		s.start()
		found := s.stored(bob)
		if len(found) < len(c.messages) || len(found) > len(all) {
			t.Errorf("%d messages in the backup; %d were confirmed before it, %d in all",
				len(found), len(c.messages), len(all))
		}
		for id, sequence := range c.messages {
			if found[id] != sequence {
				t.Errorf("%s was confirmed as %d before the backup began, and is %d in it (0: "+
					"not at all)", id, sequence, found[id])
			}
		}
		for chat, acked := range c.acked {
			var got state
			path := "/chats/" + chat + "/delivery-state"
			if bob.call(t, http.MethodGet, path, nil, &got); got.Acked < acked {
				t.Errorf("%s: the watermark is %d in the backup, and was %d before",
					chat, got.Acked, acked)
			}
		}
	}
	s.stop()

	restore(t, live, copies[0].file)
	s.serveFrom(live)
	s.start()
	for _, chat := range backupChats {
		s.wantReset(bob, chat, all)
	}
}

// restore runs the commands of docs/sqlite.md, without systemctl and in other places. It checks
// that no file of the old log stays beside the copy.
func restore(t *testing.T, database, copied string) {
	t.Helper()
	page, err := os.ReadFile("../docs/sqlite.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Restore\n\n```\n")
	block, _, found := strings.Cut(rest, "```")
	if !found || strings.Count(block, "systemctl ") != 2 {
		t.Fatalf("the block of the restore is %q", block)
	}
	block = strings.ReplaceAll(block, "systemctl ", ": ")
	for from, to := range map[string]string{
		"/var/lib/tidemark":                   filepath.Dir(database),
		"/var/backups/tidemark-2026-11-20.db": copied,
	} {
		if !strings.Contains(block, from) {
			t.Fatalf("the block of the restore does not say %s: %s", from, block)
		}
		block = strings.ReplaceAll(block, from, to)
	}
	if err := os.WriteFile(database+"-wal", []byte("of another past"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("bash", "-euc", block).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", block, err, out)
	}
	for name, want := range map[string]bool{
		"": true, ".old": true, "-wal": false, "-wal.old": true,
	} {
		if _, err := os.Stat(database + name); (err == nil) != want {
			t.Errorf("after the restore %s%s is there: %v, want %v",
				filepath.Base(database), name, err == nil, want)
		}
	}
}

// writeUntil sends to a chat, and acknowledges, until stop is closed.
func writeUntil(
	t *testing.T, stop <-chan struct{}, sender, reader user, chat string, confirmed *ledger,
) {
	for n := 1; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		id := fmt.Sprintf("%s/m%d", chat, n)
		sent := sender.send(t, chat, id)
		if sent.Sequence != int64(n) {
			t.Errorf("%s was given %d, want %d", id, sent.Sequence, n)
			return
		}
		confirmed.mu.Lock()
		confirmed.messages[id] = sent.Sequence
		confirmed.mu.Unlock()
		if n%5 == 0 {
			reader.ack(t, chat, sent.Sequence)
			confirmed.mu.Lock()
			confirmed.acked[chat] = sent.Sequence
			confirmed.mu.Unlock()
		}
	}
}

// stored reads every message of the chats, and returns sequences by content. The sequences must
// have no gap.
func (s *site) stored(u user) map[string]int64 {
	s.t.Helper()
	return s.storedIn(u, backupChats...)
}

// storedIn is stored for some chats.
func (s *site) storedIn(u user, chats ...string) map[string]int64 {
	s.t.Helper()
	found := map[string]int64{}
	for _, chat := range chats {
		next := int64(1)
		for more := true; more; {
			var page struct {
				Messages   []message
				Pagination struct {
					HasMore bool `json:"has_more"`
				}
			}
			u.call(s.t, http.MethodGet,
				fmt.Sprintf("/chats/%s/messages?limit=1000&after_sequence=%d", chat, next-1), nil,
				&page)
			for _, m := range page.Messages {
				if m.Sequence != next {
					s.t.Fatalf("%s: after %d comes %d", chat, next-1, m.Sequence)
				}
				found[m.Content] = m.Sequence
				next++
			}
			more = page.Pagination.HasMore
		}
	}
	return found
}

// wantReset checks that a device with more than the restored server gets a reset, and that its chat
// goes on behind the restored head.
func (s *site) wantReset(u user, chat string, all map[string]int64) {
	t := s.t
	t.Helper()
	head, has := int64(0), int64(0)
	for _, sequence := range s.storedIn(u, chat) {
		head = max(head, sequence)
	}
	for id, sequence := range all {
		if strings.HasPrefix(id, chat+"/") {
			has = max(has, sequence)
		}
	}
	type synced struct {
		ChatID string `json:"chat_id"`
		Head   int64  `json:"head_sequence"`
		Reset  struct{ Reason string }
	}
	var answer struct{ Chats []synced } // includes chats that other steps wait for
	u.call(t, http.MethodPost, "/sync",
		map[string]any{"chats": []map[string]any{{"chat_id": chat, "last_acked_sequence": has}}},
		&answer)
	i := slices.IndexFunc(answer.Chats, func(c synced) bool { return c.ChatID == chat })
	if i < 0 || answer.Chats[i].Reset.Reason != "ahead" || answer.Chats[i].Head != head ||
		head >= has {
		t.Errorf("%s: a device with %d messages got %+v, want the reset of reason ahead, to %d",
			chat, has, answer, head)
		return
	}
	if sent := u.send(t, chat, "after the restore"); sent.Sequence != answer.Chats[i].Head+1 {
		t.Errorf("%s: the next message is %d, want %d", chat, sent.Sequence, answer.Chats[i].Head+1)
	}
}

// TestBackup_without_room_leaves_nothing: a partial backup must not look like a complete one.
func TestBackup_without_room_leaves_nothing(t *testing.T) {
	s := newSite(t)
	alice := s.user("alice", "http://"+s.address, nil)
	chat := alice.direct(t, "bob")
	for n := range 20 {
		key := fmt.Sprint("m", n)
		alice.call(t, http.MethodPost, "/chats/"+chat+"/messages",
			map[string]any{"client_message_id": key, "content": strings.Repeat("x", 10_000)}, nil)
	}
	dir := t.TempDir()
	// A limit of the size of files, in KiB, stands for a full disk.
	out, err := exec.Command("bash", "-c",
		`ulimit -f 100; exec "$0" backup --store "sqlite:$1" --to "$2"`, s.binary, s.database(),
		filepath.Join(dir, "copy.db")).CombinedOutput()
	if err == nil {
		t.Errorf("it says: %s", out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
	s.run("backup", "--store", "sqlite:"+s.database(), "--to", filepath.Join(dir, "copy.db"))
}
