package copying

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"hash/fnv"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Ahead copies the chats of the source while servers work on it, and nothing beside the chats. It
// may be called as often as wished, each time by another Copier. Each call brings the target
// closer, and reads only messages of chats that have changed since. Run must still be called, when
// no server works on the source. Until then the target is not complete.
//
// Errors are those of Run. Conflict also if Run has begun, or has ended.
func (c *Copier) Ahead(ctx context.Context) error {
	if err := c.begin(ctx, ahead); err != nil {
		return err
	}
	erased, err := c.erasures(ctx)
	if err != nil {
		return err
	}
	//rule:copy_equal.read-all-after-an-erasure
	if erased == "" || erased != c.state.Erased {
		c.state.Reread = true
	}
	// If an earlier call has read chats already, its digest counts.
	//rule:copy_equal.digest-before-the-chats
	if c.state.After == "" {
		c.state.Next = erased
	}
	if err := c.save(ctx); err != nil {
		return err
	}
	if err := c.cfg.To.PutLives(ctx, c.cfg.From.Incarnations()); err != nil {
		return err
	}
	if err := c.copyChats(ctx); err != nil {
		return err
	}
	if err := c.dropUnknown(ctx); err != nil {
		return err
	}
	//rule:copy_equal.ahead-is-never-done
	c.state.After, c.state.Reread = "", false
	c.state.Erased, c.state.Next = c.state.Next, ""
	return c.save(ctx)
}

// settle begins the last run after calls of Ahead. If messages may have changed without their
// chats, it makes the run read each chat.
func (c *Copier) settle(ctx context.Context) error {
	erased, err := c.erasures(ctx)
	if err != nil {
		return err
	}
	//rule:copy_equal.read-all-after-an-erasure-at-the-end
	if erased == "" || erased != c.state.Erased {
		c.state.Reread = true
	}
	return c.save(ctx)
}

// reread reports whether chats are read also if they look unchanged.
func (c *Copier) reread() bool {
	//rule:copy_equal.read-all-of-a-source-of-steps
	return c.cfg.Reread || c.state.Reread
}

// The kinds of documents of package erasure: one is there as long as a user is being erased, and
// the other one forever after.
const (
	erasingKind = "erasing"
	erasedKind  = "erased"
)

// erasures returns a digest of all erasures that the source knows, or "" while one is under way.
// Two equal digests say that none has changed a message in between.
func (c *Copier) erasures(ctx context.Context) (string, error) {
	h := sha256.New()
	after := ""
	for more := true; more; {
		var found []storage.Document
		var err error
		found, more, err = c.cfg.From.Documents(ctx, erasedKind, after, entriesAtOnce)
		if err != nil {
			return "", err
		}
		for i := range found {
			after = found[i].Name
			h.Write([]byte(after + "\n"))
		}
	}
	// These are read last. An erasure that begins after the first read is not in the digest.
	found, _, err := c.cfg.From.Documents(ctx, erasingKind, "", 1)
	if err != nil || len(found) > 0 {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)), nil
}

// dropUnknown drops chats that the source does not have, if it may have been restored.
func (c *Copier) dropUnknown(ctx context.Context) error {
	//rule:copy_equal.drop-what-a-restore-has-undone
	if !c.state.Restored {
		return nil
	}
	drop := func(ctx context.Context, id tidemark.ChatID) error {
		_, err := c.cfg.From.Chat(ctx, id)
		if tidemark.CodeOf(err) != tidemark.NotFound {
			return err
		}
		return c.cfg.To.DropChat(ctx, id)
	}
	_, err := c.eachChat(ctx, c.cfg.To, func(ids []tidemark.ChatID) error {
		return together(ctx, c.cfg.Workers, ids, drop)
	})
	c.state.Restored = err != nil // The caller saves it.
	return err
}

// filterBits is the size of a filter: 8 MiB.
const filterBits = 1 << 26

// A filter is a set of chats of a fixed size in memory. It may have chats that were not added.
type filter struct {
	mu   sync.Mutex
	bits []uint64
}

func place(id tidemark.ChatID) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64() % filterBits
}

func (f *filter) add(id tidemark.ChatID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bits == nil {
		f.bits = make([]uint64, filterBits/64)
	}
	at := place(id)
	f.bits[at/64] |= 1 << (at % 64)
}

// has reports whether a chat was added.
func (f *filter) has(id tidemark.ChatID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := place(id)
	return f.bits != nil && f.bits[at/64]&(1<<(at%64)) != 0
}
