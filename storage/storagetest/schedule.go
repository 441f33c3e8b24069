package storagetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// unreadVariable sets the number of schedules for each store.
	unreadVariable = "TIDEMARK_UNREAD_RUNS"
	unreadRuns     = 100
	// schedulesAtOnce share a store, so that they also share its batches.
	schedulesAtOnce = 48
	schedulePhases  = 12
	// crowdSize is more than the number of senders that DynamoDB keeps in one item.
	crowdSize = 15
)

// A schedule is a random sequence of what the devices of a few users do in two chats: they send,
// read, mark as unread, leave, return, and change roles, while messages expire. It runs in phases.
// The steps of a phase are concurrent. The stores are at rest after each phase. Then the counts are
// compared with those of a witness, which looks at every message.
//
// The seed decides all steps. Only the order of concurrent steps differs from run to run.
type schedule struct {
	*fixture
	// stores contains all stores on the same data. Each user has a device on each.
	stores []storage.Store
	seed   uint64
	random *rand.Rand
	people []tidemark.UserID
	rooms  []*witness
	steps  int
	// expected has the last counts of the witnesses.
	expected map[storage.StateKey]storage.Unread

	mu  sync.Mutex
	log []string
	// lost reports that the outcome of a change of members is unknown. Then nothing can be
	// compared.
	lost  bool
	tally scheduleTally
}

