package pusher

import (
	"container/list"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/reach/internal/acktoken"
	"github.com/tidemark-im/tidemark/reach/internal/reread"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/queue"
	"github.com/tidemark-im/tidemark/storage"
)

// Store is what a Pusher reads.
type Store interface {
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
	reread.Store
	UnreadOf(ctx context.Context, user tidemark.UserID) (storage.UnreadTotal, error)
}

// Config configures a Pusher. All fields are required, unless they say otherwise.
type Config struct {
	Store   Store
	Devices *devices.Registry
	// Queues are those of the providers that are configured.
	Queues map[devices.Platform]*queue.Queue
	// Online returns the devices of each user that have a session, in the order of users. A session
	// stays for Resume after its connection has ended.
	Online func(ctx context.Context, users []tidemark.UserID) ([][]tidemark.DeviceID, error)
	Resume time.Duration
	// Suspended reports which users are suspended, in the order of users. Nobody is if it is nil.
	Suspended func(ctx context.Context, users []tidemark.UserID) ([]bool, error)
	// Secret has at least MinSecret random bytes. All nodes have the same one.
	Secret []byte
	// Incarnation is that of the data. Tokens of another incarnation are refused: other messages
	// may have their sequences now.
	Incarnation tidemark.Incarnation
	// Habits are those of providers that have any. They may be missing.
	Habits map[devices.Platform]Habits
	// Forward, if not nil, passes a hint on to all processes, whose Heard takes it. It must not
	// block. A hint that is lost costs a banner that stays too long.
	Forward func(hint string)
	Log     *slog.Logger
}

// Habits say how a provider is used.
type Habits struct {
	// Clears returns the kinds of notifications by which a device learns that something was read
	// elsewhere. cleared are the times of earlier push.Clear of the device. nil: it learns that
	// with its next banner.
	Clears func(cleared []time.Time, now time.Time) []push.Kind
	// Form returns the kind of a device's next banner. unconfirmed is how many banners it got since
	// its last sign of life. nil: push.Banner.
	Form func(unconfirmed int) push.Kind
}

// MinSecret is the least length of Config.Secret.
const MinSecret = acktoken.MinSecret

// Pusher is an outlet.Client. All messages of a process go through one. It is safe for concurrent
// use.
type Pusher struct {
	cfg    Config
	tokens *acktoken.Signer
	// names is the secret of collapse names (push.CollapseName).
	names []byte

	// process names this process in hints, and working says that Run is under way.
	process string
	working atomic.Bool
	memory  memory
	watched watched
	// cleared and uncleared count banners that were read elsewhere: by push.Clear, or else.
	cleared, uncleared atomic.Int64
	// reads are the reads that this process must handle. wake says that there is a new one.
	reads reads
	wake  signal.Flag

	rounds rounds
}

// receiver is a device of a user.
type receiver struct {
	user   tidemark.UserID
	device tidemark.DeviceID
}

const (
	// perCall is how many messages a call takes.
	perCall = 100
	// callTime bounds a call.
	callTime = 15 * time.Second
	// recheck is when a queue is asked again whether it has done with a notification. It rises with
	// the age of the round, up to slowRecheck.
	recheck     = time.Second
	slowRecheck = 30 * time.Second
)

// New returns a Pusher. Run must run for notifications to leave. Invalid: the secret is too short.
func New(cfg Config) (*Pusher, error) {
	if len(cfg.Secret) < MinSecret {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the secret of push notifications has %d bytes, and needs %d random ones",
			len(cfg.Secret), MinSecret)
	}
	p := &Pusher{
		cfg: cfg, process: rand.Text()[:8], wake: signal.New(),
		rounds: rounds{chats: map[tidemark.ChatID]*list.Element{}},
	}
	var err error
	p.names, err = hkdf.Key(sha256.New, cfg.Secret, nil, "tidemark collapse names", sha256.Size)
	if err != nil {
		return nil, err
	}
	//rule:ack_token_honest.of-this-incarnation
	purpose := "tidemark acknowledgement tokens of " + string(cfg.Incarnation)
	secret, err := hkdf.Key(sha256.New, cfg.Secret, nil, purpose, sha256.Size)
	if err != nil {
		return nil, err
	}
	for _, q := range cfg.Queues {
		q.LookAgain(p.look)
	}
	p.tokens, err = acktoken.New(secret)
	return p, err
}

// Ack is what a push handler acknowledges: a user has received the messages of a chat up to
// Through. The notification contained all messages above the user's watermark.
type Ack struct {
	User    tidemark.UserID
	Chat    tidemark.ChatID
	Through tidemark.Sequence
}

