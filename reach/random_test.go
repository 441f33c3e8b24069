package reach

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// TestEngine_told_or_owed_and_told_in_order_at_random runs schedules of sends, redactions, kills,
// stops, receivers that fail, and outlets that are born, paused, replayed and deleted, in several
// processes whose store fails now and then. In the end, each receiver has all messages, each one
// for the first time after all earlier ones of its chat, and no backlog is left (row_once). No text
// comes longer than fresh after its redaction.
func TestEngine_told_or_owed_and_told_in_order_at_random(t *testing.T) {
	runs, first := number(t, "TIDEMARK_REACH_RUNS", 200), number(t, "TIDEMARK_SEED", 1)
	var total happened
	for seed := first; seed < first+runs; seed++ {
		t.Run(fmt.Sprint("TIDEMARK_SEED=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &schedule{
					world: newWorld(t), dice: rand.New(rand.NewPCG(uint64(seed), 0)),
					outlets: map[storage.OutletID]string{},
				}
				s.run()
				total.add(&s.happened)
			})
		})
	}
	t.Logf("%+v", total)
	if runs >= 20 && (total.kills == 0 || total.stops == 0 || total.pauses == 0 ||
		total.replays == 0 || total.births == 0 || total.deletions == 0 || total.waits == 0 ||
		total.redactions == 0) {
		t.Errorf("not everything happened: %+v", total)
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// happened counts what the schedules did.
type happened struct {
	messages, kills, stops, pauses, replays, births, deletions, redactions int
	waits, events, repeats                                                 int
}

func (h *happened) add(o *happened) {
	h.messages += o.messages
	h.kills += o.kills
	h.stops += o.stops
	h.pauses += o.pauses
	h.replays += o.replays
	h.births += o.births
	h.deletions += o.deletions
	h.waits += o.waits
	h.events += o.events
	h.repeats += o.repeats
	h.redactions += o.redactions
}

type schedule struct {
	*world
	happened
	dice      *rand.Rand
	processes []*process
	// outlets are those that are active or paused, with the URLs of their receivers.
	outlets map[storage.OutletID]string
	names   int
}

func (s *schedule) run() {
	s.processes = append(s.processes, s.begin())
	for range 2 + s.dice.IntN(3) {
		s.group()
	}
	s.birth()
	for range 60 {
		s.step()
		time.Sleep(time.Duration(s.dice.IntN(3_000)) * time.Millisecond)
	}
	s.end()
}

// begin starts a process whose store fails now and then.
func (s *schedule) begin() *process {
	return s.start(flaky(rand.New(rand.NewPCG(s.dice.Uint64(), 1)), 20+s.dice.IntN(200)))
}

func (s *schedule) any() *process { return s.processes[s.dice.IntN(len(s.processes))] }

// some returns one of the outlets.
func (s *schedule) some() (id storage.OutletID, url string) {
	left := s.dice.IntN(max(len(s.outlets), 1))
	for n := range s.names {
		for id, url := range s.outlets {
			if url == receiverName(n) {
				if left == 0 {
					return id, url
				}
				left--
			}
		}
	}
	return "", ""
}

func receiverName(n int) string { return "https://r" + strconv.Itoa(n) }

func (s *schedule) step() {
	switch s.dice.IntN(16) {
	case 0:
		if len(s.processes) > 1 {
			n := s.dice.IntN(len(s.processes))
			if s.dice.IntN(3) == 0 {
				s.processes[n].stop()
				s.stops++
			} else {
				s.processes[n].kill()
				s.kills++
			}
			s.processes = append(s.processes[:n], s.processes[n+1:]...)
		}
	case 1:
		if len(s.processes) < 4 {
			s.processes = append(s.processes, s.begin())
		}
	case 2:
		if len(s.outlets) < 4 && s.dice.IntN(2) == 0 {
			s.birth()
		}
	case 3:
		s.pause()
	case 4:
		if id, _ := s.some(); id != "" {
			chat := tidemark.ChatID("")
			if s.dice.IntN(2) == 0 {
				chat = s.chats[s.dice.IntN(len(s.chats))]
			}
			if s.any().Replay(s.ctx, id, chat, 1, time.Time{}) == nil {
				s.replays++
			}
		}
	case 5:
		if id, _ := s.some(); id != "" && len(s.outlets) > 1 && s.dice.IntN(3) == 0 {
			if s.any().Delete(s.ctx, id) == nil {
				delete(s.outlets, id)
				s.deletions++
			}
		}
	case 6:
		p := s.any()
		p.alone.Store(!p.alone.Load() && s.dice.IntN(2) == 0)
	case 7, 8:
		if _, url := s.some(); url != "" {
			s.trouble(s.inbox(url))
		}
	case 9:
		s.redactSome()
	default:
		for range 1 + s.dice.IntN(8) {
			chat := s.chats[s.dice.IntN(len(s.chats))]
			s.send(chat, s.any())
			s.messages++
		}
	}
}

// redactSome redacts some of the last messages of a chat.
func (s *schedule) redactSome() {
	chat := s.chats[s.dice.IntN(len(s.chats))]
	pages, err := s.store.Ranges(s.ctx, []storage.Range{
		{Chat: chat, Before: tidemark.MaxSequence, Limit: 10},
	})
	s.ok(err)
	for i := range pages[0] {
		m := &pages[0][i]
		if m.Kind.Relates() || m.Redacted() || s.dice.IntN(2) == 0 {
			continue
		}
		s.redact(chat, m.Sequence)
		s.mu.Lock()
		if s.gone == nil {
			s.gone = map[string]time.Time{}
		}
		s.gone[strconv.Quote(m.Content)] = time.Now()
		s.mu.Unlock()
		s.redactions++
	}
	s.any().Hint(chat)
}

// birth creates an outlet, while messages come. Those that come before it is active may be missed.
func (s *schedule) birth() {
	url := receiverName(s.names)
	s.names++
	new := NewOutlet{
		Kind: "webhook", URL: url, Batch: s.dice.IntN(2) == 0, FromStart: s.dice.IntN(3) == 0,
	}
	if s.dice.IntN(3) == 0 {
		new.Events = []outlet.Type{outlet.MessagePersisted, outlet.PendingCreated}
	}
	for try := range 200 {
		info, err := s.any().Create(s.ctx, new)
		if err != nil {
			time.Sleep(time.Second)
			if try == 20 {
				s.reach()
			}
			continue
		}
		s.births++
		for range 200 {
			if now, err := s.any().Outlet(s.ctx, info.ID); err == nil && now.State == Active {
				break
			}
			s.send(s.chats[s.dice.IntN(len(s.chats))], s.any())
			s.messages++
			time.Sleep(time.Second)
		}
		s.outlets[info.ID] = url
		return
	}
	s.Fatal("no outlet could be created")
}

// reach lets all processes reach the documents again.
func (s *schedule) reach() {
	for _, p := range s.processes {
		p.alone.Store(false)
	}
}

func (s *schedule) pause() {
	id, _ := s.some()
	if id == "" {
		return
	}
	paused := s.dice.IntN(2) == 0
	if _, err := s.any().Update(s.ctx, id, Change{Paused: &paused}); err == nil && paused {
		s.pauses++
	}
}

// trouble lets a receiver fail in some way, or heals it.
func (s *schedule) trouble(in *inbox) {
	dice := rand.New(rand.NewPCG(s.dice.Uint64(), 2))
	roll := func(n int) int {
		in.mu.Lock()
		defer in.mu.Unlock()
		return dice.IntN(n)
	}
	switch s.dice.IntN(6) {
	case 0:
		in.does(nil)
	case 1:
		in.does(refuse(500))
	case 2: // Some are refused, and of some batches only the first are accepted.
		in.does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			if n := roll(2 * (len(events) + 1)); n < len(events) {
				action := []outlet.Action{outlet.Retry, outlet.Split}[roll(2)]
				return n, &outlet.Refusal{Action: action, Status: 500}
			}
			return len(events), nil
		})
	case 3: // It is slow, and sometimes too slow.
		in.does(func(ctx context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			select {
			case <-ctx.Done():
				return 0, &outlet.Refusal{Detail: "ended"}
			case <-time.After(time.Duration(roll(4_000)) * time.Millisecond):
			}
			return len(events), nil
		})
	case 4:
		in.does(func(ctx context.Context, _ []outlet.Event) (int, *outlet.Refusal) {
			select {
			case <-ctx.Done():
			case <-time.After(15 * time.Second):
			}
			return 0, &outlet.Refusal{Detail: "no answer"}
		})
	case 5: // It is too early for some.
		in.does(func(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
			if n := roll(2 * (len(events) + 1)); n < len(events) {
				after := time.Duration(roll(5_000)) * time.Millisecond
				return n, &outlet.Refusal{Action: outlet.Later, After: after}
			}
			return len(events), nil
		})
	}
}

