package copying

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// stateKey names the document of the target that says how far the copy is. It is not copied
// further.
var stateKey = storage.DocumentKey{Kind: "copy", Name: "state"}

// A step says how far a copy is. These calls change it:
//
//	from        call                              to
//	none        Run, the target is empty          unfinished
//	unfinished  Run, of the same source           unfinished
//	unfinished  the end of Run                    done
//	none        Ahead, the target is empty        ahead
//	ahead       Ahead, of the same source         ahead
//	ahead       Run, of the same source           finishing
//	finishing   Run, of the same source           finishing
//	finishing   the end of Run                    done
//	done        Run, of the same source           done
//
// Ahead refuses unfinished, finishing and done: Run has copied what is beside the chats.
type step string

const (
	// unfinished is a copy while no server works on the source.
	unfinished step = "unfinished"
	// ahead is a copy of the chats while servers may work on the source. finishing goes on with it
	// when none does.
	ahead     step = "ahead"
	finishing step = "finishing"
	done      step = "done"
)

// state is the value of that document.
type state struct {
	Step step `json:"step"`
	// Source is the present incarnation of the source.
	Source tidemark.Incarnation `json:"source"`
	// After is the place among the source's chats (EachChat) up to which all are copied. Through
	// has chats behind it, and up to where their messages are, if the step is unfinished.
	After   tidemark.ChatID                       `json:"after,omitempty"`
	Through map[tidemark.ChatID]tidemark.Sequence `json:"through,omitempty"`
	// Erased is the digest of the erasures (Copier.erasures) before the last call of Ahead that
	// ended, and Next that before the present one.
	Erased string `json:"erased,omitempty"`
	Next   string `json:"next,omitempty"`
	// Reread says that each chat is read, also if it looks unchanged.
	Reread bool `json:"reread,omitempty"`
	// Restored says that the target may have chats that the source has not, because the source may
	// have been restored.
	Restored bool `json:"restored,omitempty"`
}

// stateOf reads the state that a store has as a target. stored is its document, or nil.
func stateOf(
	ctx context.Context, s storage.Documents,
) (found state, stored []byte, err error) {
	documents, err := s.DocumentsOf(ctx, []storage.DocumentKey{stateKey})
	if err != nil || documents[0].Version == 0 {
		return state{}, nil, err
	}
	if err := json.Unmarshal(documents[0].Value, &found); err != nil {
		return state{}, nil, tidemark.Wrap(tidemark.Internal, err, "the state of a copy is damaged")
	}
	return found, documents[0].Value, nil
}

// source returns the present incarnation of the source.
func (c *Copier) source() tidemark.Incarnation { return c.cfg.From.Incarnation() }

// begin reads the state of the target, or writes the first one into an empty target. as is
// unfinished for Run, and ahead for Ahead.
func (c *Copier) begin(ctx context.Context, as step) error {
	//rule:copy_equal.two-different-stores
	if c.source() == c.cfg.To.Incarnation() {
		return tidemark.Errorf(tidemark.Conflict,
			"the source and the target are the same store; name another target")
	}
	of, stored, err := stateOf(ctx, c.cfg.From)
	if err != nil {
		return err
	}
	if stored != nil && of.Step != done {
		return tidemark.Errorf(tidemark.Conflict,
			"the source is itself a copy that is not complete; complete it first")
	}
	if c.state, c.saved, err = stateOf(ctx, c.cfg.To); err != nil {
		return err
	}
	if c.saved != nil {
		if err := c.same(); err != nil {
			return err
		}
		return c.goOn(as)
	}
	empty, err := isEmpty(ctx, c.cfg.To)
	if err != nil {
		return err
	}
	//rule:copy_equal.into-an-empty-store
	if !empty {
		return tidemark.Errorf(tidemark.Conflict,
			"the target is not empty; give an empty one, into which no server has written")
	}
	c.state = state{Step: as, Source: c.source()}
	return c.save(ctx)
}

