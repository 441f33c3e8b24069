package reach

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// parkedAtOnce is how many parked events Forget reads at once.
const parkedAtOnce = 100

// Forget removes the parked events of all outlets that name a user. It may be repeated.
//
// Errors: Unavailable.
func (e *Engine) Forget(ctx context.Context, user tidemark.UserID) error {
	name, err := json.Marshal(user)
	if err != nil {
		return err
	}
	infos, err := e.Outlets(ctx)
	if err != nil {
		return err
	}
	for i := range infos {
		if err := e.forgetParked(ctx, infos[i].ID, name); err != nil {
			return err
		}
	}
	return nil
}

// Kinds returns nil: no documents of outlets are named by users.
func (e *Engine) Kinds() []string { return nil }

// forgetParked removes the parked events of an outlet that have a text.
func (e *Engine) forgetParked(ctx context.Context, id storage.OutletID, text []byte) error {
	for after, more := "", true; more; {
		var found []storage.Document
		var err error
		found, more, err = e.cfg.Store.Documents(ctx, parkedKind(id), after, parkedAtOnce)
		if err != nil {
			return err
		}
		for _, d := range found {
			after = d.Name
			if !bytes.Contains(d.Value, text) {
				continue
			}
			d.Value = nil
			_, err := e.cfg.Store.PutDocument(ctx, d)
			if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
				return err
			}
		}
	}
	return nil
}
