package storagetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A witness records what happened in one chat of a schedule. It counts unread messages by a look at
// every message, and uses none of the product's rules.
type witness struct {
	new storage.NewChat

	mu       sync.Mutex
	messages map[tidemark.Sequence]tidemark.Message
	changes  []change
	// read has the highest sequence up to which a user has certainly read. atMost also counts reads
	// that take effect only within what the user has acknowledged (Raise.ReadWithinAcked).
	read, atMost map[tidemark.UserID]tidemark.Sequence
	// floor is the highest one that a store has told.
	floor tidemark.Sequence
	// marks are all sequences from which a user marked the messages as unread.
	marks map[tidemark.UserID][]tidemark.Sequence
}

// A change is the end of a membership, or the beginning of one.
type change struct {
	version uint64
	head    tidemark.Sequence
	user    tidemark.UserID
	joined  bool
}

func newWitness(new storage.NewChat) *witness {
	return &witness{
		new: new, messages: map[tidemark.Sequence]tidemark.Message{},
		read:   map[tidemark.UserID]tidemark.Sequence{},
		atMost: map[tidemark.UserID]tidemark.Sequence{},
		marks:  map[tidemark.UserID][]tidemark.Sequence{},
	}
}

func (w *witness) head() tidemark.Sequence {
	w.mu.Lock()
	defer w.mu.Unlock()
	return tidemark.Sequence(len(w.messages))
}

// saw records a message that was stored. It returns an error if its sequence has another message.
func (w *witness) saw(m tidemark.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, twice := w.messages[m.Sequence]; twice && before.MessageID != m.MessageID {
		return fmt.Errorf("%d is %s and %s", m.Sequence, before.MessageID, m.MessageID)
	}
	w.messages[m.Sequence] = m
	return nil
}

// ownRun returns the last sequence up to which a user wrote everything from first on.
func (w *witness) ownRun(user tidemark.UserID, first, last tidemark.Sequence) tidemark.Sequence {
	w.mu.Lock()
	defer w.mu.Unlock()
	to := first
	for to < last && w.messages[to+1].SenderID == user {
		to++
	}
	return to
}

func (w *witness) raised(user tidemark.UserID, raise tidemark.Raise) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atMost[user] = max(w.atMost[user], raise.Read)
	if !raise.ReadWithinAcked {
		w.read[user] = max(w.read[user], raise.Read)
	}
}

func (w *witness) expired(floor tidemark.Sequence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.floor = max(w.floor, floor)
}

// kept returns the number of messages that have not expired.
func (w *witness) kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.messages) - int(max(w.floor, 1)-1)
}

func (w *witness) marked(user tidemark.UserID, from tidemark.Sequence) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marks[user] = append(w.marks[user], from)
}

// changed records a change, and reports whether the user was a member before.
func (w *witness) changed(c change) (returns bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, c)
	returns = w.wasMember(c.user, c.version)
	if c.joined && !returns && w.new.History == tidemark.HistorySinceJoin {
		w.read[c.user] = max(w.read[c.user], c.head)
		w.atMost[c.user] = max(w.atMost[c.user], c.head)
	}
	return returns
}

// wasMember reports whether a user was a member before a version. The mutex is held.
func (w *witness) wasMember(user tidemark.UserID, version uint64) bool {
	return slices.Contains(w.new.Members, user) ||
		slices.ContainsFunc(w.changes, func(c change) bool {
			return c.user == user && c.version < version
		})
}

// A stay is one membership: the first and the last message that the user may see. If it lasts,
// there is no last one yet.
type stay struct {
	from, to tidemark.Sequence
	lasts    bool
}

// stays returns the memberships of a user, in order. The mutex is held.
func (w *witness) stays(user tidemark.UserID) (stays []stay) {
	if slices.Contains(w.new.Members, user) {
		stays = []stay{{from: 1, lasts: true}}
	}
	changes := slices.Clone(w.changes)
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	for _, c := range changes {
		switch {
		case c.user != user:
		case !c.joined:
			stays[len(stays)-1].to, stays[len(stays)-1].lasts = c.head, false
		case len(stays) == 0 && w.new.History == tidemark.HistoryFull:
			stays = []stay{{from: 1, lasts: true}}
		default:
			stays = append(stays, stay{from: c.head + 1, lasts: true})
		}
	}
	return stays
}

