// Package reread reads messages again that waited since they were read: they may have been edited
// or redacted meanwhile.
package reread

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Store is what the package needs of a store.
type Store interface {
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)
}

// Found is a message as it is now, or why there is none.
type Found struct {
	Message tidemark.Message
	// Err is NotFound if the chat has no such message, or if it has expired. Otherwise it says why
	// the message cannot be read now.
	Err error
}

// Messages returns the messages of keys, in the order of the keys. Relations have their targets.
// Keys that follow one another in a chat are read together, and all of them in few calls.
func Messages(ctx context.Context, s Store, keys []storage.MessageKey) []Found {
	var ranges []storage.Range
	for i, key := range keys {
		if i > 0 && key.Chat == keys[i-1].Chat && key.Sequence == keys[i-1].Sequence+1 {
			ranges[len(ranges)-1].Limit++
			continue
		}
		ranges = append(ranges, storage.Range{Chat: key.Chat, After: key.Sequence - 1, Limit: 1})
	}
	found := make([]Found, 0, len(keys))
	var missing []int
	for part := range slices.Chunk(ranges, storage.MaxBatch) {
		pages, errs := read(ctx, s, part)
		for k := range part {
			// A page that begins above its range begins at the floor of the chat.
			at := 0
			for n := range part[k].Limit {
				one := Found{Err: errs[k]}
				wanted := part[k].After + 1 + tidemark.Sequence(n)
				switch {
				case one.Err != nil:
				case at < len(pages[k]) && pages[k][at].Sequence == wanted:
					one.Message = pages[k][at]
					at++
				default:
					missing = append(missing, len(found))
				}
				found = append(found, one)
			}
		}
	}
	explain(ctx, s, keys, found, missing)
	return found
}

// read reads ranges, and returns the page or the error of each. If the call fails, one range may be
// the cause: a message is damaged, or missing. So it halves the ranges until it has those that
// fail.
func read(
	ctx context.Context, s Store, ranges []storage.Range,
) (pages [][]tidemark.Message, errs []error) {
	r := reader{Store: s}
	pages, errs = make([][]tidemark.Message, len(ranges)), make([]error, len(ranges))
	r.read(ctx, ranges, pages, errs)
	return pages, errs
}

// mostFailed is how many calls may fail in a row. After that the store counts as unavailable: the
// other ranges get the last error. One damaged range of storage.MaxBatch makes 15 calls fail.
const mostFailed = 20

// reader reads ranges, of which some may be damaged.
type reader struct {
	Store
	// failed counts the calls that failed since one succeeded. err is the last error.
	failed int
	err    error
}

func (r *reader) read(
	ctx context.Context, ranges []storage.Range, pages [][]tidemark.Message, errs []error,
) {
	if r.failed >= mostFailed {
		for i := range errs {
			errs[i] = r.err
		}
		return
	}
	got, err := r.Ranges(ctx, ranges)
	switch {
	case err == nil:
		copy(pages, got)
		r.failed = 0
	case len(ranges) == 1:
		r.failed++
		errs[0], r.err = err, err
	default:
		r.failed++
		r.err = err
		half := len(ranges) / 2
		r.read(ctx, ranges[:half], pages[:half], errs[:half])
		r.read(ctx, ranges[half:], pages[half:], errs[half:])
	}
}

// explain sets the errors of messages that are missing in their pages.
func explain(
	ctx context.Context, s Store, keys []storage.MessageKey, found []Found, missing []int,
) {
	if len(missing) == 0 {
		return
	}
	chats := make([]tidemark.ChatID, len(missing))
	for k, i := range missing {
		chats[k] = keys[i].Chat
	}
	heads, err := s.Heads(ctx, chats)
	floors := make(map[tidemark.ChatID]tidemark.Sequence)
	for k, i := range missing {
		switch {
		case err != nil:
			found[i].Err = err
		case keys[i].Sequence > heads[k]:
			found[i].Err = tidemark.Errorf(tidemark.NotFound, "the chat %s has no message %d",
				keys[i].Chat, keys[i].Sequence)
		default:
			found[i].Err = whyMissing(ctx, s, keys[i], floors)
		}
	}
}

// whyMissing returns why a message of a chat is missing that is not above its head. floors has
// those that were read.
func whyMissing(
	ctx context.Context, s Store, key storage.MessageKey,
	floors map[tidemark.ChatID]tidemark.Sequence,
) error {
	if floors[key.Chat] == 0 {
		chat, err := s.Chat(ctx, key.Chat)
		if err != nil {
			return err
		}
		floors[key.Chat] = chat.Floor
	}
	if key.Sequence < floors[key.Chat] {
		return tidemark.Errorf(tidemark.NotFound, "message %d of the chat %s has expired",
			key.Sequence, key.Chat)
	}
	return tidemark.Errorf(tidemark.Unavailable,
		"message %d of the chat %s cannot be read", key.Sequence, key.Chat)
}
