package reach

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/internal/reread"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// refusalsUntilParked is how often an event is refused at least before it is parked.
const refusalsUntilParked = 8

// Parked is an event that an outlet has refused for so long that the later ones of its chat go on
// without it.
type Parked struct {
	Event outlet.Event `json:"event"`
	At    time.Time    `json:"at"`
	// Status and Detail are those of the last refusal.
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// hopeless reports whether an event that was refused is parked. If the receiver refuses everything,
// nothing is.
func (e *Engine) hopeless(r *receiver, event *outlet.Event, again retry) bool {
	down, _ := r.health.waiting()
	age := time.Since(again.since)
	if event.Type == outlet.MessagePersisted {
		age = max(age, time.Since(event.Time))
	}
	return !down && again.refusals >= refusalsUntilParked && age >= e.times.Park
}

// parkedKind is the kind of the documents of an outlet's parked events.
func parkedKind(id storage.OutletID) string { return "parked:" + string(id) }

// park stores an event for an operator. A message is read again when somebody looks at the event,
// or sends it again. So it is stored without text.
func (e *Engine) park(
	ctx context.Context, r *receiver, event *outlet.Event, why *outlet.Refusal, since time.Time,
) error {
	parked := Parked{Event: *event, At: time.Now().UTC(), Status: why.Status, Detail: why.Detail}
	//rule:redacted_stays.park-no-text
	if event.Type == outlet.MessagePersisted {
		parked.Event.Data = numbersOf(event)
	}
	value, err := json.Marshal(parked)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	//rule:notices_reach_others.no-notice-of-a-notice
	if event.Type != outlet.EventParked && event.Type != outlet.OutletDisabled {
		about, err := parkedNotice(&r.spec, &parked, since)
		//rule:notices_reach_others.announce-before-parking
		if err == nil {
			err = e.announce(ctx, r.spec.ID, &about)
		}
		if err != nil {
			return err
		}
	}
	_, err = e.cfg.Store.PutDocument(ctx, storage.Document{
		Kind: parkedKind(r.spec.ID), Name: event.ID, Value: value,
	})
	// Conflict: it was parked before.
	if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
		return err
	}
	r.count(countParked, 1)
	e.cfg.Log.Error("an event is parked, since its outlet refuses it; the later ones go on",
		"outlet", r.spec.ID, "event", event.ID, "chat", event.Chat, "status", why.Status,
		"detail", why.Detail)
	return nil
}

// numbersOf returns data that identify a message.
func numbersOf(event *outlet.Event) json.RawMessage {
	b := tidemark.AppendString([]byte(`{"chat_id":`), string(event.Chat))
	b = strconv.AppendUint(append(b, `,"sequence":`...), event.Sequence, 10)
	return append(b, '}')
}

// parkedOf returns a page of the parked events of an outlet, by id. Messages are as they are now.
func parkedOf(
	ctx context.Context, store Store, id storage.OutletID, after string, limit int,
) ([]Parked, bool, error) {
	found, more, err := store.Documents(ctx, parkedKind(id), after, limit)
	if err != nil {
		return nil, false, err
	}
	parked := make([]Parked, len(found))
	for i, d := range found {
		if parked[i], err = parseParked(d); err != nil {
			return nil, false, err
		}
	}
	return parked, more, withMessages(ctx, store, parked)
}

// withMessages sets the data of parked messages. One that the chat does not have keeps its numbers.
func withMessages(ctx context.Context, store Store, parked []Parked) error {
	var keys []storage.MessageKey
	var at []int
	for i := range parked {
		if e := &parked[i].Event; e.Type == outlet.MessagePersisted {
			//rule:redacted_stays.read-what-is-parked
			e.Data = numbersOf(e)
			keys, at = append(keys, keyOf(e)), append(at, i)
		}
	}
	for k, found := range reread.Messages(ctx, store, keys) {
		switch {
		case found.Err == nil:
			parked[at[k]].Event.Data = found.Message.AppendJSON(nil)
		case tidemark.CodeOf(found.Err) != tidemark.NotFound:
			return found.Err
		}
	}
	return nil
}

// parseParked returns the parked event of a document.
func parseParked(d storage.Document) (Parked, error) {
	var parked Parked
	if err := json.Unmarshal(d.Value, &parked); err != nil {
		return Parked{}, tidemark.Wrap(tidemark.Internal, err,
			"the parked event "+d.Name+" is damaged")
	}
	return parked, nil
}

// dropDocuments removes the parked events of an outlet, its log, and the notices for it.
func (e *Engine) dropDocuments(ctx context.Context, id storage.OutletID) error {
	for _, kind := range []string{parkedKind(id), logKind(id), noticeKind(id)} {
		for {
			found, _, err := e.cfg.Store.Documents(ctx, kind, "", 100)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				break
			}
			for _, d := range found {
				d.Value = nil
				if _, err := e.cfg.Store.PutDocument(ctx, d); err != nil &&
					tidemark.CodeOf(err) != tidemark.Conflict {
					return err
				}
			}
		}
	}
	return nil
}