// unread counts the messages after a sequence that a user has not read, and those that name them.
func (w *witness) unread(user tidemark.UserID, after tidemark.Sequence) (u storage.Unread) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stays := w.stays(user)
	for sequence, m := range w.messages {
		shown := slices.ContainsFunc(stays, func(s stay) bool {
			return s.from <= sequence && (s.lasts || sequence <= s.to)
		})
		if !shown || sequence <= after || sequence < w.floor || m.SenderID == user ||
			m.Kind != tidemark.KindMessage {
			continue
		}
		u.Messages++
		if m.Mentions.All || slices.Contains(m.Mentions.Users, user) {
			u.Mentions++
		}
	}
	return u
}

// member reports whether a user is a member now.
func (w *witness) member(user tidemark.UserID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	stays := w.stays(user)
	return len(stays) > 0 && stays[len(stays)-1].lasts
}

// straddled reports whether a user has sent messages on both sides of a sequence.
func (w *witness) straddled(user tidemark.UserID, after tidemark.Sequence) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, behind := false, false
	for sequence, m := range w.messages {
		if m.SenderID == user {
			before, behind = before || sequence <= after, behind || sequence > after
		}
	}
	return before && behind
}

// checkState returns an error if a state cannot follow from the reads and marks of its user.
func (w *witness) checkState(state tidemark.DeliveryState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	least, most := w.read[state.UserID], w.atMost[state.UserID]
	if state.Read < least || state.Read > most {
		return fmt.Errorf("%s has read %d of %s, want %d to %d",
			state.UserID, state.Read, state.ChatID, least, most)
	}
	mark := state.UnreadFrom
	if mark > state.Read || mark != 0 && !slices.Contains(w.marks[state.UserID], mark) {
		return fmt.Errorf("%s has the mark %d in %s, of %v, and has read %d",
			state.UserID, mark, state.ChatID, w.marks[state.UserID], state.Read)
	}
	return nil
}

// keys returns each user with each chat.
func (s *schedule) keys() (keys []storage.StateKey, of []*witness) {
	for _, room := range s.rooms {
		for _, user := range s.people {
			keys = append(keys, storage.StateKey{User: user, Chat: room.new.ID})
			of = append(of, room)
		}
	}
	return keys, of
}

// compareCounts compares the counts of each user and chat with those of the witness, on one store.
func (s *schedule) compareCounts() error {
	keys, of := s.keys()
	store := s.stores[s.random.IntN(len(s.stores))]
	states, err := store.States(s.ctx, keys)
	if err != nil {
		return err
	}
	counts, err := store.Unread(s.ctx, keys)
	if err != nil {
		return err
	}
	for i, room := range of {
		if err := room.checkState(states[i]); err != nil {
			return err
		}
		after := states[i].Read
		if states[i].UnreadFrom != 0 {
			s.tally.marks++
			after = states[i].UnreadFrom - 1
		}
		want := room.unread(keys[i].User, after)
		s.expected[keys[i]] = want
		if counts[i] != want {
			return fmt.Errorf("%s has %+v unread in %s after %d, want %+v",
				keys[i].User, counts[i], keys[i].Chat, after, want)
		}
		if room.straddled(keys[i].User, after) {
			s.tally.straddles++
		}
		s.tally.unread += int(want.Messages)
		s.tally.mentions += int(want.Mentions)
	}
	return nil
}

