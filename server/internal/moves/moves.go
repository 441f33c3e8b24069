// Package moves is what nodes ask each other about sessions that move: questions and their answers, and who was given a session a moment ago. It does no I/O but
// the publication of a question.
package moves

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// maxAsked bounds the questions of other nodes that wait for an answer, maxGiven the sessions of which it is remembered who has them now.
	maxAsked = 4_096
	maxGiven = 16_384
	// maxSteps is how often one is followed that has moved on.
	maxSteps = 3
)

// Moves is safe for concurrent use. Use New.
type Moves struct {
	bus  bus.Bus
	self registry.Node
	// asked are the questions of other nodes.
	asked chan *bus.Claim

	mu sync.Mutex
	// open has a channel for each question of this node that waits for its answer.
	open map[string]chan *bus.Claimed
	// given is who has a session that was here; order is that of giving.
	given map[tidemark.SessionID]registry.Node
	order []tidemark.SessionID
}

// New returns the moves of a node.
func New(b bus.Bus, self registry.Node) *Moves {
	return &Moves{
		bus: b, self: self, asked: make(chan *bus.Claim, maxAsked),
		open: make(map[string]chan *bus.Claimed), given: make(map[tidemark.SessionID]registry.Node),
	}
}

// Followed is where a question has led: to State, if that is not nil. At is the node that had the last word, or did not answer; Stays says that it keeps the session.
type Followed struct {
	State []byte
	At    registry.Node
	Stays bool
}

// Follow asks a node about a session, and whoever it says has it now, until ctx ends.
func (m *Moves) Follow(ctx context.Context, of registry.Node, question bus.Claim) Followed {
	for range maxSteps {
		answer := m.ask(ctx, of, question)
		switch {
		case answer == nil:
			return Followed{At: of}
		case answer.State != nil || answer.Moved == nil || *answer.Moved == m.self:
			return Followed{At: of, State: answer.State}
		case *answer.Moved == of:
			return Followed{At: of, Stays: true}
		}
		of = *answer.Moved
	}
	return Followed{At: of}
}

// ask asks a node and waits for its answer; nil if there is none before ctx ends. The question's ID and From are set here.
func (m *Moves) ask(ctx context.Context, of registry.Node, question bus.Claim) *bus.Claimed {
	question.ID, question.From = rand.Text(), m.self
	answer := make(chan *bus.Claimed, 1)
	m.mu.Lock()
	m.open[question.ID] = answer
	m.mu.Unlock()
	if err := bus.PublishOne(ctx, m.bus, of, bus.Event{Claim: &question}); err == nil {
		select {
		case a := <-answer:
			return a
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	delete(m.open, question.ID)
	m.mu.Unlock()
	select {
	case a := <-answer: // at the last moment
		return a
	default:
		return nil
	}
}

// Receive takes another node's question, unless too many wait: the other node does not wait for ever. It does not block.
func (m *Moves) Receive(c *bus.Claim) {
	select {
	case m.asked <- c:
	default:
	}
}

// Answered takes the answer to a question of this node, and reports whether it still waits for it.
func (m *Moves) Answered(c *bus.Claimed) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer := m.open[c.ID]
	if answer == nil {
		return false
	}
	delete(m.open, c.ID)
	answer <- c
	return true
}

// Loop answers the questions of other nodes, one after the other, until ctx ends: nil is no answer. lost is called with the State of one that may not have been published.
func (m *Moves) Loop(ctx context.Context, answer func(context.Context, *bus.Claim) *bus.Claimed, lost func(state []byte)) {
	for {
		select {
		case c := <-m.asked:
			if a := answer(ctx, c); a != nil {
				a.ID = c.ID
				if err := bus.PublishOne(ctx, m.bus, c.From, bus.Event{Claimed: a}); err != nil {
					//rule:R_WAKESET.mark-unpublished-answer
					lost(a.State)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// Gave remembers who has a session now.
func (m *Moves) Gave(id tidemark.SessionID, to registry.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.given[id]; !there {
		m.order = append(m.order, id)
	}
	m.given[id] = to
	if len(m.order) > maxGiven { // forget an eighth at once
		for _, old := range m.order[:maxGiven/8] {
			delete(m.given, old)
		}
		m.order = append(m.order[:0], m.order[maxGiven/8:]...)
	}
}

// Who returns who was given a session, nil if that is not known.
func (m *Moves) Who(id tidemark.SessionID) *registry.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to, there := m.given[id]; there {
		return &to
	}
	return nil
}
