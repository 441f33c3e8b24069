package pusher

import (
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// delay is the wait before a user without a session is notified of a message. onlineDelay is
	// that of a user with a session, who may read the message there.
	delay       = 3 * time.Second
	onlineDelay = 10 * time.Second
)

// step says what to do for a device now, of a message that the user has not read.
//
//	the user has              the device has            until       then
//	no session                -                         delay       tell
//	a session                 none                      10 s        tell
//	a session                 one, which acknowledged   10 s+Resume skip, or tell if it has ended
//	a session                 one, which does not       10 s        tell
//
// A device whose session has acknowledged shows the message itself. The session of a device that
// has just gone away stays for a while, so such a device is waited for.
type step int

const (
	skip step = iota
	hold
	tell
)

// due says what to do for a device, and when to ask again.
func (one *person) due(
	device tidemark.DeviceID, now time.Time, resume time.Duration,
) (do step, after time.Duration) {
	age := now.Sub(one.since)
	until := func(t time.Duration, then step) (step, time.Duration) {
		if age < t {
			return hold, t - age
		}
		return then, 0
	}
	connected := false
	for _, online := range one.online {
		connected = connected || online == device
	}
	switch {
	case len(one.online) == 0:
		return until(delay, tell)
	case !connected || one.state.Acked < one.message.Sequence:
		return until(onlineDelay, tell)
	}
	return until(onlineDelay+resume, skip)
}