// compareMessages compares the messages of each chat with those that the witness saw.
func (s *schedule) compareMessages() error {
	ranges := make([]storage.Range, len(s.rooms))
	for i, room := range s.rooms {
		ranges[i] = storage.Range{Chat: room.new.ID, Limit: 1_000}
	}
	pages, err := s.store.Ranges(s.ctx, ranges)
	if err != nil {
		return err
	}
	for i, room := range s.rooms {
		if len(pages[i]) != room.kept() {
			return fmt.Errorf("%s has %d messages, want %d", room.new.ID, len(pages[i]),
				room.kept())
		}
		for _, m := range pages[i] {
			if diff := difference(m, room.messages[m.Sequence]); diff != "" {
				return fmt.Errorf("%s (-want +got):\n%s", room.new.ID, diff)
			}
		}
		s.tally.messages += len(pages[i])
	}
	return nil
}

// compareLists compares the list of chats and the total of each user with the counts of
// compareCounts.
func (s *schedule) compareLists() error {
	for i, user := range s.people {
		store := s.stores[i%len(s.stores)]
		want := map[tidemark.ChatID]storage.Unread{}
		var total storage.UnreadTotal
		for _, room := range s.rooms {
			if room.member(user) {
				count := s.expected[storage.StateKey{User: user, Chat: room.new.ID}]
				want[room.new.ID] = count
				total.Add(count)
			}
		}
		diff := s.settled(func() (string, error) {
			chats, _, err := store.ChatsOf(s.ctx, user, storage.ChatsPage{Limit: 10})
			got := map[tidemark.ChatID]storage.Unread{}
			for _, chat := range chats {
				got[chat.Chat.ID] = chat.Unread
			}
			return difference(got, want), err
		})
		if diff != "" {
			return fmt.Errorf("the list of %s (-want +got):\n%s", user, diff)
		}
		diff = s.settled(func() (string, error) {
			got, err := store.UnreadOf(s.ctx, user)
			return difference(got, total), err
		})
		if diff != "" {
			return fmt.Errorf("the total of %s (-want +got):\n%s", user, diff)
		}
	}
	return nil
}

// settled repeats an eventually consistent comparison. It returns "" when there is no difference,
// or the last difference after 20 attempts.
func (s *schedule) settled(compare func() (string, error)) (diff string) {
	for range 20 {
		var err error
		if diff, err = compare(); err != nil {
			return err.Error()
		}
		if diff == "" {
			return ""
		}
	}
	return diff
}

func (s *schedule) unprefixed(text string) string { return strings.ReplaceAll(text, s.prefix, "") }

// scheduleTally counts schedules and what happened in them.
type scheduleTally struct {
	schedules, undecided, messages, concurrent int
	// unread and mentions are sums of the counts that were compared. straddles are counts of users
	// with own messages on both sides of the mark. marks are counts while a mark as unread stood.
	unread, mentions, straddles, marks int
	returned, refused, duplicates      int
	expirations                        int
}

func (sum *scheduleTally) numbers() map[string]*int {
	return map[string]*int{
		"schedules": &sum.schedules, "undecided": &sum.undecided, "messages": &sum.messages,
		"concurrent steps": &sum.concurrent, "unread": &sum.unread, "mentions": &sum.mentions,
		"own messages around a mark": &sum.straddles, "marks as unread": &sum.marks,
		"returns": &sum.returned, "refused drafts": &sum.refused, "duplicates": &sum.duplicates,
		"expirations": &sum.expirations,
	}
}

func (sum *scheduleTally) add(other *scheduleTally) {
	more := other.numbers()
	for name, n := range sum.numbers() {
		*n += *more[name]
	}
}

// check fails the test if something never happened, or if more than one in a hundred schedules is
// undecided.
func (sum *scheduleTally) check(t *testing.T, runs int) {
	t.Helper()
	numbers := sum.numbers()
	var text []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		text = append(text, fmt.Sprintf("%d %s", *numbers[name], name))
		if *numbers[name] == 0 && name != "undecided" && runs >= unreadRuns {
			t.Errorf("%d schedules had no %s", runs, name)
		}
	}
	t.Log(strings.Join(text, ", "))
	if sum.undecided > 1+runs/100 {
		t.Errorf("%d of %d schedules are undecided", sum.undecided, runs)
	}
}
