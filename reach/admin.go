package reach

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// rotation is how long an old secret is valid after a new one was made.
const rotation = 24 * time.Hour

// types are the types of events that an outlet may ask for.
var types = []outlet.Type{
	outlet.MessagePersisted, outlet.MemberChanged, outlet.ChatUpdated, outlet.ChatDeleted,
	outlet.DeliveryUpdated, outlet.ReadUpdated, outlet.PendingCreated, outlet.EventParked,
	outlet.OutletDisabled,
}

// NewOutlet says what outlet to create. Zero values are defaults.
type NewOutlet struct {
	// ID names the outlet. By default it follows from Kind and URL.
	ID   storage.OutletID
	Kind string
	URL  string
	// Events are the types that it gets. By default these are all but those of receipts and
	// outlet.PendingCreated.
	Events []outlet.Type
	// Content is "full", the default, or "none".
	Content string
	Batch   bool
	// FromStart asks for all news since the creation of the chats. Otherwise the outlet gets what
	// happens from now on.
	FromStart bool
}

// Change says what to change of an outlet. What is nil stays as it is.
type Change struct {
	URL     *string
	Events  *[]outlet.Type
	Content *string
	Batch   *bool
	// Paused pauses or resumes the outlet. Resuming also ends the state disabled.
	Paused *bool
}

// Info is an outlet as operators see it.
type Info struct {
	Spec
	// The figures are those of this process, since the outlet was opened here.
	Accepted, Refused, Deferred, Parked uint64
	// FailingSince is since when the receiver refuses everything that this process delivers. It is
	// zero if it does not.
	FailingSince time.Time
}

// Created is the outcome of Create.
type Created struct {
	Info
	// Secret verifies what the outlet gets. Nobody can read it later. It is "" if the kind has
	// none, and if the outlet existed.
	Secret string
	// Existed reports that an equal call has created the outlet before.
	Existed bool
}

