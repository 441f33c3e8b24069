package pusher_test

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/apns"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/fcm"
	"github.com/tidemark-im/tidemark/reach/push/pusher"
	"github.com/tidemark-im/tidemark/reach/push/queue"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

const resume = time.Minute

// world is a store with a process that notifies. It lives in the time of a synctest bubble.
type world struct {
	*testing.T
	// unread counts the calls of UnreadOf, and rosters those of Rosters. A call of UnreadOf takes
	// slow.
	unread, rosters atomic.Int64
	slow            time.Duration

	store   *memory.Store
	devices *devices.Registry
	engine  *reach.Engine
	pusher  *pusher.Pusher
	phones  *queue.Queue
	began   time.Time
	sent    int
	stop    func()
	// forward is pusher.Config.Forward of the processes that start.
	forward func(hint string)

	mu sync.Mutex
	// answer is what the provider does; nil accepts everything.
	answer func(context.Context) push.Result
	// online are the devices with a session.
	online map[tidemark.UserID][]tidemark.DeviceID
	// suspended are the users who are suspended.
	suspended map[tidemark.UserID]bool
	banner    []got
}

// counting counts what the pusher asks of the store.
type counting struct {
	*memory.Store
	w *world
}

// UnreadOf implements pusher.Store.
func (c counting) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (storage.UnreadTotal, error) {
	c.w.unread.Add(1)
	if c.w.slow > 0 {
		// Under the race detector, Go 1.26 crashes if two goroutines of a bubble receive from
		// timers of 0 at the same time: they share the race context of the bubble.
		<-time.After(c.w.slow)
	}
	return c.Store.UnreadOf(ctx, user)
}

// Rosters implements pusher.Store.
func (c counting) Rosters(
	ctx context.Context, chats []tidemark.ChatID,
) ([]*tidemark.Roster, error) {
	c.w.rosters.Add(1)
	return c.Store.Rosters(ctx, chats)
}

// got is what the provider accepted.
type got struct {
	To   push.Target
	N    push.Notification
	When time.Duration
}

// String returns what the notification says.
func (g got) String() string {
	text := fmt.Sprintf("%s: %q", g.N.Title, g.N.Body)
	switch g.N.Kind {
	case push.Banner:
	case push.Clear:
		text = fmt.Sprint("clear ", g.N.To)
	default:
		text = string(g.N.Kind)
	}
	for _, c := range g.N.Clears {
		text += fmt.Sprint(", clears ", c.To)
	}
	return fmt.Sprintf("%s, %d unread", text, g.N.Badge)
}

// Send implements push.Provider.
func (w *world) Send(ctx context.Context, to push.Target, n push.Notification) push.Result {
	w.mu.Lock()
	answer := w.answer
	w.mu.Unlock()
	result := push.Result{Outcome: push.Sent}
	if answer != nil {
		result = answer(ctx)
	}
	if err := n.Check(); err != nil {
		w.Errorf("the notification %+v is refused: %v", n, err)
	}
	if result.Outcome == push.Sent {
		w.mu.Lock()
		w.banner = append(w.banner, got{to, n, time.Since(w.began).Round(time.Second)})
		w.mu.Unlock()
	}
	return result
}

// Lane implements push.Provider.
func (w *world) Lane(push.Target) string { return "" }

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, store: memory.New(), online: map[tidemark.UserID][]tidemark.DeviceID{},
		began: time.Now(),
	}
	w.devices = devices.New(w.store)
	w.start()
	return w
}