// testSchedules runs schedules on one store, or on several stores with the same data.
func testSchedules(t *testing.T, first suite, others ...storage.Store) {
	runs := unreadRuns
	if given := os.Getenv(unreadVariable); given != "" {
		var err error
		if runs, err = strconv.Atoi(given); err != nil || runs < 1 {
			t.Fatalf("%s is %q, want a number from 1", unreadVariable, given)
		}
	}
	stores := append([]storage.Store{first.store}, others...)
	seed := historySeed(first.fixture(t))
	var sum scheduleTally
	var mu sync.Mutex
	var next atomic.Int64
	err := concurrently(min(schedulesAtOnce, runs), func(int) error {
		for n := next.Add(1); n <= int64(runs); n = next.Add(1) {
			s := newSchedule(first.fixture(t), stores, seed+uint64(n)-1)
			if err := s.run(); err != nil {
				next.Store(int64(runs)) // The others end.
				return fmt.Errorf("schedule with TIDEMARK_SEED=%d: %w", s.seed, err)
			}
			mu.Lock()
			sum.add(&s.tally)
			done := sum.schedules + sum.undecided
			mu.Unlock()
			if done%max(1_000, runs/10) == 0 {
				t.Logf("%d schedules", done)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sum.check(t, runs)
}

// newSchedule returns a schedule that has done nothing.
func newSchedule(f *fixture, stores []storage.Store, seed uint64) *schedule {
	s := &schedule{
		fixture: f, stores: stores, seed: seed, expected: map[storage.StateKey]storage.Unread{},
		random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // The seed decides.
	}
	s.people = f.users("alice", "bob", "carol", "dave")[:3+s.random.IntN(2)]
	if s.random.IntN(16) == 0 {
		s.people = f.many(crowdSize)
	}
	full := storage.NewChat{
		ID: f.chat("full"), Type: tidemark.Group, History: tidemark.HistoryFull,
		Members: s.people[:2+s.random.IntN(len(s.people)-1)],
	}
	late := storage.NewChat{
		ID: f.chat("late"), Type: tidemark.Group, History: tidemark.HistorySinceJoin,
		Members: s.people[:1+s.random.IntN(len(s.people))],
	}
	direct := storage.NewChat{
		ID: f.chat("direct"), Type: tidemark.Direct, History: tidemark.HistoryFull,
		Members: []tidemark.UserID{s.people[1], s.people[0]},
	}
	for _, new := range [][]storage.NewChat{{full, late}, {full, direct}, {late, direct}}[seed%3] {
		new.Creator, new.CreatedAt = new.Members[0], at(0)
		s.rooms = append(s.rooms, newWitness(new))
	}
	return s
}

// run makes all steps and compares the counts.
func (s *schedule) run() error {
	for _, room := range s.rooms {
		if _, _, err := s.store.CreateChat(s.ctx, room.new); err != nil {
			return err
		}
	}
	for phase := range schedulePhases {
		err := s.phase(phase)
		if s.lost {
			s.tally.undecided++
			return nil
		}
		if err == nil && s.random.IntN(schedulePhases) == 0 {
			err = s.compareCounts()
		}
		if err != nil {
			return s.report(err)
		}
	}
	err := s.compareCounts()
	if err == nil {
		err = s.compareMessages()
	}
	if err == nil {
		err = s.compareLists()
	}
	if err != nil {
		return s.report(err)
	}
	s.tally.schedules++
	return nil
}

// report adds what the schedule did to an error.
func (s *schedule) report(err error) error {
	text := fmt.Sprintf("%v\nafter:", err)
	for _, line := range s.log {
		text += "\n\t" + line
	}
	return fmt.Errorf("%s", s.unprefixed(text))
}

// A step is one call of a device, or a send and the read that it implies.
type step struct {
	no, phase int
	store     storage.Store
	room      *witness
	user      tidemark.UserID
	// head is the head of the room before the phase.
	head   tidemark.Sequence
	random *rand.Rand
	act    func(*step) error
}

// phase makes the steps of a phase: one step in half of the phases, and otherwise up to five. They
// may all be about one chat, or of one user with several devices. In one phase of a schedule with
// crowdSize people, everybody sends.
func (s *schedule) phase(phase int) error {
	n := []int{1, 1, 1, 2, 3, 5}[s.random.IntN(6)]
	oneRoom, oneUser := s.random.IntN(2) == 0, s.random.IntN(4) == 0
	chorus := phase == 2 && len(s.people) == crowdSize
	if chorus {
		n = crowdSize
	}
	if n > 1 {
		s.tally.concurrent += n
	}
	steps := make([]step, n)
	for i := range steps {
		st := s.step(phase)
		if oneRoom && i > 0 {
			st.room = steps[0].room
		}
		st.head = st.room.head()
		if st.act = s.action(&st); oneUser && i > 0 {
			st.user = steps[0].user
		}
		if chorus {
			st.user, st.act = s.people[i], s.send
		}
		steps[i] = st
	}
	return concurrently(n, func(i int) error { return steps[i].act(&steps[i]) })
}

// step draws the next step. action then draws what it does and who does it.
func (s *schedule) step(phase int) step {
	s.steps++
	return step{
		no: s.steps, phase: phase, room: s.rooms[s.random.IntN(len(s.rooms))],
		store:  s.stores[s.random.IntN(len(s.stores))],
		random: rand.New(rand.NewPCG(s.seed, uint64(s.steps))), //nolint:gosec // The seed decides.
	}
}

// action draws what a step does, and who does it. Usually those who join are not members, and those
// who do something else are.
func (s *schedule) action(st *step) (act func(*step) error) {
	group := st.room.new.Type == tidemark.Group
	joins := false
	switch kind := st.random.IntN(22); {
	case kind >= 20:
		act = s.expire
	case kind < 7:
		act = s.send
	case kind < 12 || kind >= 14 && !group:
		act = s.read
	case kind < 14:
		act = s.markUnread
	case kind < 16:
		act = s.remove
	case kind < 19:
		act, joins = s.join, true
	default:
		act = s.changeRole
	}
	for range 3 {
		if st.user == "" || st.room.member(st.user) == joins {
			st.user = s.people[st.random.IntN(len(s.people))]
		} else {
			st.random.IntN(2) // Each step draws the same number of times.
		}
	}
	return act
}

// drafts returns one to three drafts of a user. Equal random numbers give equal drafts.
func (s *schedule) drafts(st *step, random *rand.Rand) []tidemark.Draft {
	drafts := make([]tidemark.Draft, 1+random.IntN(3))
	for i := range drafts {
		d := tidemark.Draft{
			ChatID: st.room.new.ID, SenderID: st.user, Content: "x",
			ContentType: tidemark.DefaultContentType, Kind: tidemark.KindMessage,
			ClientMessageID: fmt.Sprintf("key-%d-%d", st.no, i),
			MessageID:       tidemark.MessageID(fmt.Sprintf("%sm-%d-%d", s.prefix, st.no, i)),
			CreatedAt:       at(st.phase),
		}
		switch random.IntN(8) {
		case 0:
			d.Kind = tidemark.KindSystem
		case 1:
			d.Kind = tidemark.KindControl
		}
		if random.IntN(3) == 0 {
			var named []tidemark.UserID
			for range random.IntN(3) {
				named = append(named, s.people[random.IntN(len(s.people))])
			}
			d.Mentions = tidemark.NewMentions(random.IntN(3) == 0, named)
		}
		drafts[i] = d
	}
	return drafts
}

// send appends messages, some of them twice. In half of the sends the sender then reads, as the
// core does for them.
func (s *schedule) send(st *step) error {
	drafts := s.drafts(st, st.random)
	calls := 1
	if st.random.IntN(8) == 0 {
		calls = 2
	}
	first, last := tidemark.Sequence(0), tidemark.Sequence(0)
	for range calls {
		results, err := s.append(st.store, drafts)
		if err != nil {
			return err
		}
		for i := range results {
			code := tidemark.CodeOf(results[i].Err)
			if code == tidemark.NotMember || code == tidemark.Denied {
				s.count(&s.tally.refused)
				continue
			}
			if results[i].Err != nil {
				return results[i].Err
			}
			m := results[i].Message
			if err := st.room.saw(m); err != nil {
				return err
			}
			if results[i].Duplicate {
				s.count(&s.tally.duplicates)
			}
			s.logf(st, "sent %d, %s to %s", m.Sequence, m.Kind, m.Mentions.Text())
			if last = m.Sequence; first == 0 {
				first = last
			}
		}
	}
	if last == 0 || st.random.IntN(2) == 0 {
		return nil
	}
	seen := tidemark.Seen{}
	if st.random.IntN(2) == 0 {
		seen = tidemark.SeenThrough(tidemark.Sequence(st.random.Uint64N(uint64(first))))
	}
	// The run ends where another user's message begins.
	to := st.room.ownRun(st.user, first, last)
	raise := tidemark.ImplicitRead(first, to, seen)
	raise.AckedFrom, raise.Acked = first, to
	return s.raise(st, raise)
}

// append makes one call, and repeats it while a draft is Unavailable.
func (s *schedule) append(
	store storage.Store, drafts []tidemark.Draft,
) (results []storage.Appended, err error) {
	err = retry(func() error {
		var err error
		if results, err = store.Append(s.ctx, drafts); err != nil {
			return err
		}
		for i := range results {
			if tidemark.CodeOf(results[i].Err) == tidemark.Unavailable {
				return results[i].Err
			}
		}
		return nil
	})
	return results, err
}

// read acknowledges or reads up to any message that was there before the phase.
func (s *schedule) read(st *step) error {
	if st.head == 0 {
		return nil
	}
	some := func() tidemark.Sequence {
		return 1 + tidemark.Sequence(st.random.Uint64N(uint64(st.head)))
	}
	raise := tidemark.Raise{Acked: some(), Read: some()}
	switch st.random.IntN(6) {
	case 0:
		raise.Read = 0
	case 1:
		raise.Acked = 0
	case 2, 3:
		raise.Read = st.head
	}
	return s.raise(st, raise)
}

func (s *schedule) raise(st *step, raise tidemark.Raise) error {
	advances := []storage.Advance{
		{User: st.user, Chat: st.room.new.ID, Raise: raise, Now: at(st.phase)},
	}
	var results []storage.Advanced
	err := retry(func() (err error) {
		results, err = st.store.Advance(s.ctx, advances)
		return err
	})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return err
	}
	st.room.raised(st.user, raise)
	s.logf(st, "raised %+v to %d, %d", raise, results[0].State.Acked, results[0].State.Read)
	return nil
}

func (s *schedule) markUnread(st *step) error {
	from := tidemark.Sequence(st.random.Uint64N(uint64(st.head) + 1))
	st.room.marked(st.user, from)
	err := retry(func() error {
		_, err := st.store.MarkUnread(s.ctx, st.user, st.room.new.ID, from)
		return err
	})
	s.logf(st, "marked from %d", from)
	return err
}

// expire lets messages of earlier phases expire.
func (s *schedule) expire(st *step) error {
	before, limit := at(st.random.IntN(st.phase+1)), 1+st.random.IntN(6)
	var done storage.Expired
	err := retry(func() (err error) {
		done, err = st.store.Expire(s.ctx, st.room.new.ID, before, limit)
		return err
	})
	if err != nil {
		return err
	}
	st.room.expired(done.Floor)
	if done.Removed > 0 {
		s.count(&s.tally.expirations)
	}
	s.logf(st, "expired up to %d", done.Floor)
	return nil
}

// uncertain reports that nobody knows whether a change of members happened.
func (s *schedule) uncertain(err error) bool {
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
	return true
}

func (s *schedule) remove(st *step) error {
	removed, err := st.store.RemoveMember(s.ctx, st.room.new.ID, st.user, at(st.phase))
	if s.uncertain(err) || tidemark.CodeOf(err) == tidemark.NotMember {
		return nil
	}
	if err != nil {
		return err
	}
	st.room.changed(change{version: removed.Version, head: removed.Head, user: st.user})
	s.logf(st, "left at %d", removed.Head)
	return nil
}

func (s *schedule) join(st *step) error {
	users := []tidemark.UserID{st.user}
	if other := s.people[st.random.IntN(len(s.people))]; other != st.user {
		users = append(users, other)
	}
	added, err := st.store.AddMembers(s.ctx, st.room.new.ID, users, tidemark.Ordinary,
		at(st.phase))
	if err != nil {
		if s.uncertain(err) {
			return nil
		}
		return err
	}
	for _, user := range added.New {
		if st.room.changed(change{
			version: added.Version, head: added.Head, user: user, joined: true,
		}) {
			s.count(&s.tally.returned)
		}
		s.logf(st, "%s joined at %d", user, added.Head)
	}
	return nil
}

func (s *schedule) changeRole(st *step) error {
	to := []tidemark.Role{tidemark.Reader, tidemark.Ordinary, tidemark.Admin}[st.random.IntN(3)]
	_, err := st.store.UpdateMember(s.ctx, st.room.new.ID, st.user, role(to))
	switch tidemark.CodeOf(err) {
	case tidemark.NotMember, tidemark.Denied, tidemark.Unavailable:
		err = nil // Roles do not change any count.
	}
	s.logf(st, "became %s: %v", to, err)
	return err
}

func (s *schedule) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// logf records what a step did.
func (s *schedule) logf(st *step, format string, args ...any) {
	line := fmt.Sprintf("phase %d: %s %s: ", st.phase, st.room.new.ID, st.user) +
		fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, line)
}