// Create creates an outlet. A repetition with the same id, or without one and with the same kind
// and URL, changes nothing.
//
// Errors: Invalid (the field is named), Denied (no key seals the secret), Conflict (the id is that
// of another outlet, or of one that is being deleted; another outlet is being created; there are
// too many).
func (e *Engine) Create(ctx context.Context, new NewOutlet) (Created, error) {
	s := Spec{
		ID: new.Name(), Kind: new.Kind, URL: new.URL, Events: new.Events, Content: new.Content,
		Batch: new.Batch, CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	if s.Content == "" {
		s.Content = "full"
	}
	if new.FromStart {
		s.Walk = &Walk{First: true}
	}
	secret, err := e.newSecret(&s)
	if err == nil {
		err = e.reserved(s.ID)
	}
	if err == nil {
		err = e.check(&s)
	}
	if err != nil {
		return Created{}, err
	}
	var existing *Spec
	_, err = editList(ctx, e.cfg.Store, func(l *list) error {
		if existing = l.find(s.ID); existing != nil {
			return existing.repeated(&s)
		}
		state, err := l.firstState(new.FromStart)
		if err != nil {
			return err
		}
		s.State = state
		l.Outlets = append(l.Outlets, s)
		return nil
	})
	switch {
	case err != nil:
		return Created{}, err
	case existing != nil:
		return Created{Info: e.info(*existing), Existed: true}, nil
	}
	e.look()
	return Created{Info: e.info(s), Secret: secret}, nil
}

// createOwn creates those outlets of kinds with Kind.Own that a list does not have. One that cannot
// be created now is created by a later call.
func (e *Engine) createOwn(ctx context.Context, l list) (list, error) {
	for name, kind := range e.cfg.Kinds {
		if kind.Own == "" || kind.Off || l.find(kind.Own) != nil {
			continue
		}
		changed, err := editList(ctx, e.cfg.Store, func(l *list) error {
			state, err := l.firstState(false)
			if err == nil && l.find(kind.Own) == nil {
				l.Outlets = append(l.Outlets, Spec{
					ID: kind.Own, Kind: name, Events: kind.Events, Content: "full", State: state,
					CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
				})
			}
			return err
		})
		switch {
		case err == nil:
			l = changed
		case tidemark.CodeOf(err) != tidemark.Conflict:
			return l, err
		}
	}
	return l, nil
}

// look lets Run look at the list at once.
func (e *Engine) look() {
	e.changed.Store(true)
	e.wake.Set()
}

// Name returns the id that the outlet gets.
func (n *NewOutlet) Name() storage.OutletID {
	if n.ID == storage.AllOutlets {
		return ownID(n.Kind, n.URL)
	}
	return n.ID
}

// ownID returns the id of an outlet that nobody has named. A repetition has the same one.
func ownID(kind, url string) storage.OutletID {
	sum := sha256.Sum256([]byte(kind + " " + url))
	code := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	return storage.OutletID("out_" + strings.ToLower(code[:20]))
}

// repeated returns nil if a new specification asks for the outlet that s is, else Conflict.
func (s *Spec) repeated(new *Spec) error {
	if s.State == Deleting {
		return tidemark.Errorf(tidemark.Conflict, "the outlet %s is being deleted; try again in a "+
			"minute, or give the new one another outlet_id", s.ID)
	}
	if s.Kind != new.Kind || s.URL != new.URL || !slices.Equal(s.Events, new.Events) ||
		s.Content != new.Content || s.Batch != new.Batch {
		return tidemark.Errorf(tidemark.Conflict, "the outlet %s exists, and differs; change it, "+
			"or give the new one another outlet_id", s.ID)
	}
	return nil
}

// firstState returns the state in which an outlet begins. Conflict: none can be created now.
func (l *list) firstState(fromStart bool) (State, error) {
	if len(l.Outlets) >= MaxOutlets {
		return "", tidemark.Errorf(tidemark.Conflict,
			"there are %d outlets, which is the most; delete one first", MaxOutlets)
	}
	state := Starting
	for _, other := range l.Outlets {
		switch other.State {
		case Starting, Joining:
			return "", tidemark.Errorf(tidemark.Conflict,
				"the outlet %s is being created; try again when its state is active", other.ID)
		case Active, Paused, Disabled:
			state = Joining
		}
	}
	if fromStart {
		state = Joining
	}
	return state, nil
}

// newSecret adds a secret to a specification, if its kind has some, and returns it.
func (e *Engine) newSecret(s *Spec) (string, error) {
	kind, known := e.cfg.Kinds[s.Kind]
	if !known || kind.Own != "" {
		return "", tidemark.BadParam(tidemark.Invalid, "type", "must be one of: %s",
			strings.Join(e.creatable(), ", "))
	}
	if kind.NewSecret == nil {
		return "", nil
	}
	secret := kind.NewSecret()
	sealed, err := e.cfg.Sealer.Seal(secret)
	if err != nil {
		return "", err
	}
	s.Secrets = append([]Secret{{Sealed: sealed}}, s.Secrets...)
	return secret, nil
}

// creatable returns the kinds of outlets that operators create.
func (e *Engine) creatable() []string {
	var names []string
	for name, kind := range e.cfg.Kinds {
		if kind.Own == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// check returns Invalid if the outlet could not be opened.
func (e *Engine) check(s *Spec) error {
	for _, t := range s.Events {
		if !slices.Contains(types, t) {
			return tidemark.BadParam(tidemark.Invalid, "events",
				"has the unknown type %.40q; the types are %v", t, types)
		}
	}
	if s.Content != "full" && s.Content != "none" {
		return tidemark.BadParam(tidemark.Invalid, "content", "must be full or none")
	}
	client, err := e.open(s)
	if err != nil {
		return err
	}
	return client.Close()
}

// reserved returns Invalid if an id is that of a kind's own outlet.
func (e *Engine) reserved(id storage.OutletID) error {
	for name, kind := range e.cfg.Kinds {
		if kind.Own == id {
			return tidemark.BadParam(tidemark.Invalid, "outlet_id",
				"is reserved for the outlet of the type %s; use another one", name)
		}
	}
	return nil
}

// Outlets returns all outlets that are not deleted, in the order of their creation.
func (e *Engine) Outlets(ctx context.Context) ([]Info, error) {
	l, err := readList(ctx, e.cfg.Store)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(l.Outlets))
	for _, s := range l.Outlets {
		if s.State != Deleting {
			infos = append(infos, e.info(s))
		}
	}
	return infos, nil
}

// Outlet returns an outlet. NotFound: there is none.
func (e *Engine) Outlet(ctx context.Context, id storage.OutletID) (Info, error) {
	l, err := readList(ctx, e.cfg.Store)
	if err != nil {
		return Info{}, err
	}
	s, err := l.existing(id)
	if err != nil {
		return Info{}, err
	}
	return e.info(*s), nil
}

// mostWaiting is the greatest number that Waiting returns.
const mostWaiting = 1_000

// Waiting returns in how many chats events wait in the own backlogs of an outlet, at most 1,000.
func (e *Engine) Waiting(ctx context.Context, id storage.OutletID) (chats int, err error) {
	q := storage.BacklogQuery{Outlet: id, Shards: allShards(), Limit: mostWaiting}
	found, _, err := e.cfg.Store.Backlogs(ctx, q)
	return len(found), err
}

// existing returns an outlet. NotFound: there is none, or it is deleted.
func (l *list) existing(id storage.OutletID) (*Spec, error) {
	s := l.find(id)
	if s == nil || s.State == Deleting {
		return nil, tidemark.Errorf(tidemark.NotFound, "there is no outlet %s", id)
	}
	return s, nil
}

// info adds the figures of this process.
func (e *Engine) info(s Spec) Info {
	info := Info{Spec: s}
	r := e.receiver(s.ID)
	if r == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if why := e.unopened[s.ID]; s.State.gets() {
			info.Reason = why
		}
		return info
	}
	info.Accepted = r.counts[countAccepted].Load()
	info.Refused = r.counts[countRefused].Load()
	info.Deferred = r.counts[countDeferred].Load()
	info.Parked = r.counts[countParked].Load()
	if down, since := r.health.waiting(); down {
		info.FailingSince = since
	}
	return info
}

// edit changes an outlet in one step.
func (e *Engine) edit(
	ctx context.Context, id storage.OutletID, change func(*Spec) error,
) (Info, error) {
	l, err := editList(ctx, e.cfg.Store, func(l *list) error {
		s, err := l.existing(id)
		if err == nil {
			err = change(s)
		}
		//rule:R_LATER.operators-do-not-change-it
		if kind := e.cfg.Kinds; err == nil && kind[s.Kind].Fixed &&
			(s.State != Deleting || !kind[s.Kind].Off) {
			err = tidemark.Errorf(tidemark.Conflict, "the outlet %s is the server's own, and "+
				"nodes may rely on it; it can be deleted at a node that does not use it, when "+
				"no other node does either", id)
		}
		return err
	})
	if err != nil {
		return Info{}, err
	}
	e.look()
	return e.info(*l.find(id)), nil
}

// Update changes an outlet. Nothing is lost, whatever changes: what it refuses meanwhile waits.
//
// Errors: NotFound, Invalid (the field is named), Conflict (it is being created, and cannot be
// paused yet).
func (e *Engine) Update(ctx context.Context, id storage.OutletID, c Change) (Info, error) {
	return e.edit(ctx, id, func(s *Spec) error {
		if err := e.mayChange(s, &c); err != nil {
			return err
		}
		if c.URL != nil {
			s.URL = *c.URL
		}
		if c.Events != nil {
			s.Events = *c.Events
		}
		if c.Content != nil {
			s.Content = *c.Content
		}
		if c.Batch != nil {
			s.Batch = *c.Batch
		}
		if c.Paused != nil {
			if err := s.pause(*c.Paused); err != nil {
				return err
			}
		}
		if s.State == Paused && c == (Change{Paused: c.Paused}) {
			return nil // also if it cannot be opened
		}
		return e.check(s)
	})
}

// pause pauses or resumes the outlet.
func (s *Spec) pause(paused bool) error {
	switch {
	case s.State == Starting || s.State == Joining:
		return tidemark.Errorf(tidemark.Conflict,
			"the outlet %s is being created; try again when its state is active", s.ID)
	case paused:
		s.State = Paused
	default:
		s.State, s.Reason = Active, ""
	}
	return nil
}

// mayChange returns Invalid if the server chooses what is to change, and not its operators.
func (e *Engine) mayChange(s *Spec, c *Change) error {
	own := e.cfg.Kinds[s.Kind].Own != ""
	if own && (c.URL != nil || c.Events != nil || c.Content != nil || c.Batch != nil) {
		return tidemark.Errorf(tidemark.Invalid,
			"the outlet %s is the server's own; only paused can be changed", s.ID)
	}
	return nil
}

// Delete deletes an outlet with its backlogs, log and parked events.
//
// Errors: NotFound, Conflict (a node relies on it).
func (e *Engine) Delete(ctx context.Context, id storage.OutletID) error {
	info, err := e.Outlet(ctx, id)
	if kind := e.cfg.Kinds[info.Kind]; err == nil && kind.Fixed && kind.Off {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.times.Trust)
		defer cancel()
		err = e.mayDelete(ctx, id)
	}
	if err != nil {
		return err
	}
	_, err = e.edit(ctx, id, func(s *Spec) error {
		s.State, s.Walk, s.Secrets = Deleting, nil, nil
		return nil
	})
	return err
}

