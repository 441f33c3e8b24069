package reach

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// maxHinted is how many hints wait for Run at most.
const maxHinted = 10_000

// hints are lines that have news, as those say who made them. They stand on the path of every send:
// while there is no outlet a hint costs one look, and else a lock that nothing holds for long.
type hints struct {
	// serving says that there are outlets. shards has a bit for each shard of this process.
	serving atomic.Bool
	shards  atomic.Uint64
	// relied says which outlets get everything, as this process knows.
	relied atomic.Pointer[relied]

	mu sync.Mutex
	// lines has the chats with news, and those in which a watermark rose.
	lines map[line]struct{}
}

// work sets the shards of this process.
func (h *hints) work(own []int) {
	var shards uint64
	for _, shard := range own {
		shards |= 1 << shard
	}
	h.shards.Store(shards)
}

// own reports whether this process works on a chat.
func (h *hints) own(chat tidemark.ChatID) bool {
	return h.shards.Load()&(1<<storage.ShardOf(chat)) != 0
}

// add adds a line, if there is room.
func (h *hints) add(of line) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lines) >= maxHinted {
		return false
	}
	h.lines[of] = struct{}{}
	return true
}

// take returns and removes all.
func (h *hints) take() map[line]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = map[line]struct{}{}
	return lines
}

// receiptsHint ends a hint that says that a watermark rose. It is in no id.
const receiptsHint = "/"

// hint returns the line as another process gets it (Config.Forward).
func (l line) hint() string {
	if l.feed == feedReceipts {
		return string(l.chat) + receiptsHint
	}
	return string(l.chat)
}

// lineOfHint returns what hint was called for.
func lineOfHint(hint string) line {
	chat, receipts := strings.CutSuffix(hint, receiptsHint)
	of := line{chat: tidemark.ChatID(chat)}
	if receipts {
		of.feed = feedReceipts
	}
	return of
}

// Hint says that a chat has news. It never blocks. It may be called for any chat, and before Run. A
// hint that is lost costs at most Times.Poll.
func (e *Engine) Hint(chat tidemark.ChatID) { e.hint(line{chat: chat}) }

// hint notes a line here, or tells another process of it.
func (e *Engine) hint(of line) {
	switch {
	case !e.wanted(of):
	case e.hints.own(of.chat):
		e.note(of)
	case e.cfg.Forward != nil:
		e.cfg.Forward(of.hint())
	}
}

// HintOfAnother takes what another process has forwarded (Config.Forward). It forwards nothing.
func (e *Engine) HintOfAnother(hint string) {
	if of := lineOfHint(hint); e.wanted(of) && e.hints.own(of.chat) {
		e.note(of)
	}
}

// wanted reports whether an outlet gets what is on a line.
func (e *Engine) wanted(of line) bool {
	return e.hints.serving.Load() && (of.feed != feedReceipts || e.ahead.wanted())
}

// note wakes Run for a line.
func (e *Engine) note(of line) {
	if !e.hints.add(of) {
		e.total[countHintsDropped].Add(1)
		return
	}
	e.wake.Set()
}

// hinting is a store that hints at each chat that has news.
type hinting struct {
	storage.Store
	engine *Engine
}

// Hinting returns a store that passes all calls to s, and calls Hint for each chat that has news
// afterwards. If an outlet wants receipts, it marks a chat before watermarks rise there, and a call
// fails if it cannot. It changes no arguments and no other results. The engine itself uses s.
func (e *Engine) Hinting(s storage.Store) storage.Store { return &hinting{s, e} }

// after hints at a chat if a call has succeeded. A call without an answer may have, too: its news
// are found by the next poll.
func (h *hinting) after(chat tidemark.ChatID, err error) {
	if err == nil {
		h.engine.Hint(chat)
	}
}

func (h *hinting) CreateChat(
	ctx context.Context, new storage.NewChat,
) (tidemark.Chat, bool, error) {
	chat, created, err := h.Store.CreateChat(ctx, new)
	h.after(chat.ID, err)
	return chat, created, err
}

func (h *hinting) UpdateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	chat, err := h.Store.UpdateChat(ctx, id, change)
	h.after(id, err)
	return chat, err
}

func (h *hinting) DeleteChat(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	deleted, err := h.Store.DeleteChat(ctx, chat, now)
	h.after(chat, err)
	return deleted, err
}

func (h *hinting) FinishImport(ctx context.Context, chat tidemark.ChatID, now time.Time) error {
	err := h.Store.FinishImport(ctx, chat, now)
	h.after(chat, err)
	return err
}

func (h *hinting) AddMembers(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID, role tidemark.Role,
	now time.Time,
) (storage.Added, error) {
	// Watermarks of newcomers rise to the head, if they see no earlier messages.
	if err := h.engine.mark(ctx, []tidemark.ChatID{chat}); err != nil {
		return storage.Added{}, err
	}
	added, err := h.Store.AddMembers(ctx, chat, users, role, now)
	if h.after(chat, err); err == nil {
		h.engine.hintReceipts(chat)
	}
	return added, err
}

func (h *hinting) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	removed, err := h.Store.RemoveMember(ctx, chat, user, now)
	h.after(chat, err)
	return removed, err
}

func (h *hinting) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Banned, error) {
	banned, err := h.Store.Ban(ctx, chat, user, now)
	h.after(chat, err)
	return banned, err
}

func (h *hinting) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	pair, err := h.Store.PutBlock(ctx, user, blocked, now)
	if pair.Turned {
		h.after(pair.ID, err)
	}
	return pair, err
}

func (h *hinting) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	pair, err := h.Store.RemoveBlock(ctx, user, blocked)
	if pair.Turned {
		h.after(pair.ID, err)
	}
	return pair, err
}

func (h *hinting) UpdateMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, change storage.MemberChange,
) (storage.UpdatedMember, error) {
	updated, err := h.Store.UpdateMember(ctx, chat, user, change)
	h.after(chat, err)
	return updated, err
}

func (h *hinting) Append(
	ctx context.Context, drafts []tidemark.Draft,
) ([]storage.Appended, error) {
	appended, err := h.Store.Append(ctx, drafts)
	for i := range appended {
		h.after(drafts[i].ChatID, appended[i].Err)
	}
	return appended, err
}
