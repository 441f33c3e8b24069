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

// of returns the profiles of users, in their order, and the documents that they are from.
func (p profiles) of(
	ctx context.Context, users []tidemark.UserID,
) ([]profile, []storage.Document, error) {
	all := make([]profile, len(users))
	if p.store == nil || len(users) == 0 {
		return all, nil, nil
	}
	keys := make([]storage.DocumentKey, len(users))
	for i, user := range users {
		keys[i] = keyOf(user)
	}
	found, err := p.store.DocumentsOf(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	for i, d := range found {
		if d.Value == nil {
			continue
		}
		if err := json.Unmarshal(d.Value, &all[i]); err != nil {
			return nil, nil, tidemark.Wrap(tidemark.Internal, err, "a profile cannot be read")
		}
	}
	return all, found, nil
}

// maxEdits is how often a change is tried, when others change the same profile.
const maxEdits = 5

// edit changes the profile of a user in one step. It writes nothing that is there already, and
// reports whether it wrote.
//
// Errors: Unavailable.
func (p profiles) edit(
	ctx context.Context, user tidemark.UserID, change func(profile) profile,
) (wrote bool, err error) {
	for range maxEdits {
		before, found, err := p.of(ctx, []tidemark.UserID{user})
		if err != nil {
			return false, err
		}
		after := change(before[0])
		if after == before[0] {
			return false, nil
		}
		d := storage.Document{
			Kind: keyOf(user).Kind, Name: string(user), Version: found[0].Version,
		}
		if after != (profile{}) {
			if d.Value, err = json.Marshal(after); err != nil {
				return false, err
			}
		}
		_, err = p.store.PutDocument(ctx, d)
		if tidemark.CodeOf(err) != tidemark.Conflict {
			return err == nil, err
		}
	}
	return false, tidemark.Errorf(tidemark.Unavailable,
		"the profile of %s changes too quickly; try again", user)
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
