package chat

import (
	"context"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Roster is the list of a chat's members at one membership version. Users are their ids, in the
// form that the registry takes. A Roster is immutable, except that it remembers pending rows.
type Roster struct {
	*tidemark.Roster
	Users []tidemark.UserID
	// read is when the roster was read from storage.
	read     time.Time
	standing standing
}

// size returns about how many bytes of memory a roster takes.
func (r *Roster) size() int64 {
	if r == nil {
		return 0
	}
	n := unsafe.Sizeof(*r) + unsafe.Sizeof(*r.Roster) + uintptr(len(r.Members)+63)>>6<<3
	for _, m := range r.Members {
		n += unsafe.Sizeof(m) + unsafe.Sizeof(m.UserID) + uintptr(len(m.UserID)+len(m.Metadata)) +
			uintptr(len(m.Intervals))*unsafe.Sizeof(tidemark.Interval{})
	}
	return int64(n)
}

// After returns the members after a user, ordered by id; for "" it returns all. The result must not
// be changed.
func (r *Roster) After(user tidemark.UserID) []tidemark.Member {
	byID := func(m tidemark.Member, u tidemark.UserID) int {
		return strings.Compare(string(m.UserID), string(u))
	}
	from, found := slices.BinarySearchFunc(r.Members, user, byID)
	if found {
		from++
	}
	return r.Members[from:]
}

// Roster returns the members of a chat at a membership version of at least atLeast, from memory if
// it can. If atLeast is 0, memory is used only as TrustUntil allows. Any other atLeast comes from a
// recent read of storage, so a cached roster of that version may be used at any age. Error:
// NotFound.
func (c *Cache) Roster(ctx context.Context, id tidemark.ChatID, atLeast uint64) (*Roster, error) {
	return c.roster(ctx, id, atLeast, atLeast > 0)
}

// roster is Roster with the choice to use memory at any age.
func (c *Cache) roster(
	ctx context.Context, id tidemark.ChatID, atLeast uint64, anyAge bool,
) (*Roster, error) {
	if e := c.lookup(id); e != nil {
		if r := e.roster.Load(); r != nil && r.Version >= atLeast && (anyAge || c.trusts(r.read)) {
			return r, nil
		}
	}
	return c.Current(ctx, id)
}

// Current returns the members of a chat as they are stored now. Errors: NotFound.
func (c *Cache) Current(ctx context.Context, id tidemark.ChatID) (*Roster, error) {
	all, err := c.read(ctx, []tidemark.ChatID{id})
	if err == nil && all[0] == nil {
		err = notFound(id)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Rosters returns the members of several chats, and nil for a chat that does not exist. It reads
// storage once for all chats that are not cached.
func (c *Cache) Rosters(ctx context.Context, ids []tidemark.ChatID) ([]*Roster, error) {
	all := make([]*Roster, len(ids))
	var missing []tidemark.ChatID
	var at []int
	for i, id := range ids {
		all[i] = c.remembered(id)
		if all[i] == nil {
			missing, at = append(missing, id), append(at, i)
		}
	}
	read, err := c.read(ctx, missing)
	if err != nil {
		return nil, err
	}
	for i, r := range read {
		all[at[i]] = r
	}
	return all, nil
}

// Member returns the membership of a user in a chat, and the chat's roster. If the cached roster
// does not have the user, Member reads storage. Errors: NotFound (no such chat), NotMember.
func (c *Cache) Member(
	ctx context.Context, user tidemark.UserID, id tidemark.ChatID,
) (*Roster, tidemark.Member, error) {
	return c.member(ctx, user, id, false)
}

// member is Member with the choice to use memory at any age.
func (c *Cache) member(
	ctx context.Context, user tidemark.UserID, id tidemark.ChatID, anyAge bool,
) (*Roster, tidemark.Member, error) {
	r, err := c.roster(ctx, id, 0, anyAge)
	if err != nil {
		return nil, tidemark.Member{}, err
	}
	m, ok := r.Member(user)
	if !ok {
		//rule:nothing_outside_membership.ask-storage-before-refusing
		if r, err = c.Roster(ctx, id, r.Version+1); err != nil {
			return nil, tidemark.Member{}, err
		}
		if m, ok = r.Member(user); !ok {
			return nil, tidemark.Member{}, notMember(user, id)
		}
	}
	return r, m, nil
}

// Memberships returns for each key what Member would: nil, NotFound or NotMember. It reads storage
// at most twice: once for chats that are not cached, and once where the cached roster does not have
// the user.
func (c *Cache) Memberships(ctx context.Context, keys []storage.StateKey) ([]error, error) {
	ids := make([]tidemark.ChatID, len(keys))
	fromMemory := make([]bool, len(keys))
	for i, key := range keys {
		ids[i] = key.Chat
		fromMemory[i] = c.remembered(key.Chat) != nil
	}
	all, err := c.Rosters(ctx, ids)
	if err != nil {
		return nil, err
	}
	verdicts := make([]error, len(keys))
	var doubtful []tidemark.ChatID
	var at []int
	judge := func(i int, r *Roster) {
		verdicts[i] = nil
		if r == nil {
			verdicts[i] = notFound(ids[i])
		} else if _, ok := r.Member(keys[i].User); !ok {
			verdicts[i] = notMember(keys[i].User, ids[i])
		}
	}
	for i, r := range all {
		//rule:ack_cumulative.ask-storage-for-former-members
		if judge(i, r); verdicts[i] != nil && fromMemory[i] {
			doubtful, at = append(doubtful, ids[i]), append(at, i)
		}
	}
	again, err := c.read(ctx, doubtful)
	if err != nil {
		return nil, err
	}
	for i, r := range again {
		judge(at[i], r)
	}
	return verdicts, nil
}

// Known returns how many members a chat has by the cached roster, whatever its age. Without one it
// returns 0.
func (c *Cache) Known(id tidemark.ChatID) int {
	if e := c.lookup(id); e != nil {
		if r := e.roster.Load(); r != nil {
			return len(r.Users)
		}
	}
	return 0
}

// remembered returns the cached roster of a chat if it may be used, else nil.
func (c *Cache) remembered(id tidemark.ChatID) *Roster {
	if e := c.lookup(id); e != nil {
		if r := e.roster.Load(); r != nil && c.trusts(r.read) {
			return r
		}
	}
	return nil
}

func notMember(user tidemark.UserID, id tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotMember, "%s is not a member of chat %s", user, id)
}

func notFound(id tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotFound, "there is no chat %s", id)
}

// read reads rosters from storage and caches them. For a chat that does not exist it returns nil
// and caches nothing.
func (c *Cache) read(ctx context.Context, ids []tidemark.ChatID) ([]*Roster, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	now := time.Now()
	rosters, err := c.storage.Rosters(ctx, ids)
	if err != nil {
		return nil, err
	}
	all := make([]*Roster, len(ids))
	for i, roster := range rosters {
		if roster == nil {
			continue
		}
		r := &Roster{Roster: roster, Users: make([]tidemark.UserID, len(roster.Members)), read: now}
		for j, m := range roster.Members {
			r.Users[j] = m.UserID
		}
		all[i] = c.Chat(ids[i]).remember(r)
	}
	c.makeRoom()
	return all, nil
}

// remember keeps the newer of two rosters and returns it. It does not keep one from before a
// version that is known to exist: the read of it began before the change.
func (e *Entry) remember(r *Roster) *Roster {
	for {
		old := e.roster.Load()
		//rule:nothing_outside_membership.keep-newer-roster
		if old != nil &&
			(old.Version > r.Version || old.Version == r.Version && old.read.After(r.read)) {
			return old
		}
		if !e.replace(old, r) {
			continue
		}
		//rule:deleted_is_gone.keep-no-roster-from-before
		if r.Version < e.floor.Load() {
			e.replace(r, nil)
		}
		e.mu.Lock()
		gone := e.gone
		e.mu.Unlock()
		if gone {
			e.drop()
		}
		return r
	}
}

// replace puts a roster, or nil, in the place of old. It returns false if old is not there.
func (e *Entry) replace(old, r *Roster) bool {
	if !e.roster.CompareAndSwap(old, r) {
		return false
	}
	e.rosterBytes.Add(r.size() - old.size())
	return true
}

// drop drops the roster.
func (e *Entry) drop() { e.rosterBytes.Add(-e.roster.Swap(nil).size()) }

// Invalidate records that a membership version exists, and drops an older roster.
func (e *Entry) Invalidate(version uint64) {
	for {
		old := e.floor.Load()
		if old >= version || e.floor.CompareAndSwap(old, version) {
			break
		}
	}
	for {
		old := e.roster.Load()
		//rule:nothing_outside_membership.drop-outdated-roster
		if old == nil || old.Version >= version || e.replace(old, nil) {
			return
		}
	}
}

// MayKnow reports whether a user who was a member at a version still is, by the cached roster.
// certain is false if a newer version is known to exist but is not cached.
func (e *Entry) MayKnow(user tidemark.UserID, version uint64) (member, certain bool) {
	r := e.roster.Load()
	if r != nil && r.Version > version {
		_, member = r.Member(user)
		return member, true
	}
	return true, e.floor.Load() <= version
}

// Forget drops all rosters and messages, because changes of them may have been lost.
func (c *Cache) Forget() {
	//rule:R_WIPE.forget-after-epoch-change
	c.distrust()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, e := range c.chats {
		e.drop()
		e.mu.Lock() // a tail of an earlier term is not served; it only takes memory
		c.bytes.Add(int64(e.tail.forget()))
		e.mu.Unlock()
	}
}

// ForgetRoster drops the roster of a chat, because it may have changed to an unknown version.
func (c *Cache) ForgetRoster(id tidemark.ChatID) {
	if e := c.lookup(id); e != nil {
		e.drop()
	}
}
