package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// canaries makes texts that are nowhere else in memory. It keeps what they begin with in a hidden
// form, so that it is not what the search finds.
type canaries struct{ hidden []byte }

func newCanaries() canaries {
	c := canaries{hidden: make([]byte, 24)}
	for i := range c.hidden {
		c.hidden[i] = byte('a'+rand.IntN(26)) ^ 0xff
	}
	return c
}

// prefix returns what all texts begin with.
func (c canaries) prefix() []byte {
	plain := bytes.Clone(c.hidden)
	for i := range plain {
		plain[i] ^= 0xff
	}
	return plain
}

// draft returns a message that has texts wherever a message can have one.
func (c canaries) draft(chat tidemark.ChatID, n int) tidemark.Draft {
	text := fmt.Sprint(string(c.prefix()), n)
	return tidemark.Draft{
		ChatID: chat, ClientMessageID: fmt.Sprint("canary-", n), Content: text,
		Attachments: json.RawMessage(fmt.Sprintf(`[{"name":%q}]`, text)),
		Metadata:    json.RawMessage(fmt.Sprintf(`{"about":%q}`, text)),
	}
}

// alive returns how many of the texts are in objects that the process can still reach.
func (c canaries) alive(t *testing.T) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "heap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	runtime.GC()
	runtime.GC() // The first one keeps what is in pools.
	debug.WriteHeapDump(file.Fd())
	heap, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(heap, c.prefix())
}

// TestRelation_leaves_no_text_in_memory: nodes that have stored, cached, sent and sent again a
// message do not have what it said any more, once it was edited or redacted. That holds for
// sessions, too: for those that read, and those that do not.
func TestRelation_leaves_no_text_in_memory(t *testing.T) {
	texts := newCanaries()
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		near, far := a.open("bob", onDevice("phone")), b.open("carol", onDevice("phone"))
		b.open("bob", onDevice("tablet")) // It reads nothing.
		near.said()
		far.said()
		tailsTrust()
		const messages = 40
		for n := range messages {
			if _, err := a.Send(a.ctx, "alice", texts.draft(chat, n)); err != nil {
				t.Fatal(err)
			}
		}
		near.said()
		far.said()
		if _, err := b.History(b.ctx, "carol", server.HistoryRequest{
			Chat: chat, Limit: messages,
		}); err != nil {
			t.Fatal(err)
		}
		if texts.alive(t) == 0 {
			t.Fatal("the search finds nothing before the redactions, so it says nothing after them")
		}
		for n := range messages {
			kind, content := tidemark.KindRedact, ""
			if n%2 == 0 {
				kind, content = tidemark.KindEdit, "better"
			}
			a.relate("alice", chat, kind, tidemark.Sequence(n+1), content)
		}
		near.said()
		far.said()
		time.Sleep(time.Minute)
		left := 0
		for range 5 { // Other tests may keep the buffers of pools alive for a while.
			if left = texts.alive(t); left == 0 {
				return
			}
		}
		t.Errorf("%d texts that were edited or redacted are still in memory", left)
	})
}
