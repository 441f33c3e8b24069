package session

// catchUp says whether the client has been told that it has everything (`caught_up`).
//
//	state             backlog empty, complete   position unknown   seek       new connection
//	catching          caughtUp                  awaitingCursors    catching   catching
//	caughtUp          -                         awaitingCursors    catching   catching
//	awaitingCursors   -                         awaitingCursors    catching   awaitingCursors
//
// `caught_up` never precedes what was found before it (delivery.md §3).
type catchUp struct {
	state catchUpState
	// backlog counts the chats that must be served before `caught_up`.
	backlog int
}

type catchUpState uint8

const (
	catching        catchUpState = iota
	caughtUp                     // `caught_up` was sent
	awaitingCursors              // what the client has is unknown until it gives its cursors
)

// restart says that `caught_up` has to be sent again.
func (c *catchUp) restart() {
	if c.state == caughtUp {
		c.state = catching
	}
}

// expect makes `caught_up` wait until the session has sent what it knows of a chat.
func (c *catchUp) expect(p *progress) {
	if !p.inBacklog {
		p.inBacklog = true
		c.backlog++
	}
	p.backlogTo = max(p.backlogTo, p.head)
}

// served takes a chat out of the backlog, if enough of it was sent.
func (c *catchUp) served(p *progress) {
	if p.inBacklog && !p.openEnded && p.next > p.backlogTo {
		p.inBacklog = false
		c.backlog--
	}
}

// due reports whether `caught_up` is to be sent now.
func (c *catchUp) due(complete bool) bool {
	//rule:resume_lossless.comparison-before-caught-up
	return c.state == catching && c.backlog == 0 && complete
}
