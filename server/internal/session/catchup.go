package session

// catchUp decides when `caught_up` is sent, which tells the client that it has everything.
//
//	state             backlog empty, complete   position unknown   seek       new connection
//	catching          caughtUp                  awaitingCursors    catching   catching
//	caughtUp          -                         awaitingCursors    catching   catching
//	awaitingCursors   -                         awaitingCursors    catching   awaitingCursors
//
// The messages that were known before `caught_up` precede it (delivery.md §3).
type catchUp struct {
	state catchUpState
	// backlog is the number of chats that must be served before `caught_up`.
	backlog int
}

type catchUpState uint8

const (
	catching        catchUpState = iota
	caughtUp                     // `caught_up` was sent
	awaitingCursors              // the client's positions are unknown until it gives its cursors
)

// restart makes `caught_up` due again.
func (c *catchUp) restart() {
	if c.state == caughtUp {
		c.state = catching
	}
}

// expect makes `caught_up` wait until the chat is served up to its present head.
func (c *catchUp) expect(p *progress) {
	if !p.inBacklog {
		p.inBacklog = true
		c.backlog++
	}
	p.backlogTo = max(p.backlogTo, p.last())
}

// served removes a chat from the backlog if it is served far enough.
func (c *catchUp) served(p *progress) {
	if p.inBacklog && !p.openEnded && p.next > p.backlogTo {
		p.inBacklog = false
		c.backlog--
	}
}

// due reports whether `caught_up` has to be sent now.
func (c *catchUp) due(complete bool) bool {
	//rule:resume_lossless.comparison-before-caught-up
	return c.state == catching && c.backlog == 0 && complete
}
