package pusher

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
)

const (
	// maxUsers is the number of users whose banners a process remembers. It forgets the least
	// recently notified ones first. Their banners stay until a later one replaces them.
	maxUsers = 20_000
	// maxBanners is how many chats are remembered of a device.
	maxBanners = 16
)

// memory is what the devices of users show, as far as this process knows. What is lost of it costs
// a banner that stays too long, and nothing else.
type memory struct {
	mu    sync.Mutex
	users map[tidemark.UserID]*list.Element // of *notified
	// lately has the users, the one who was notified last in front.
	lately list.List
}

// notified is a user whose devices were notified.
type notified struct {
	user    tidemark.UserID
	devices map[tidemark.DeviceID]*screen
}

// screen is what a device shows.
type screen struct {
	// registration is that of the device, or 0 if only other processes have notified it.
	registration uint64
	// shown are chats of which the device has a banner or a number, the latest at the end.
	shown []shown
	// unconfirmed is how many banners were sent since the device gave a sign of life.
	unconfirmed int
	// cleared is when the device was lately sent a push.Clear.
	cleared []time.Time
	// clears are for the next banner.
	clears []push.Cleared
}

// shown is a chat on a screen.
type shown struct {
	chat tidemark.ChatID
	// through is the last message of which the device was told.
	through tidemark.Sequence
	// banner reports that there is a banner, and not only a number.
	banner bool
}

// find returns the screen of a device, or nil if there is none. The caller holds the lock.
func (m *memory) find(at receiver) *screen {
	if e := m.users[at.user]; e != nil {
		return e.Value.(*notified).devices[at.device]
	}
	return nil
}

// of returns the screen of a device that is notified now. The caller holds the lock.
func (m *memory) of(at receiver) *screen {
	e := m.users[at.user]
	if e == nil {
		if m.users == nil {
			m.users = map[tidemark.UserID]*list.Element{}
		}
		if len(m.users) >= maxUsers {
			delete(m.users, m.lately.Remove(m.lately.Back()).(*notified).user)
		}
		e = m.lately.PushFront(&notified{at.user, map[tidemark.DeviceID]*screen{}})
		m.users[at.user] = e
	}
	m.lately.MoveToFront(e)
	n := e.Value.(*notified)
	s := n.devices[at.device]
	if s == nil {
		if len(n.devices) >= devices.MaxDevices {
			clear(n.devices) // Most of them are registered no more.
		}
		s = &screen{}
		n.devices[at.device] = s
	}
	return s
}

// unconfirmed returns how many banners were sent to a device since its last sign of life.
func (m *memory) unconfirmed(at receiver, registration uint64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(at)
	if s == nil || s.registration != 0 && s.registration != registration {
		return 0
	}
	return s.unconfirmed
}

// seen notes a sign of life of a device: what was sent before has arrived, or is dropped.
func (m *memory) seen(at receiver) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.find(at); s != nil {
		s.unconfirmed = 0
	}
}

// elsewhere notes that another process has sent a banner to a device.
func (m *memory) elsewhere(at receiver) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(at).unconfirmed++
}

// note notes a notification that is about to be sent of a chat. It returns what else the device is
// to clear, if that is a banner.
func (m *memory) note(at receiver, registration uint64, n *push.Notification, chat shown) (
	clears []push.Cleared,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of(at)
	if s.registration != registration {
		if s.registration != 0 {
			*s = screen{}
		}
		s.registration = registration
	}
	s.shown = slices.DeleteFunc(s.shown, func(other shown) bool { return other.chat == chat.chat })
	if len(s.shown) >= maxBanners {
		s.shown = slices.Delete(s.shown, 0, 1)
	}
	s.shown = append(s.shown, chat)
	if n.Kind.Silent() {
		return nil
	}
	s.unconfirmed++
	clears, s.clears = s.clears, nil
	return slices.DeleteFunc(clears, func(c push.Cleared) bool { return c.Name == n.Name })
}

// shows reports whether a device of a user was told of a chat.
func (m *memory) shows(p pair) bool {
	return m.any(p, func(shown) bool { return true })
}

// showsAfter reports whether a device was notified of a message after the one that was read.
func (m *memory) showsAfter(p pair, read tidemark.Sequence) bool {
	return m.any(p, func(c shown) bool { return c.through > read })
}

func (m *memory) any(p pair, is func(shown) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.users[p.user]
	if e == nil {
		return false
	}
	for _, s := range e.Value.(*notified).devices {
		if slices.ContainsFunc(s.shown, func(c shown) bool { return c.chat == p.chat && is(c) }) {
			return true
		}
	}
	return false
}

// take returns what a device shows of chats up to the messages that are read, and forgets it.
func (m *memory) take(
	at receiver, registration uint64, read map[tidemark.ChatID]tidemark.Sequence,
) (gone []shown) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(at)
	if s == nil || s.registration != registration {
		return nil
	}
	s.shown = slices.DeleteFunc(s.shown, func(c shown) bool {
		to, any := read[c.chat]
		//rule:clear_hides_no_unread.only-what-was-read
		any = any && c.through <= to
		if any {
			gone = append(gone, c)
		}
		return any
	})
	return gone
}

// clear decides how a device learns that a banner was read. It returns the kinds of notifications
// to send, as habit says. Without a push.Clear, the next banner says it.
func (m *memory) clear(
	at receiver, c push.Cleared, room bool, habit func([]time.Time, time.Time) []push.Kind,
) (kinds []push.Kind) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.find(at)
	if s == nil {
		return nil
	}
	if habit != nil && room {
		s.cleared = slices.DeleteFunc(s.cleared, func(t time.Time) bool {
			return now.Sub(t) > time.Hour
		})
		kinds = habit(s.cleared, now)
	}
	if slices.Contains(kinds, push.Clear) {
		if s.cleared = append(s.cleared, now); len(s.cleared) > maxBanners {
			s.cleared = s.cleared[1:]
		}
		return kinds
	}
	s.clears = slices.DeleteFunc(s.clears, func(other push.Cleared) bool {
		return other.Name == c.Name
	})
	if len(s.clears) >= push.MaxClears {
		s.clears = s.clears[1:]
	}
	s.clears = append(s.clears, c)
	return kinds
}