// Rotate makes a new secret, and returns it. The old ones are valid for another 24 hours.
//
// Errors: NotFound, Invalid (the kind has no secrets), Denied (no key seals it), Conflict (too many
// old ones are valid).
func (e *Engine) Rotate(ctx context.Context, id storage.OutletID) (Info, string, error) {
	secret := ""
	info, err := e.edit(ctx, id, func(s *Spec) (err error) {
		if e.cfg.Kinds[s.Kind].NewSecret == nil {
			return tidemark.Errorf(tidemark.Invalid,
				"outlets of the type %s have no secret", s.Kind)
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		s.Secrets = s.valid(now)
		for i := range s.Secrets {
			if s.Secrets[i].Until.IsZero() {
				s.Secrets[i].Until = now.Add(rotation)
			}
		}
		if len(s.Secrets) >= 5 {
			return tidemark.Errorf(tidemark.Conflict,
				"the secret was rotated %d times within a day; wait until the old ones end",
				len(s.Secrets)-1)
		}
		secret, err = e.newSecret(s)
		return err
	})
	return info, secret, err
}

// Replay delivers news again. With a chat, these are its messages from a sequence on. Without one,
// they are the messages of all chats that are not older than a time; for a zero time, they are all
// news since the creation of the chats. Replayed events have the ids that they had before.
//
// Errors: NotFound (the outlet, or the chat), Conflict (another replay of all chats is under way,
// or the outlet is being created).
func (e *Engine) Replay(
	ctx context.Context, id storage.OutletID, chat tidemark.ChatID, from tidemark.Sequence,
	since time.Time,
) error {
	if chat != "" {
		if _, err := e.Outlet(ctx, id); err != nil {
			return err
		}
		if _, err := e.cfg.Store.Chat(ctx, chat); err != nil {
			return err
		}
		at := beyond
		at.Sequence = max(from, 1) - 1
		err := e.cfg.Store.Rewind(ctx, []storage.Backlog{{Outlet: id, Chat: chat, From: at}})
		if r := e.receiver(id); r != nil && err == nil {
			r.news.wake.Set()
		}
		return err
	}
	_, err := e.edit(ctx, id, func(s *Spec) error {
		switch {
		case s.State == Starting || s.State == Joining:
			return tidemark.Errorf(tidemark.Conflict,
				"the outlet %s is being created; try again when its state is active", id)
		case s.Walk != nil:
			return tidemark.Errorf(tidemark.Conflict,
				"a replay of all chats is under way; wait until it has ended")
		}
		s.Walk = &Walk{Since: since.UTC().Truncate(time.Millisecond)}
		return nil
	})
	return err
}

// Test delivers an event that means nothing, and returns what came of it: nil, or why it was
// refused.
//
// Errors: NotFound, Invalid (the outlet is the server's own).
func (e *Engine) Test(ctx context.Context, id storage.OutletID) (*outlet.Refusal, error) {
	info, err := e.Outlet(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case e.cfg.Kinds[info.Kind].Own != "":
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the outlet %s is the server's own, and takes messages only; send one to try it", id)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	return e.once(ctx, id, outlet.Event{
		ID: outlet.EventID("outlet.test", string(id), now.String()), Type: "outlet.test", Time: now,
		Data: []byte(`{"outlet_id":"` + string(id) + `"}`),
	})
}

