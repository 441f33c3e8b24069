package client

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// cursorsPerCall is how many cursors one call of /sync sends.
const cursorsPerCall = 500

// synced is the answer of /sync about one chat. A chat whose cursor is accepted has none.
type synced struct {
	ChatID  tidemark.ChatID   `json:"chat_id"`
	Head    tidemark.Sequence `json:"head_sequence"`
	Reset   *reset            `json:"reset"`
	Problem *problem          `json:"problem"`
}

// keepSynced sends the cursors whenever a session needs them, until ctx ends.
func (r *run) keepSynced(ctx context.Context) {
	for r.inbox.sync.Wait(ctx) {
		for n := 0; ; n++ {
			at := r.current()
			if at.session == "" {
				break // the next session asks again
			}
			f := r.sendCursors(ctx, at)
			if f == nil || r.current() != at {
				break
			}
			if f.ending == gone || f.ending == replaced {
				r.leave(f)
				break
			}
			if f.ending == refused {
				r.c.cfg.Logger.Error("the cursors were refused", "error", f)
				break
			}
			if !signal.Pause(ctx, pause(n, f.after)) {
				return
			}
		}
	}
}

// sendCursors sends the cursors of all chats to a session, and takes the verdicts.
func (r *run) sendCursors(ctx context.Context, at current) *failure {
	all := r.inbox.cursors()
	// A session that waits for its cursors gets an empty list, too.
	for first := true; first || len(all) > 0; first = false {
		part := all[:min(len(all), cursorsPerCall)]
		all = all[len(part):]
		var answer struct {
			Chats []synced `json:"chats"`
		}
		err := r.c.call(ctx, http.MethodPost, "/sync", map[string]any{
			"session_id": at.session, "chats": part,
		}, &answer)
		if err != nil {
			return asFailure(err)
		}
		again, err := r.inbox.judge(ctx, at.incarnation, part, answer.Chats)
		if err != nil {
			return asFailure(err)
		}
		all = append(all, again...)
	}
	return nil
}

// cursors returns what is handled of each chat. It leaves out those that are handled now and are of
// another incarnation: their cursor is sent when that has ended.
func (b *inbox) cursors() []cursor {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]cursor, 0, len(b.chats))
	for _, c := range b.chats {
		if c.incarnation != b.incarnation && c.step == running {
			continue
		}
		all = append(all, cursor{c.id, c.progress.done, c.incarnation})
	}
	slices.SortFunc(all, func(x, y cursor) int {
		return strings.Compare(string(x.ChatID), string(y.ChatID))
	})
	return all
}

// judge takes the answer about cursors. It returns the cursors of chats that were taken back, which
// have to be sent again.
func (b *inbox) judge(
	ctx context.Context, of tidemark.Incarnation, sent []cursor, answer []synced,
) ([]cursor, error) {
	verdicts := make(map[tidemark.ChatID]synced, len(answer))
	for _, v := range answer {
		verdicts[v.ChatID] = v
	}
	var again []cursor
	for _, s := range sent {
		v, refused := verdicts[s.ChatID]
		through := s.Acked
		switch {
		case refused && v.Problem != nil:
			continue
		case refused && v.Reset != nil && v.Reset.Reason == tidemark.ResetRestored:
			//rule:client_survives_restore.taken-back-to-what-is-shared
			through = v.Reset.Through
		case refused && v.Reset != nil && v.Reset.Reason == tidemark.ResetAhead:
			through = v.Head
		case refused:
			continue
		}
		taken, err := b.accept(ctx, s, through, of)
		if err != nil {
			return nil, err
		}
		if taken && through < s.Acked {
			again = append(again, cursor{s.ChatID, through, of})
		}
	}
	return again, nil
}

// accept notes that the server has a chat as it was handled up to through, which is the cursor or
// less. From now on the chat is of the session's incarnation. It reports whether the cursor is
// still that of the chat.
func (b *inbox) accept(
	ctx context.Context, s cursor, through tidemark.Sequence, of tidemark.Incarnation,
) (bool, error) {
	changed := through < s.Acked || s.Incarnation != of
	b.mu.Lock()
	c := b.chats[s.ChatID]
	if b.incarnation != of || changed && (c.step == running || c.progress.done != s.Acked) {
		b.mu.Unlock()
		if changed {
			b.sync.Set() // the cursor has moved meanwhile
		}
		return false, nil
	}
	if !changed {
		c.progress.say(acked{Acked: s.Acked}, true)
		b.mu.Unlock()
		return true, nil
	}
	if c.incarnation == of {
		c.incarnation = "" // it gets no turn until it is saved
	}
	b.mu.Unlock()
	if through < s.Acked {
		b.log.Warn("the server lost messages that were handled", "chat", s.ChatID,
			"handled", s.Acked, "kept", through)
	}
	if !b.save(ctx, s.ChatID, Cursor{Sequence: through, Incarnation: of}) {
		return false, fail(lost, nil, "the cursor of %s was not saved", s.ChatID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.incarnation != of {
		return false, nil
	}
	seen := c.progress.seen
	b.clear(c, 0)
	c.progress.rewind(through)
	c.progress.see(seen)
	if through == s.Acked {
		c.progress.say(acked{Acked: through}, true)
	}
	c.incarnation, c.failures = of, 0
	b.schedule(c)
	return true, nil
}