// end heals everything, and waits until all is delivered.
func (s *schedule) end() {
	last := s.start(nil)
	s.reach()
	for _, url := range s.outlets {
		s.inbox(url).does(nil)
	}
	resumed := false
	for id := range s.outlets {
		_, err := last.Update(s.ctx, id, Change{Paused: &resumed})
		s.ok(err)
	}
	time.Sleep(20 * time.Second)
	for range 120 { // Longer than the longest wait of a retry.
		if s.quiet(last) {
			break
		}
		time.Sleep(time.Minute)
	}
	for id, url := range s.outlets {
		in := s.inbox(url)
		in.mu.Lock()
		for _, chat := range s.chats {
			c, err := s.store.Chat(s.ctx, chat)
			s.ok(err)
			if in.first[chat] < c.Head && (in.begins[chat] != 0 || s.since(chat, id)) {
				s.Errorf("told_or_owed: %s has %s up to %d of %d", url, chat, in.first[chat],
					c.Head)
			}
		}
		for _, wrong := range in.wrong {
			s.Errorf("told_in_order: %s: %s", url, wrong)
		}
		s.events += len(in.got)
		s.repeats += len(in.got) - len(in.bodies)
		in.mu.Unlock()
		if n := s.backlogs(id); n != 0 {
			s.Errorf("row_once: %d backlogs of %s are left", n, url)
		}
		info, err := last.Outlet(s.ctx, id)
		s.ok(err)
		if info.Walk != nil {
			s.Errorf("the replay of %s has not ended: %+v", url, info.Walk)
		}
	}
	if n := s.backlogs(storage.AllOutlets); n != 0 {
		s.Errorf("row_once: %d backlogs for all are left", n)
	}
	for _, p := range s.processes {
		for _, r := range p.receivers {
			s.waits += int(r.counts[countDeferred].Load())
		}
	}
}

// quiet reports whether no backlog is left, and no replay is under way.
func (s *schedule) quiet(p *process) bool {
	left := s.backlogs(storage.AllOutlets)
	for id := range s.outlets {
		left += s.backlogs(id)
		if info, err := p.Outlet(s.ctx, id); err != nil || info.Walk != nil {
			left++
		}
	}
	return left == 0
}

// since reports whether a chat has a message that an outlet must have: one that came after the
// outlet was active. It is active within a minute after its creation, or later.
func (s *schedule) since(chat tidemark.ChatID, id storage.OutletID) bool {
	l, err := readList(s.ctx, s.store)
	s.ok(err)
	pages, err := s.store.Ranges(s.ctx, []storage.Range{{Chat: chat, Limit: storage.MaxBatch}})
	s.ok(err)
	for _, m := range pages[0] {
		if m.CreatedAt.After(l.find(id).CreatedAt.Add(10 * time.Minute)) {
			return true
		}
	}
	return false
}
