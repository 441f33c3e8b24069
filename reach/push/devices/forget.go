package devices

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// placesAtOnce is how many addresses Forget reads at once.
const placesAtOnce = 500

// Forget removes the devices and settings of a user, and the addresses that were theirs. An address
// stays theirs when its device is dropped, so Forget looks at all addresses. It may be repeated.
//
// Errors: Unavailable.
func (r *Registry) Forget(ctx context.Context, user tidemark.UserID) error {
	//rule:erased_nowhere.devices-and-settings
	_, _, err := storage.EditDocument(ctx, r.store, keyOfUser(user),
		func([]byte) ([]byte, error) { return nil, nil })
	for n := 0; n < kinds && err == nil; n++ {
		err = r.forgetPlaces(ctx, fmt.Sprintf("push.places.%d", n), user)
	}
	return err
}

// forgetPlaces removes the addresses of a kind that are a user's.
func (r *Registry) forgetPlaces(ctx context.Context, kind string, user tidemark.UserID) error {
	for after, more := "", true; more; {
		var found []storage.Document
		var err error
		found, more, err = r.store.Documents(ctx, kind, after, placesAtOnce)
		if err != nil {
			return err
		}
		for _, d := range found {
			after = d.Name
			var whose owner
			if err := json.Unmarshal(d.Value, &whose); err != nil || whose.User != user {
				continue // A damaged one is nobody's.
			}
			d.Value = nil
			_, err := r.store.PutDocument(ctx, d)
			// Conflict: it has become another user's.
			if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
				return err
			}
		}
	}
	return nil
}

// Export returns the devices and settings of a user (erasure.Part).
func (r *Registry) Export(ctx context.Context, user tidemark.UserID) (any, error) {
	found, err := r.Of(ctx, []tidemark.UserID{user})
	if err != nil {
		return nil, err
	}
	return struct {
		Devices  []Device `json:"devices"`
		Settings Settings `json:"settings"`
	}{found[0].Devices, found[0].Settings}, nil
}

// Kinds returns the kinds of the documents that are named by users.
func (r *Registry) Kinds() []string {
	all := make([]string, kinds)
	for n := range all {
		all[n] = fmt.Sprintf("push.users.%d", n)
	}
	return all
}