// start starts a process.
func (w *world) start() {
	w.Helper()
	var err error
	w.phones = queue.New(w)
	w.pusher, err = pusher.New(pusher.Config{
		Store: counting{w.store, w}, Devices: w.devices, Resume: resume,
		Queues: map[devices.Platform]*queue.Queue{
			devices.FCM: w.phones, devices.WebPush: queue.New(w), devices.APNs: queue.New(w),
		},
		Habits: map[devices.Platform]pusher.Habits{
			devices.APNs: {Clears: apns.Clears},
			devices.FCM:  {Clears: fcm.Clears, Form: fcm.Form},
		},
		Forward: w.forward,
		Online: func(_ context.Context, users []tidemark.UserID) ([][]tidemark.DeviceID, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			found := make([][]tidemark.DeviceID, len(users))
			for i, user := range users {
				found[i] = w.online[user]
			}
			return found, nil
		},
		Suspended: func(_ context.Context, users []tidemark.UserID) ([]bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			found := make([]bool, len(users))
			for i, user := range users {
				found[i] = w.suspended[user]
			}
			return found, nil
		},
		Secret: make([]byte, 32), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	w.ok(err)
	sealer, err := reach.NewSealer(make([]byte, 32))
	w.ok(err)
	w.engine = reach.New(reach.Config{
		Store: w.store, Sealer: sealer, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Kinds: map[string]reach.Kind{"push": {
			Open:   func(*reach.Spec, []string) (outlet.Client, error) { return w.pusher, nil },
			Own:    "push",
			Events: []outlet.Type{outlet.MessagePersisted},
		}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.engine.Run(ctx) })
	running.Go(func() { w.pusher.Run(ctx) })
	w.stop = func() {
		cancel()
		running.Wait()
	}
	w.Cleanup(w.stop)
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// group creates a chat.
func (w *world) chat(
	kind tidemark.ChatType, name string, users ...tidemark.UserID,
) tidemark.ChatID {
	w.Helper()
	id := tidemark.ChatID("c-" + name)
	_, _, err := w.store.CreateChat(w.Context(), storage.NewChat{
		ID: id, Type: kind, Name: name, Members: users, Creator: users[0],
		CreatedAt: time.Now(), History: tidemark.HistorySinceJoin,
	})
	w.ok(err)
	return id
}

// phone registers a device without a key, and browser one with a key.
func (w *world) phone(user tidemark.UserID, id tidemark.DeviceID) {
	w.Helper()
	_, err := w.devices.Put(w.Context(), user, devices.Device{
		ID: id, Platform: devices.FCM, Address: "address-of-" + string(user) + "-" + string(id),
	})
	w.ok(err)
}

func (w *world) iphone(user tidemark.UserID, id tidemark.DeviceID) {
	w.Helper()
	_, err := w.devices.Put(w.Context(), user, devices.Device{
		ID: id, Platform: devices.APNs, App: "im.tidemark",
		Address: string(user) + "-" + string(id),
	})
	w.ok(err)
}

func (w *world) browser(user tidemark.UserID, id tidemark.DeviceID) {
	w.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	w.ok(err)
	_, err = w.devices.Put(w.Context(), user, devices.Device{
		ID: id, Platform: devices.WebPush, Address: "https://push.example.com/" + string(id),
		P256dh: key.PublicKey().Bytes(), Auth: make([]byte, 16),
	})
	w.ok(err)
}

// settings stores what a user wants to be told.
func (w *world) settings(user tidemark.UserID, s devices.Settings) {
	w.Helper()
	_, err := w.devices.PutSettings(w.Context(), user, s)
	w.ok(err)
}

// send sends a message.
func (w *world) send(
	chat tidemark.ChatID, sender tidemark.UserID, text string, change ...func(*tidemark.Draft),
) tidemark.Sequence {
	w.Helper()
	w.sent++
	d := tidemark.Draft{
		ChatID: chat, SenderID: sender, ClientMessageID: "m" + strconv.Itoa(w.sent),
		MessageID: tidemark.MessageID("m" + strconv.Itoa(w.sent)), Content: text,
		ContentType: "text/plain", Kind: tidemark.KindMessage, CreatedAt: time.Now().UTC(),
	}
	for _, c := range change {
		c(&d)
	}
	done, err := w.store.Append(w.Context(), []tidemark.Draft{d})
	w.ok(err)
	w.ok(done[0].Err)
	w.engine.Hint(chat)
	return done[0].Message.Sequence
}

// raise raises a user's watermarks.
func (w *world) raise(user tidemark.UserID, chat tidemark.ChatID, r tidemark.Raise) {
	w.Helper()
	w.raiseIn(w.pusher.Reading(w.store), user, chat, r)
}

// raiseIn raises them in a store.
func (w *world) raiseIn(
	s storage.Store, user tidemark.UserID, chat tidemark.ChatID, r tidemark.Raise,
) {
	w.Helper()
	done, err := s.Advance(w.Context(), []storage.Advance{
		{User: user, Chat: chat, Raise: r, Now: time.Now()},
	})
	w.ok(err)
	w.ok(done[0].Err)
}

// connect says which devices of a user have a session.
func (w *world) connect(user tidemark.UserID, ids ...tidemark.DeviceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.online[user] = ids
}

// provider says what the provider does.
func (w *world) provider(answer func(context.Context) push.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// told returns what the provider accepted since the last call.
func (w *world) told() []got {
	w.mu.Lock()
	defer w.mu.Unlock()
	banner := w.banner
	w.banner = nil
	return banner
}

// shows demands what the provider accepted since the last call: when, whom, and what.
func (w *world) shows(want ...string) {
	w.Helper()
	var lines []string
	for _, g := range w.told() {
		lines = append(lines, fmt.Sprintf("%v %s/%s %s", g.When, g.To.User, g.To.Device, g))
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		w.Errorf("the notifications (-want +got):\n%s", diff)
	}
}

// says is shows, without when and whom. Requests may overtake each other, so it sorts the lines.
func (w *world) says(want ...string) {
	w.Helper()
	var lines []string
	for _, g := range w.told() {
		lines = append(lines, g.String())
	}
	slices.Sort(lines)
	if diff := cmp.Diff(want, lines); diff != "" {
		w.Errorf("the notifications (-want +got):\n%s", diff)
	}
}

// owed returns how many chats are owed to the pusher.
func (w *world) owed() int {
	w.Helper()
	q := storage.BacklogQuery{Outlet: "push", Limit: storage.MaxBatch}
	for shard := range storage.Shards {
		q.Shards = append(q.Shards, shard)
	}
	found, _, err := w.store.Backlogs(w.Context(), q)
	w.ok(err)
	return len(found)
}