// once delivers one event, beside all others.
func (e *Engine) once(
	ctx context.Context, id storage.OutletID, event outlet.Event,
) (*outlet.Refusal, error) {
	info, err := e.Outlet(ctx, id)
	if err != nil {
		return nil, err
	}
	client, err := e.open(&info.Spec)
	if err != nil {
		return nil, err
	}
	_, refused := client.Deliver(ctx, []outlet.Event{event})
	return refused, client.Close()
}

// ParkedEvents returns a page of the parked events of an outlet, by id. NotFound: there is no such
// outlet.
func (e *Engine) ParkedEvents(
	ctx context.Context, id storage.OutletID, after string, limit int,
) ([]Parked, bool, error) {
	if _, err := e.Outlet(ctx, id); err != nil {
		return nil, false, err
	}
	return parkedOf(ctx, e.cfg.Store, id, after, limit)
}

// Resend delivers a parked event, and forgets it if it was accepted. It returns why it was refused,
// or nil. The event's id is valid (tidemark.ValidID). NotFound: the outlet, or the event.
func (e *Engine) Resend(
	ctx context.Context, id storage.OutletID, event string,
) (*outlet.Refusal, error) {
	if _, err := e.Outlet(ctx, id); err != nil {
		return nil, err
	}
	key := storage.DocumentKey{Kind: parkedKind(id), Name: event}
	found, err := e.cfg.Store.DocumentsOf(ctx, []storage.DocumentKey{key})
	if err != nil {
		return nil, err
	}
	d := found[0]
	if d.Value == nil {
		return nil, tidemark.Errorf(tidemark.NotFound, "no event %s of the outlet %s is parked",
			event, id)
	}
	parked, err := parseParked(d)
	if err != nil {
		return nil, err
	}
	parked.Event.Again = true
	refused, err := e.once(ctx, id, parked.Event)
	if err != nil || refused != nil {
		return refused, err
	}
	d.Value = nil
	_, err = e.cfg.Store.PutDocument(ctx, d)
	if tidemark.CodeOf(err) == tidemark.Conflict {
		err = nil // Another call has delivered it, too.
	}
	return nil, err
}

// Failures returns what an outlet has refused lately, the newest first. NotFound: there is no such
// outlet.
func (e *Engine) Failures(ctx context.Context, id storage.OutletID) ([]Failure, error) {
	if _, err := e.Outlet(ctx, id); err != nil {
		return nil, err
	}
	log, _, err := logOf(ctx, e.cfg.Store, id)
	slices.Reverse(log)
	return log, err
}
