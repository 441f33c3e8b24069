package queue

import "time"

// breakerState says whether a lane may send.
//
//	state     succeeded   failed                          unasked   began, once the wait is over
//	closed    closed      closed; open after 5 in a row   closed    closed
//	open      open        open, and waits no shorter      open      probing
//	probing   closed      open, for twice as long         open      (one probe is under way)
type breakerState string

const (
	breakerClosed  breakerState = "closed"
	breakerOpen    breakerState = "open"
	breakerProbing breakerState = "probing"
)

const (
	// failuresToOpen is how many failures in a row open a breaker.
	failuresToOpen = 5
	// firstPause is how long a breaker is open at first. Each failed probe doubles it, up to
	// longestPause. A provider that demands a longer wait gets it, up to longestTold: what it says
	// about one target may not concern the next. The notification itself waits for as long as told.
	firstPause   = time.Second
	longestPause = time.Minute
	longestTold  = 5 * time.Minute
)

// breaker stops the requests of one lane while its provider fails. The zero value is closed.
type breaker struct {
	state    breakerState
	failures int
	// pause is how long it was open last, and until when it is open.
	pause time.Duration
	until time.Time
}

// allows reports whether a request may begin.
func (b *breaker) allows(now time.Time) bool {
	switch b.state {
	case breakerOpen:
		//rule:push_waits_as_told.open-until-then
		return !now.Before(b.until)
	case breakerProbing:
		//rule:push_queue_is_bounded.one-probe
		return false
	default:
		return true
	}
}

// began says that a request which allows has let pass begins.
func (b *breaker) began() {
	if b.state == breakerOpen {
		b.state = breakerProbing
	}
}

// succeeded says that the provider has answered. An answer to a request from before the breaker
// opened does not shorten the wait.
func (b *breaker) succeeded() {
	if b.state != breakerOpen {
		*b = breaker{state: breakerClosed}
	}
}

// failed says that the provider gave no answer, or demands a wait.
func (b *breaker) failed(now time.Time, wait time.Duration) {
	b.failures++
	wait = min(wait, longestTold)
	switch {
	case b.state == breakerOpen:
		b.until = later(b.until, now.Add(wait))
		return
	case b.state == breakerProbing, b.failures >= failuresToOpen:
		b.state = breakerOpen
		b.pause = min(max(2*b.pause, firstPause), longestPause)
		b.until = now.Add(max(wait, b.pause))
	}
}

// unasked says that a request was dropped before it was sent. The next one is the probe.
func (b *breaker) unasked() {
	if b.state == breakerProbing {
		b.state = breakerOpen
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