// same returns a Conflict if the target is that of another source. A source that was copied ahead
// may have begun a new life, as SQLite does after a crash. It may also be a restored one, so each
// chat is read then.
func (c *Copier) same() error {
	if c.state.Source == c.source() {
		return nil
	}
	was := slices.Contains(c.cfg.From.Incarnations(), c.state.Source)
	//rule:copy_equal.of-one-source
	if !was || c.state.Step != ahead && c.state.Step != finishing {
		return tidemark.Errorf(tidemark.Conflict,
			"the target has a copy of another source, or the source was restored since; give an "+
				"empty target")
	}
	c.state.Source, c.state.After = c.source(), ""
	//rule:copy_equal.read-all-of-a-new-life
	c.state.Reread, c.state.Restored = true, true
	return nil
}

// goOn takes the step of a call when the target has a copy.
func (c *Copier) goOn(as step) error {
	switch {
	case as == unfinished && c.state.Step == ahead:
		c.state.Step, c.state.After, c.state.Next = finishing, "", ""
	case as == unfinished && c.state.Step == finishing:
		c.resumed = true
	//rule:copy_equal.nothing-ahead-of-a-complete-copy
	case as == ahead && c.state.Step == done:
		return tidemark.Errorf(tidemark.Conflict,
			"the copy is complete; start the servers on the target, or empty it and begin anew")
	case as == ahead && c.state.Step != ahead:
		return tidemark.Errorf(tidemark.Conflict,
			"the last run of the copy has begun; stop the servers of the source, and run tidemark "+
				"copy without --ahead, or empty the target")
	}
	return nil
}

// isEmpty reports whether a store has nothing that a copy would write.
func isEmpty(ctx context.Context, s Store) (bool, error) {
	after := tidemark.ChatID("")
	for more := true; more; {
		var ids []tidemark.ChatID
		var err error
		ids, after, more, err = s.EachChat(ctx, after, chatsAtOnce)
		if err != nil || len(ids) > 0 {
			return false, err
		}
	}
	for _, kind := range kinds {
		found := false
		err := entries(ctx, s, kind, func(some []storage.Entry) error {
			found = found || len(some) > 0
			return nil
		})
		if err != nil || found {
			return false, err
		}
	}
	return true, nil
}

// save writes the state. Conflict: another copy has written its own since.
func (c *Copier) save(ctx context.Context) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.mu.Lock()
	value, err := json.Marshal(c.state)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	_, _, err = storage.EditDocument(ctx, c.cfg.To, stateKey, func(old []byte) ([]byte, error) {
		//rule:copy_equal.the-state-of-one-copy
		if !bytes.Equal(old, c.saved) && !bytes.Equal(old, value) {
			return nil, notAlone()
		}
		return value, nil
	})
	if err == nil {
		c.saved = value
	}
	return err
}

// through returns up to where the messages of a chat are in the target.
func (c *Copier) through(id tidemark.ChatID) tidemark.Sequence {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Through[id]
}

// reached records up to where the messages of a chat are in the target.
func (c *Copier) reached(ctx context.Context, id tidemark.ChatID, n tidemark.Sequence) error {
	c.mu.Lock()
	through := maps.Clone(c.state.Through)
	if through == nil {
		through = map[tidemark.ChatID]tidemark.Sequence{}
	}
	through[id] = n
	c.state.Through = through
	c.mu.Unlock()
	return c.save(ctx)
}

// Complete returns a Conflict if a store is the target of a copy that is not complete. A server
// must not work on it.
func Complete(ctx context.Context, docs storage.Documents) error {
	found, stored, err := stateOf(ctx, docs)
	//rule:copy_equal.no-server-on-a-part
	if err == nil && stored != nil && found.Step != done {
		return tidemark.Errorf(tidemark.Conflict,
			"the store is the target of a copy that is not complete; run tidemark copy again, and "+
				"use the store after it")
	}
	return err
}