// Acknowledged returns what a token acknowledges. Unauthenticated: the token is forged or expired,
// or the registration of its device has ended.
func (p *Pusher) Acknowledged(ctx context.Context, token string) (Ack, error) {
	claim, err := p.tokens.Verify(token, time.Now())
	if err != nil {
		return Ack{}, err
	}
	found, err := p.cfg.Devices.Of(ctx, []tidemark.UserID{claim.User})
	if err != nil {
		return Ack{}, err
	}
	d := registered(found[0].Devices, claim.Device, claim.Registration)
	//rule:ack_token_honest.ends-with-the-registration
	if d == nil {
		return Ack{}, tidemark.Errorf(tidemark.Unauthenticated,
			"the registration of the device has ended; log in, and register it again")
	}
	if p.cfg.Habits[d.Platform].Form != nil {
		p.noteSeen(receiver{claim.User, claim.Device})
	}
	return Ack{claim.User, claim.Chat, claim.To}, nil
}

// registered returns a registration of a user, or nil if it has ended.
func registered(
	all []devices.Device, id tidemark.DeviceID, registration uint64,
) *devices.Device {
	for i := range all {
		if all[i].ID == id && all[i].Registration == registration {
			return &all[i]
		}
	}
	return nil
}

// Run sends, removes what was read elsewhere, and ends the registrations that providers call dead,
// until ctx ends.
func (p *Pusher) Run(ctx context.Context) {
	p.working.Store(true)
	defer p.working.Store(false)
	var running sync.WaitGroup
	running.Go(func() { p.clearing(ctx) })
	for platform, q := range p.cfg.Queues {
		running.Go(func() { q.Run(ctx) })
		running.Go(func() { p.report(ctx, platform, q) })
	}
	running.Wait()
}

// report acts on what a provider says of registrations.
func (p *Pusher) report(ctx context.Context, platform devices.Platform, q *queue.Queue) {
	for {
		reports, ok := q.Reports(ctx)
		if !ok {
			return
		}
		for _, r := range reports {
			log := p.cfg.Log.With("platform", platform, "user", r.To.User, "device", r.To.Device,
				"detail", r.Result.Detail)
			if !r.Result.Drops(r.To) {
				log.Warn("a notification was refused")
				continue
			}
			err := p.cfg.Devices.DropRegistration(ctx, r.To.User, r.To.Device, r.To.Registration)
			if err != nil && ctx.Err() == nil {
				log.Warn("a dead registration cannot be ended now; the next notification "+
					"tries again", "error", err)
			}
		}
	}
}

// Limits implements outlet.Client.
func (p *Pusher) Limits() outlet.Limits { return outlet.Limits{Events: perCall, Bytes: 1 << 20} }

// Close implements outlet.Client. The Pusher goes on.
func (p *Pusher) Close() error { return nil }

// Deliver implements outlet.Client. It accepts a message when nobody is to be told of it any more.
func (p *Pusher) Deliver(ctx context.Context, events []outlet.Event) (int, *outlet.Refusal) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for first := 0; first < len(events); {
		end := first + 1
		for end < len(events) && events[end].Chat == events[first].Chat {
			end++
		}
		done, refused := p.chat(ctx, events[first:end])
		if refused != nil {
			return first + done, refused
		}
		first = end
	}
	return len(events), nil
}

// chat works on messages of one chat, and returns how many are done.
func (p *Pusher) chat(ctx context.Context, events []outlet.Event) (int, *outlet.Refusal) {
	chat, now := events[0].Chat, time.Now()
	messages, err := parse(events)
	if err != nil {
		return 0, &outlet.Refusal{Detail: "the message cannot be read: " + err.Error()}
	}
	old := 0
	for old < len(messages) && now.Sub(messages[old].CreatedAt) >= queue.MaxAge {
		old++
	}
	if old == len(messages) {
		return old, nil
	}
	messages = messages[old:]
	if done, refused := p.known(chat, messages, now); refused != nil {
		return old, refused
	} else if done {
		return len(events), nil
	}
	found, err := p.audience(ctx, chat, messages, now)
	switch {
	case err != nil:
		return old, &outlet.Refusal{Detail: tidemark.DetailOf(err)}
	case found.wait > 0:
		return old, later(found.wait)
	}
	for i := range events[old:] {
		//rule:redacted_stays.since-the-messages-were-read
		if asOf := events[old+i].AsOf; asOf.Before(found.read) {
			found.read = asOf
		}
	}
	if refused := p.notify(ctx, found, messages, now); refused != nil {
		return old, refused
	}
	return len(events), nil
}

