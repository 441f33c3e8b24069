package pusher

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A process that sends a banner announces it to all processes. When one of them stores that the
// user has read the chat, it announces that to all, once. The process that sent the banner then
// removes it. These are hints: a lost one leaves a banner longer than needed.
//
//	shown/PROCESS/USER/DEVICE/CHAT/SEQUENCE   a device is told of a message
//	read/USER/CHAT                            the user has read it, or is no member any more
//	seen/USER/DEVICE                          the device gave a sign of life
const (
	wordShown = "shown"
	wordRead  = "read"
	wordSeen  = "seen"
)

// pair is a user and a chat.
type pair struct {
	user tidemark.UserID
	chat tidemark.ChatID
}

// maxWatched is how many pairs of a user and a chat a node watches for reads. For a further pair it
// forgets another one.
const maxWatched = 50_000

// watched has the pairs of a user and a chat with a banner, and the last message of each banner.
// Every read passes it. While there is no banner, it costs one atomic load, and otherwise a lock
// that is held briefly (BenchmarkWatched).
type watched struct {
	any atomic.Bool

	mu      sync.Mutex
	through map[pair]tidemark.Sequence
}

// add adds a banner.
func (w *watched) add(p pair, through tidemark.Sequence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.through == nil {
		w.through = map[pair]tidemark.Sequence{}
	}
	if _, there := w.through[p]; !there && len(w.through) >= maxWatched {
		for other := range w.through {
			delete(w.through, other)
			break
		}
	}
	w.through[p] = max(w.through[p], through)
	w.any.Store(true)
}

// take reports whether a pair has a banner whose messages are all read. It then forgets the banner.
func (w *watched) take(p pair, read tidemark.Sequence) bool {
	if !w.any.Load() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	through, there := w.through[p]
	if !there || read < through {
		return false
	}
	delete(w.through, p)
	w.any.Store(len(w.through) > 0)
	return true
}

// of returns the users with a banner of a chat.
func (w *watched) of(chat tidemark.ChatID) (users []tidemark.UserID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.through {
		if p.chat == chat {
			users = append(users, p.user)
		}
	}
	return users
}

// reading is a store that records reads, members who leave a chat, and chats that are deleted.
type reading struct {
	storage.Store
	p *Pusher
}

// Reading returns a store that passes all calls to s, and records when users read what they were
// notified of. It changes no arguments and no results.
func (p *Pusher) Reading(s storage.Store) storage.Store { return &reading{s, p} }

// Advance implements storage.Deliveries.
func (r *reading) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	done, err := r.Store.Advance(ctx, advances)
	for i := range done {
		if a := &advances[i]; done[i].Moved && a.Read > 0 {
			r.p.noteRead(pair{a.User, a.Chat}, done[i].State.Read)
		}
	}
	return done, err
}

// RemoveMember implements storage.Members.
func (r *reading) RemoveMember(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Removed, error) {
	removed, err := r.Store.RemoveMember(ctx, chat, user, now)
	if err == nil {
		r.p.noteRead(pair{user, chat}, tidemark.MaxSequence)
	}
	return removed, err
}

// Ban implements storage.Bans. It is also the end of a membership.
func (r *reading) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (storage.Banned, error) {
	banned, err := r.Store.Ban(ctx, chat, user, now)
	if err == nil {
		r.p.noteRead(pair{user, chat}, tidemark.MaxSequence)
	}
	return banned, err
}

// DeleteChat implements storage.Deletions. The banners of the chat are removed.
func (r *reading) DeleteChat(
	ctx context.Context, chat tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	deleted, err := r.Store.DeleteChat(ctx, chat, now)
	if err != nil {
		return deleted, err
	}
	//rule:deleted_is_gone.clear-the-banners
	for _, user := range r.p.watched.of(chat) {
		r.p.noteRead(pair{user, chat}, tidemark.MaxSequence)
	}
	return deleted, nil
}

// noteRead notes that a user has read a chat, here. It never blocks.
func (p *Pusher) noteRead(of pair, through tidemark.Sequence) {
	if p.watched.take(of, through) {
		p.later(of, clearDelay, false)
		p.say(wordRead, string(of.user), string(of.chat))
	}
}

// noteShown notes that a device is told of a message, here.
func (p *Pusher) noteShown(at receiver, chat tidemark.ChatID, through tidemark.Sequence) {
	p.watched.add(pair{at.user, chat}, through)
	p.say(wordShown, p.process, string(at.user), string(at.device), string(chat),
		strconv.FormatUint(uint64(through), 10))
}

// noteSeen notes a sign of life of a device, here.
func (p *Pusher) noteSeen(at receiver) {
	p.memory.seen(at)
	p.say(wordSeen, string(at.user), string(at.device))
}

func (p *Pusher) say(words ...string) {
	if p.cfg.Forward != nil {
		p.cfg.Forward(strings.Join(words, "/"))
	}
}

// Heard handles a hint that a process has forwarded (Config.Forward), also this one. It never
// blocks. It ignores unknown hints.
func (p *Pusher) Heard(hint string) {
	words := strings.Split(hint, "/")
	for _, id := range words[1:] {
		if !tidemark.ValidID(id) {
			return
		}
	}
	switch {
	case len(words) == 6 && words[0] == wordShown && words[1] != p.process:
		n, err := strconv.ParseUint(words[5], 10, 63)
		if err != nil {
			return
		}
		user := tidemark.UserID(words[2])
		p.watched.add(pair{user, tidemark.ChatID(words[4])}, tidemark.Sequence(n))
		if p.working.Load() {
			p.memory.elsewhere(receiver{user, tidemark.DeviceID(words[3])})
		}
	case len(words) == 3 && words[0] == wordRead:
		p.later(pair{tidemark.UserID(words[1]), tidemark.ChatID(words[2])}, clearDelay,
			false)
	case len(words) == 3 && words[0] == wordSeen:
		p.memory.seen(receiver{tidemark.UserID(words[1]), tidemark.DeviceID(words[2])})
	}
}
