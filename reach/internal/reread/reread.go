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
}

// Found is a message as it is now, or why there is none.
type Found struct {
	Message tidemark.Message
	// Err is NotFound if the chat has no such message. Otherwise it says why the message cannot be
	// read now.
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
			for n := range part[k].Limit {
				one := Found{Err: errs[k]}
				switch {
				case one.Err != nil:
				case n < len(pages[k]):
					one.Message = pages[k][n]
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

// read reads ranges, and returns the page or the error of each. If the call fails for another
// reason than that the store is away, one range may be the cause. Then each is read alone.
func read(
	ctx context.Context, s Store, ranges []storage.Range,
) (pages [][]tidemark.Message, errs []error) {
	errs = make([]error, len(ranges))
	pages, err := s.Ranges(ctx, ranges)
	if err == nil {
		return pages, errs
	}
	pages = make([][]tidemark.Message, len(ranges))
	for i := range ranges {
		errs[i] = err
		if len(ranges) > 1 && tidemark.CodeOf(err) != tidemark.Unavailable {
			one, alone := read(ctx, s, ranges[i:i+1])
			pages[i], errs[i] = one[0], alone[0]
		}
	}
	return pages, errs
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
	for k, i := range missing {
		switch {
		case err != nil:
			found[i].Err = err
		case keys[i].Sequence > heads[k]:
			found[i].Err = tidemark.Errorf(tidemark.NotFound, "the chat %s has no message %d",
				keys[i].Chat, keys[i].Sequence)
		default:
			found[i].Err = tidemark.Errorf(tidemark.Unavailable,
				"message %d of the chat %s cannot be read", keys[i].Sequence, keys[i].Chat)
		}
	}
}
