package presence

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// profile is the document of a user. Without a document, the user is visible and was not seen yet.
type profile struct {
	Hidden   bool            `json:"hidden,omitempty"`
	LastSeen tidemark.Millis `json:"last_seen,omitempty"`
}

// profiles reads and writes profiles. Without a store, everybody is visible, and nobody was seen.
type profiles struct{ store storage.Documents }

// kinds is the number of kinds of documents over which users are spread. In some databases, a kind
// is a partition.
const kinds = 64

func keyOf(user tidemark.UserID) storage.DocumentKey {
	h := fnv.New32a()
	_, _ = h.Write([]byte(user))
	return storage.DocumentKey{
		Kind: fmt.Sprintf("presence.%d", h.Sum32()%kinds), Name: string(user),
	}
}

// of returns the profiles of users, in their order.
func (p profiles) of(ctx context.Context, users []tidemark.UserID) ([]profile, error) {
	all := make([]profile, len(users))
	if p.store == nil || len(users) == 0 {
		return all, nil
	}
	keys := make([]storage.DocumentKey, len(users))
	for i, user := range users {
		keys[i] = keyOf(user)
	}
	found, err := p.store.DocumentsOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i, d := range found {
		if all[i], err = parse(d.Value); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// parse returns the profile of a document, which may not exist.
func parse(value []byte) (read profile, err error) {
	if value == nil {
		return profile{}, nil
	}
	if err := json.Unmarshal(value, &read); err != nil {
		return profile{}, tidemark.Wrap(tidemark.Internal, err, "a profile cannot be read")
	}
	return read, nil
}

// edit changes the profile of a user in one step, and reports whether it wrote.
func (p profiles) edit(
	ctx context.Context, user tidemark.UserID, change func(profile) profile,
) (wrote bool, err error) {
	_, wrote, err = storage.EditDocument(ctx, p.store, keyOf(user),
		func(value []byte) ([]byte, error) {
			before, err := parse(value)
			if err != nil {
				return nil, err
			}
			after := change(before)
			switch after {
			case before:
				return value, nil
			case profile{}:
				return nil, nil
			}
			return json.Marshal(after)
		})
	return wrote, err
}

// hide hides a user, or shows them again. What was known of them is forgotten.
func (p profiles) hide(ctx context.Context, user tidemark.UserID, hide bool) error {
	_, err := p.edit(ctx, user, func(before profile) profile {
		if hide == before.Hidden {
			return before
		}
		return profile{Hidden: hide}
	})
	return err
}

// see notes when a user was seen, unless they hide or were seen later. It reports whether it wrote.
func (p profiles) see(
	ctx context.Context, user tidemark.UserID, at tidemark.Millis,
) (wrote bool, err error) {
	return p.edit(ctx, user, func(before profile) profile {
		if before.Hidden || before.LastSeen >= at {
			return before
		}
		return profile{LastSeen: at}
	})
}
