package client

import (
	"slices"
	"time"
)

// phase says where the connection of a Run is.
type phase int

// The phases.
const (
	// opening: an attempt is under way, or a pause before it.
	opening phase = iota
	// probing: as opening, over a better transport than the last one that worked.
	probing
	// open: the stream has sent its session.
	open
)

const (
	// minute is how long a stream has to live before the pauses start over.
	minute = time.Minute
	// A better transport is probed after firstProbe, then after four times as long, at most
	// mostProbe.
	firstProbe = time.Minute
	mostProbe  = time.Hour
	// abandonedLife is how long an abandoned attempt may still take the session over.
	abandonedLife = 2 * time.Minute
	// mostSilences is after how many silent deaths in a row another transport is tried.
	mostSilences = 2
)

// refusalPauses are the pauses after fresh tokens that the server refused. After them Run ends.
var refusalPauses = []time.Duration{5 * time.Second, 30 * time.Second}

// connection decides over which transport a Run connects, and when. It does no I/O, and its clock
// is an argument.
//
//	phase    on                                  then
//	opening  session                             open
//	         blocked, or lost twice, though the  opening over the next transport, at once
//	         server answers another call
//	         anything else                       opening over the same one, after a pause
//	probing  session                             open: the better transport is kept
//	         anything else                       opening over the last one that worked, at once
//	open     silent, for the second time         opening over the next transport
//	         moved                               opening or probing, at once
//	         cut, busy, gone                     opening, after a pause
//	any      replaced, after an abandoned attempt  opening with a new session
//	         replaced, refused                   Run ends
//	         a third fresh token refused         Run ends
type connection struct {
	phase phase
	// transports are those to try, the best first. at is the one in use, worked the one to go back
	// to when a probe fails.
	transports []Transport
	at, worked int
	// failures counts attempts since the last stream that lived for a minute.
	failures int
	// silences counts silent deaths in a row, refusals refused tokens, losses sessions that were
	// gone.
	silences, refusals, losses int
	// opened is when the stream opened.
	opened time.Time
	// probe is when a better transport is tried, every the time between two probes.
	probe time.Time
	every time.Duration
	// abandoned are the times of attempts that were given up, and of those that net/http repeated.
	// The server may still serve one, and then replaces the session's present connection.
	abandoned []time.Time
}

// next is what a connection does after it ended.
type next struct {
	// within bounds a random pause. exactly is a pause that the server asked for.
	within, exactly time.Duration
	// fresh says that the session is forgotten.
	fresh bool
	// check says that the server has to answer a call, and then the next transport is tried.
	check bool
	// over says that Run ends.
	over bool
}

// begin returns the transport of the next attempt.
func (c *connection) begin(now time.Time) Transport {
	c.phase = opening
	if c.at > 0 && !c.probe.IsZero() && !now.Before(c.probe) {
		c.phase, c.worked, c.at = probing, c.at, 0
	}
	return c.transports[c.at]
}

// sessionCame notes that the stream is open.
func (c *connection) sessionCame(now time.Time) {
	if c.phase == probing || c.at == 0 {
		c.probe, c.every = time.Time{}, 0
	}
	c.phase, c.opened, c.refusals, c.losses = open, now, 0, 0
}

// moveDue returns when the connection should move to probe a better transport, or zero.
func (c *connection) moveDue() time.Time {
	if c.at == 0 {
		return time.Time{}
	}
	return c.probe
}

// descend goes to the next transport.
func (c *connection) descend(now time.Time) {
	if c.at+1 < len(c.transports) {
		c.at++
	}
	c.every = max(c.every, firstProbe)
	c.probe = now.Add(c.every)
}

// ended notes that an attempt or a stream ended, and decides what follows.
func (c *connection) ended(f *failure, now time.Time) next {
	was := c.phase
	c.phase = opening
	// Each poll takes the session anew, so an abandoned one may be served late, too.
	attempt := was != open || c.transports[c.at] == LongPoll
	if attempt && f.ending != replaced && f.ending != gone && f.ending != refused &&
		f.ending != unauthenticated && f.after == 0 {
		c.abandoned = append(c.abandoned, now)
	}
	if was == open {
		if now.Sub(c.opened) >= minute {
			c.failures = 0
		}
		//rule:client_never_stuck.two-silences-demote
		if f.ending != silent {
			c.silences = 0
		} else if c.silences++; c.silences >= mostSilences {
			c.silences = 0
			c.descend(now)
			return next{}
		}
	}
	switch f.ending {
	case replaced:
		return c.replaced(now)
	case refused:
		return next{over: true}
	case unauthenticated:
		c.refusals++
		if c.refusals > len(refusalPauses)+1 {
			return next{over: true}
		}
		if c.refusals == 1 {
			return next{} // a new token, at once
		}
		return next{exactly: refusalPauses[c.refusals-2]}
	case moved:
		return next{}
	case gone:
		//rule:client_never_stuck.second-loss-backs-off
		if c.losses++; c.losses == 1 {
			return next{fresh: true}
		}
		n := c.backOff(f)
		n.fresh = true
		return n
	}
	if was == probing {
		c.every = min(max(c.every, firstProbe)*4, mostProbe)
		c.at, c.probe = c.worked, now.Add(c.every)
		if f.ending != busy {
			return next{}
		}
		return c.backOff(f)
	}
	n := c.backOff(f)
	n.check = was == opening && c.at+1 < len(c.transports) &&
		(f.ending == blocked || f.ending == lost && c.failures > 1)
	return n
}

// backOff returns a pause: the hint of the server, or a random one that grows.
func (c *connection) backOff(f *failure) next {
	if f.after > 0 {
		return next{exactly: f.after}
	}
	c.failures++
	return next{within: pauseBound(c.failures - 1)}
}

// replaced decides after REPLACED. An abandoned attempt of our own explains it once. Otherwise
// another client has the device, and coming back would replace that one in turn, for ever.
func (c *connection) replaced(now time.Time) next {
	c.abandoned = slices.DeleteFunc(c.abandoned, func(at time.Time) bool {
		return now.Sub(at) > abandonedLife
	})
	if len(c.abandoned) == 0 {
		return next{over: true}
	}
	//rule:client_stays_replaced.own-ghost-explains-once
	c.abandoned = c.abandoned[1:]
	c.failures++
	return next{within: pauseBound(c.failures - 1), fresh: true}
}