// Failure is a delivery that was refused.
type Failure struct {
	At    time.Time       `json:"at"`
	Event string          `json:"event"`
	Type  outlet.Type     `json:"type"`
	Chat  tidemark.ChatID `json:"chat_id"`
	// Status is that of the answer, 0 if there was none. Detail says what happened.
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

const (
	// maxFailures is how many failures of an outlet are kept, and maxDetail how many bytes of each
	// one's detail.
	maxFailures = 1_000
	maxDetail   = 100
)

func logKind(id storage.OutletID) string { return "log:" + string(id) }

// failures are what outlets have refused and no log has yet. It is safe for concurrent use.
type failures struct {
	// logged is when logs were stored. Only the goroutine of Engine.Run uses it.
	logged time.Time

	mu sync.Mutex
	of map[storage.OutletID][]Failure
}

// add adds a refusal of an outlet. Of many, the last ones are kept.
func (f *failures) add(id storage.OutletID, event *outlet.Event, why *outlet.Refusal) {
	one := Failure{
		At: time.Now().UTC(), Event: event.ID, Type: event.Type, Chat: event.Chat,
		Status: why.Status, Detail: short(why.Detail),
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[storage.OutletID][]Failure{}
	}
	kept := f.of[id]
	if len(kept) == maxFailures {
		kept = kept[1:]
	}
	f.of[id] = append(kept, one)
}

// take removes and returns all.
func (f *failures) take() map[storage.OutletID][]Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.of
	f.of = nil
	return of
}

// short cuts a detail between two characters.
func short(detail string) string {
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "")
	}
	return detail
}

// saveFailures adds what was refused lately to the stored logs. A log is one document, which is
// written as a whole, so that is done once in Times.Save, and at the end. What cannot be written is
// lost.
func (e *Engine) saveFailures(ctx context.Context, end bool) (err error) {
	if !end && time.Since(e.failures.logged) < e.times.Save {
		return nil
	}
	for id, of := range e.failures.take() {
		e.failures.logged = time.Now()
		err = errors.Join(err, e.saveLog(ctx, id, of))
	}
	return err
}

// giveUp disables outlets that have refused everything for too long.
func (e *Engine) giveUp(ctx context.Context) error {
	e.mu.Lock()
	receivers := slices.Collect(maps.Values(e.receivers))
	e.mu.Unlock()
	for _, r := range receivers {
		if down, since := r.health.waiting(); down && time.Since(since) >= e.times.GiveUp {
			err := e.disable(ctx, r.spec.ID, "everything was refused since "+
				since.UTC().Format(time.RFC3339))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// saveLog adds failures to the log of an outlet. If others write at the same time, theirs stay, and
// these are lost.
func (e *Engine) saveLog(ctx context.Context, id storage.OutletID, more []Failure) error {
	kept, version, err := logOf(ctx, e.cfg.Store, id)
	if err != nil {
		return err
	}
	kept = append(kept, more...)
	for {
		kept = slices.Clone(kept[max(0, len(kept)-maxFailures):])
		value, err := json.Marshal(kept)
		if err != nil {
			return err
		}
		if len(value) > storage.MaxDocument {
			kept = kept[len(kept)/10+1:]
			continue
		}
		_, err = e.cfg.Store.PutDocument(ctx, storage.Document{
			Kind: logKind(id), Name: "failures", Version: version, Value: value,
		})
		if tidemark.CodeOf(err) == tidemark.Conflict {
			return nil
		}
		return err
	}
}

// logOf returns the stored log of an outlet, the newest last.
func logOf(
	ctx context.Context, store storage.Documents, id storage.OutletID,
) (log []Failure, version uint64, err error) {
	found, _, err := store.Documents(ctx, logKind(id), "", 1)
	if err != nil || len(found) == 0 {
		return nil, 0, err
	}
	if err := json.Unmarshal(found[0].Value, &log); err != nil {
		return nil, found[0].Version, nil // A damaged log begins anew.
	}
	return log, found[0].Version, nil
}

// disable ends the deliveries to an outlet until an operator resumes it.
func (e *Engine) disable(ctx context.Context, id storage.OutletID, reason string) error {
	_, err := editList(context.WithoutCancel(ctx), e.cfg.Store, func(l *list) error {
		if s := l.find(id); s != nil && s.State.gets() {
			s.State, s.Reason = Disabled, reason
			//rule:notices_reach_others.note-in-the-step
			s.Disabling = &disabling{time.Now().UTC().Truncate(time.Millisecond), reason}
		}
		return nil
	})
	if err == nil {
		e.cfg.Log.Error("an outlet is disabled; its news waits until it is resumed",
			"outlet", id, "reason", reason)
	}
	return err
}
