package reach

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// Notices are events about an outlet, for the other outlets: it was disabled, or one of its events
// was parked. They belong to no chat, so no backlog covers them. Each is a document per outlet that
// is to get it. The document is stored before what the notice says, and removed once the outlet has
// accepted the notice. So a notice comes at least once. After a crash in between, it may say of an
// event that is still being tried that it was parked.

// noticesAtOnce is how many notices of an outlet are read at once.
const noticesAtOnce = 100

func noticeKind(id storage.OutletID) string { return "notice:" + string(id) }

// disabling says that an outlet was disabled, and that the others have no notice of it yet.
type disabling struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// parkedNotice returns the notice that an event was parked. since is when it was refused first: the
// id of a repetition is the same.
func parkedNotice(s *Spec, parked *Parked, since time.Time) (outlet.Event, error) {
	chat := &parked.Event.Chat
	if *chat == "" {
		chat = nil
	}
	return notice(outlet.EventParked, s, since, parked.At, struct {
		Outlet storage.OutletID `json:"outlet_id"`
		Event  string           `json:"event_id"`
		Type   outlet.Type      `json:"event_type"`
		Chat   *tidemark.ChatID `json:"chat_id"`
		Status int              `json:"status"`
		Detail string           `json:"detail"`
	}{s.ID, parked.Event.ID, parked.Event.Type, chat, parked.Status, short(parked.Detail)},
		parked.Event.ID)
}

// disabledNotice returns the notice that an outlet was disabled.
func disabledNotice(s *Spec) (outlet.Event, error) {
	return notice(outlet.OutletDisabled, s, s.Disabling.At, s.Disabling.At, struct {
		Outlet storage.OutletID `json:"outlet_id"`
		Reason string           `json:"reason"`
	}{s.ID, short(s.Disabling.Reason)}, "")
}

// notice returns a notice about an outlet. Its id follows from the outlet, from a time and from
// what it is about.
func notice(
	t outlet.Type, s *Spec, id, at time.Time, data any, about string,
) (outlet.Event, error) {
	text, err := json.Marshal(data)
	return outlet.Event{
		ID: outlet.EventID(t, string(s.ID), s.CreatedAt.UTC().String(),
			id.UTC().Truncate(time.Millisecond).String(), about),
		Type: t, Time: at.UTC().Truncate(time.Millisecond), Data: text,
	}, err
}

// announce stores a notice for all outlets that want it, except the one that it is about.
func (e *Engine) announce(
	ctx context.Context, about storage.OutletID, event *outlet.Event,
) error {
	value, err := json.Marshal(event)
	if err != nil {
		return err
	}
	l, err := readList(ctx, e.cfg.Store)
	if err != nil {
		return err
	}
	for i := range l.Outlets {
		s := &l.Outlets[i]
		if s.ID == about || !s.State.keeps() || !s.wants(event.Type) {
			continue
		}
		_, err := e.cfg.Store.PutDocument(ctx, storage.Document{
			Kind: noticeKind(s.ID), Name: event.ID, Value: value,
		})
		// Conflict: it was stored before.
		if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
			return err
		}
	}
	return nil
}

// announceDisabled stores the notice that an outlet was disabled, and notes that in the list. The
// step that disables an outlet says in the list that there is a notice to store.
func (e *Engine) announceDisabled(ctx context.Context, s *Spec) error {
	event, err := disabledNotice(s)
	if err != nil {
		return err
	}
	//rule:notices_reach_others.store-before-noting
	if err := e.announce(ctx, s.ID, &event); err != nil {
		return err
	}
	at := s.Disabling.At
	_, err = editList(ctx, e.cfg.Store, func(l *list) error {
		if s := l.find(s.ID); s != nil && s.Disabling != nil && s.Disabling.At.Equal(at) {
			s.Disabling = nil
		}
		return nil
	})
	return err
}

// notify delivers the notices for an outlet until ctx ends, while this process is the one that
// does so.
func (e *Engine) notify(ctx context.Context, r *receiver) {
	for ctx.Err() == nil {
		more := false
		if e.notifies(r) {
			var err error
			if more, err = e.notifySome(ctx, r); err != nil && ctx.Err() == nil {
				e.cfg.Log.Warn("the notices for an outlet cannot be delivered now; trying again",
					"outlet", r.spec.ID, "error", err)
			}
		}
		if !more {
			signal.Pause(ctx, e.times.Poll)
		}
	}
}

// notifies reports whether there may be notices for an outlet, and this process delivers them.
func (e *Engine) notifies(r *receiver) bool {
	if !r.spec.wants(outlet.EventParked) && !r.spec.wants(outlet.OutletDisabled) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ownOutlets[r.spec.ID]
}

// notifySome delivers a page of the notices for an outlet. An outlet gets them one after the other,
// and one that it refuses again and again is parked. more reports whether further ones can be
// delivered at once.
func (e *Engine) notifySome(ctx context.Context, r *receiver) (more bool, err error) {
	notices := line{}
	if !r.readyFor(notices) {
		return false, nil
	}
	found, more, err := e.cfg.Store.Documents(ctx, noticeKind(r.spec.ID), "", noticesAtOnce)
	if err != nil || len(found) == 0 {
		return false, err
	}
	if !r.health.begin() {
		return false, nil
	}
	defer r.health.abandoned() // If nothing was delivered.
	steps := make([]step, len(found))
	for i, d := range found {
		if err := json.Unmarshal(d.Value, &steps[i].Event); err != nil {
			return false, tidemark.Wrap(tidemark.Internal, err, "the notice "+d.Name+" is damaged")
		}
	}
	done, whole, err := e.drainSteps(ctx, r, notices, steps)
	//rule:notices_reach_others.remove-what-was-accepted
	for _, d := range found[:done] {
		d.Value = nil
		_, removeErr := e.cfg.Store.PutDocument(context.WithoutCancel(ctx), d)
		// Conflict: another process has delivered it, too.
		if removeErr != nil && tidemark.CodeOf(removeErr) != tidemark.Conflict {
			return false, removeErr
		}
	}
	return more && whole, err
}
