package reach

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// State says what an outlet gets.
type State string

// The states of an outlet. All but the last are shown to operators.
//
//	state      gets news   its news meanwhile              next
//	starting   no          is settled without it           joining
//	joining    yes         may be missed                   active
//	active     yes         none is lost                    paused, disabled, deleting
//	paused     no          waits in its own backlogs       active, deleting
//	disabled   no          waits in its own backlogs       active, deleting
//	deleting   no          is dropped                      none
//
// An outlet begins as starting if it is the first one and wants news from now on. The chats have
// news since their creation then, which nobody wants. Other outlets begin as joining.
const (
	Starting State = "starting"
	Joining  State = "joining"
	Active   State = "active"
	Paused   State = "paused"
	Disabled State = "disabled"
	Deleting State = "deleting"
)

// keeps reports whether news that the outlet does not get must wait for it.
func (s State) keeps() bool { return s == Joining || s == Active || s == Paused || s == Disabled }

// gets reports whether the outlet gets news.
func (s State) gets() bool { return s == Joining || s == Active }

// OutletID names an outlet. It is an id (tidemark.ValidID).
type OutletID = storage.OutletID

// MaxOutlets is the maximum number of outlets.
const MaxOutlets = 50

// Spec says what an outlet is. It is stored as a part of the list of outlets.
type Spec struct {
	ID storage.OutletID `json:"id"`
	// Kind is a key of Config.Kinds, such as "webhook".
	Kind string `json:"kind"`
	URL  string `json:"url"`
	// Events are the types that it gets, or nil for all.
	Events []outlet.Type `json:"events,omitempty"`
	// Content is "full" or "none", and Batch allows several events in a delivery.
	Content string `json:"content"`
	Batch   bool   `json:"batch"`
	State   State  `json:"state"`
	// Reason says why the outlet is disabled.
	Reason    string    `json:"reason,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// Secrets are sealed (Sealer). The newest is the first.
	Secrets []Secret `json:"secrets,omitempty"`
	// Disabling is not nil if the outlet was disabled and the others have no notice of it yet.
	Disabling *disabling `json:"disabling,omitempty"`
	// Walk is what is left of a replay of all chats, or nil.
	Walk *Walk `json:"walk,omitempty"`
}

// Secret is a key that signs what the outlet gets, until a time. A zero time is for ever.
type Secret struct {
	Sealed string    `json:"sealed"`
	Until  time.Time `json:"until,omitzero"`
}

// Walk is a replay of all chats, of what happened since a time.
type Walk struct {
	Since time.Time `json:"since,omitzero"`
	// First says that the outlet has not had this news before. Each chat then waits for its own
	// backlog, from the beginning. Opened says that all of these are open, and some not delivered.
	First  bool `json:"first,omitempty"`
	Opened bool `json:"opened,omitempty"`
	// After is the last chat whose backlog is open. It is a position of Outbox.EachChat.
	After tidemark.ChatID `json:"after,omitempty"`
}

// same reports whether two specifications are of one outlet, and not of two with one id, of which
// the first was deleted.
func (s *Spec) same(other *Spec) bool { return s.CreatedAt.Equal(other.CreatedAt) }

// valid returns the secrets that sign at a time.
func (s *Spec) valid(at time.Time) []Secret {
	return slices.DeleteFunc(slices.Clone(s.Secrets), func(old Secret) bool {
		return !old.Until.IsZero() && at.After(old.Until)
	})
}

// wants reports whether the outlet gets events of a type. Those that cost writes must be named. An
// outlet with ChatUpdated also gets ChatDeleted.
func (s *Spec) wants(t outlet.Type) bool {
	if len(s.Events) == 0 {
		return t != outlet.DeliveryUpdated && t != outlet.ReadUpdated &&
			t != outlet.PendingCreated
	}
	//rule:deleted_is_gone.tell-who-knows-the-chat
	return slices.Contains(s.Events, t) ||
		t == outlet.ChatDeleted && slices.Contains(s.Events, outlet.ChatUpdated)
}

// wantsReceipts reports whether the outlet gets receipts.
func (s *Spec) wantsReceipts() bool {
	return s.wants(outlet.DeliveryUpdated) || s.wants(outlet.ReadUpdated)
}

// wantsPending reports whether the outlet gets PendingCreated.
func (s *Spec) wantsPending() bool { return s.wants(outlet.PendingCreated) }

// list is the stored list of outlets.
type list struct {
	Outlets []Spec `json:"outlets"`
	// version is that of the document. 0: there is none.
	version uint64
}

// find returns an outlet, or nil.
func (l *list) find(id storage.OutletID) *Spec {
	for i := range l.Outlets {
		if l.Outlets[i].ID == id {
			return &l.Outlets[i]
		}
	}
	return nil
}

// kept reports whether any outlet keeps its news.
func (l *list) kept() bool {
	return slices.ContainsFunc(l.Outlets, func(s Spec) bool { return s.State.keeps() })
}

// gains reports whether an outlet keeps its news that did not in an older list.
func (l *list) gains(older *list) bool {
	return slices.ContainsFunc(l.Outlets, func(s Spec) bool {
		before := older.find(s.ID)
		//rule:told_or_owed.another-outlet-of-this-id
		if before != nil && !before.same(&s) {
			before = nil
		}
		return s.State.keeps() && (before == nil || !before.State.keeps())
	})
}

// The place of the list among the documents.
const (
	listKind = "outlets"
	listName = "list"
)

// readList returns the stored list.
func readList(ctx context.Context, store storage.Documents) (list, error) {
	found, _, err := store.Documents(ctx, listKind, "", 1)
	if err != nil || len(found) == 0 {
		return list{}, err
	}
	return parseList(found[0].Value, found[0].Version)
}

// parseList returns a list from its document, which may not exist.
func parseList(value []byte, version uint64) (list, error) {
	l := list{version: version}
	if value == nil {
		return l, nil
	}
	if err := json.Unmarshal(value, &l); err != nil {
		return list{}, tidemark.Wrap(tidemark.Internal, err, "the list of outlets is damaged")
	}
	return l, nil
}

// editList changes the stored list in one step. change may run several times. If it returns an
// error, nothing changes.
func editList(
	ctx context.Context, store storage.Documents, change func(*list) error,
) (l list, err error) {
	key := storage.DocumentKey{Kind: listKind, Name: listName}
	edit := func(value []byte) ([]byte, error) {
		if l, err = parseList(value, 0); err != nil {
			return nil, err
		}
		if err := change(&l); err != nil {
			return nil, err
		}
		next, err := json.Marshal(l)
		if len(next) > storage.MaxDocument {
			return nil, tidemark.Errorf(tidemark.TooLarge,
				"the outlets together have %d bytes, at most %d are allowed", len(next),
				storage.MaxDocument)
		}
		return next, err
	}
	d, _, err := storage.EditDocument(ctx, store, key, edit)
	if err != nil {
		return list{}, err
	}
	l.version = d.Version
	return l, nil
}