// known answers for messages of whose people nothing has to be read, because that was done lately.
func (p *Pusher) known(
	chat tidemark.ChatID, messages []tidemark.Message, now time.Time,
) (done bool, refused *outlet.Refusal) {
	r := p.rounds.find(chat)
	if r == nil {
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.looked.covers(messages, now) {
		return false, nil
	}
	if refused = r.waits().refusal(); refused != nil {
		return false, refused
	}
	p.rounds.end(r)
	return true, nil
}

func later(after time.Duration) *outlet.Refusal {
	return &outlet.Refusal{Action: outlet.Later, After: max(after, 0)}
}

// notify tells the people of a chat who are to be told of messages now. It returns nil if nobody
// waits, and all was sent.
func (p *Pusher) notify(
	ctx context.Context, a audience, messages []tidemark.Message, now time.Time,
) *outlet.Refusal {
	r := p.rounds.of(a.chat.ID, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked = looked{}
	var wait time.Duration
	var full []*queue.Queue
	for i := range a.people {
		one := &a.people[i]
		for j := range one.devices {
			after, err := p.tell(ctx, r, &a, one, &one.devices[j], now)
			switch {
			case err != nil:
				return &outlet.Refusal{Detail: tidemark.DetailOf(err)}
			case after == noRoom:
				full = append(full, p.cfg.Queues[one.devices[j].Platform])
			case after > 0:
				wait = sooner(wait, after)
			}
		}
	}
	waits := r.waits()
	waits.full = full
	refused := waits.refusal()
	switch {
	case wait > 0 && refused == nil:
		return later(wait)
	case wait > 0:
		return later(min(wait, refused.After))
	}
	r.looked = looked{
		now, messages[0].Sequence, messages[len(messages)-1].Sequence, len(full) == 0,
	}
	if refused == nil {
		p.rounds.end(r)
	}
	return refused
}

// noRoom is what tell returns if a notification stays owed until its queue has room.
const noRoom = -1

// tell tells a device of the last message, unless it was told. If that must wait, it returns for
// how long, or noRoom. The same device is not told twice within the delay of a message.
func (p *Pusher) tell(
	ctx context.Context, r *round, a *audience, one *person, d *devices.Device, now time.Time,
) (wait time.Duration, err error) {
	at, q := receiver{one.user, d.ID}, p.cfg.Queues[d.Platform]
	before, told := r.sent[at]
	do, after := one.due(d.ID, now, p.cfg.Resume)
	switch rest := delay - now.Sub(before.at); {
	case before.through >= one.message.Sequence, do == skip:
		return 0, nil
	case told && rest > 0:
		return rest, nil
	case do == hold:
		return after, nil
	case q.Room() == 0:
		return noRoom, nil
	}
	n, err := p.notification(ctx, a.chat, one, d, now)
	if err != nil {
		return 0, err
	}
	to := d.Target(one.user)
	p.form(one, d, &n)
	p.remember(one, d, &n)
	//rule:push_is_needed.since-the-states-were-read
	q.EnqueueReadAt(a.read, to, n)
	r.sent[at] = sent{one.message.Sequence, now, q, to, n}
	return 0, nil
}

// sooner returns the smaller of two waits, where 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// Counters returns the figures by the names of their metrics. Those of a nil Pusher are 0.
func (p *Pusher) Counters() map[string]int64 {
	if p == nil {
		p = &Pusher{}
	}
	var sum queue.Counts
	waiting := 0
	for _, q := range p.cfg.Queues {
		counts, gauges := q.Stats()
		sum.Sent += counts.Sent
		sum.Dead += counts.Dead
		sum.Refused += counts.Refused
		sum.Replaced += counts.Replaced
		sum.Expired += counts.Expired
		sum.Obsolete += counts.Obsolete
		sum.Retried += counts.Retried
		waiting += gauges.Queued + gauges.InFlight
	}
	return map[string]int64{
		"push_notifications_total{sent}":     int64(sum.Sent),
		"push_notifications_total{dead}":     int64(sum.Dead),
		"push_notifications_total{refused}":  int64(sum.Refused),
		"push_notifications_total{replaced}": int64(sum.Replaced),
		"push_notifications_total{expired}":  int64(sum.Expired),
		"push_notifications_total{obsolete}": int64(sum.Obsolete),
		"push_notifications_total{retried}":  int64(sum.Retried),
		"push_clears_total{sent}":            p.cleared.Load(),
		"push_clears_total{next_banner}":     p.uncleared.Load(),
		"push_waiting":                       int64(waiting),
	}
}

// parse reads the messages of events.
func parse(events []outlet.Event) ([]tidemark.Message, error) {
	messages := make([]tidemark.Message, len(events))
	for i := range events {
		var err error
		if messages[i], err = tidemark.ParseMessage(events[i].Data); err != nil {
			return nil, err
		}
	}
	return messages, nil
}
