// Package survey asks all nodes for their figures, because an operator wants to see them
// (docs/internals/nodes.md, Surveys). It does not read the figures: they are a text that the caller
// makes and reads. Nothing runs while nobody asks.
package survey

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/leases"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// Within is how long the other nodes may take to answer.
	Within = 750 * time.Millisecond
	// maxWaiting is how many questions of other nodes may wait for an answer. Further ones are
	// dropped.
	maxWaiting = 16
)

// errSilent says why a node has no figures.
var errSilent = tidemark.Errorf(tidemark.Unavailable,
	"the node did not answer within %s: it has stopped, is overloaded, or has an older version",
	Within)

// Config has what Surveys need. All fields are required.
type Config struct {
	Node   registry.Node
	Leases *leases.Leases
	Bus    bus.Bus
}

// Surveys asks the other nodes, and has their questions. It is safe for concurrent use.
type Surveys struct {
	cfg Config
	// waiting has the questions of other nodes.
	waiting chan bus.Survey

	mu sync.Mutex
	// open has where the Reports to each question of this node go.
	open map[string]chan<- bus.Report
}

// New returns Surveys. It starts no goroutines.
func New(cfg Config) *Surveys {
	//rule:bounded_use.drop-surveys-beyond-the-queue
	return &Surveys{
		cfg: cfg, waiting: make(chan bus.Survey, maxWaiting),
		open: make(map[string]chan<- bus.Report),
	}
}

// Answer is what a node answered. Figures is nil if Err is set.
type Answer struct {
	Node    registry.Node
	Figures []byte
	Err     error
}

// Ask returns an answer for each node that has a lease, ordered by id. own has the figures of this
// node. A node that does not answer within Within has an error, and is never left out.
func (s *Surveys) Ask(ctx context.Context, own []byte) []Answer {
	answers := s.nodes(own)
	if len(answers) == 1 {
		return answers
	}
	//rule:stats_of_all_nodes.wait-for-a-bounded-time
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	reports := make(chan bus.Report, len(answers))
	id := rand.Text()
	s.begin(id, reports)
	defer s.end(id)
	place := make(map[registry.Node]int, len(answers))
	var publications []bus.Publication
	for i, answer := range answers {
		if answer.Err != nil {
			place[answer.Node] = i
			publications = append(publications, bus.Publication{
				Node:  answer.Node,
				Event: bus.Event{Survey: &bus.Survey{ID: id, From: s.cfg.Node}},
			})
		}
	}
	left := len(publications)
	for i, err := range s.cfg.Bus.Publish(ctx, publications) {
		if err != nil {
			//rule:stats_of_all_nodes.say-why-a-node-is-silent
			answers[place[publications[i].Node]].Err = err
			left--
		}
	}
	for left > 0 {
		select {
		case r := <-reports:
			i, asked := place[r.Node]
			if asked {
				answers[i] = Answer{Node: r.Node, Figures: r.Figures}
				delete(place, r.Node) // a bus may double a publication
				left--
			}
		case <-ctx.Done():
			return answers
		}
	}
	return answers
}

// nodes returns the answers before anybody has answered.
func (s *Surveys) nodes(own []byte) []Answer {
	answers := []Answer{{Node: s.cfg.Node, Figures: own}}
	for _, node := range s.cfg.Leases.Nodes() {
		if node != s.cfg.Node {
			//rule:stats_of_all_nodes.list-silent-nodes
			answers = append(answers, Answer{Node: node, Err: errSilent})
		}
	}
	slices.SortFunc(answers, func(a, b Answer) int {
		return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), cmp.Compare(a.Node.Boot, b.Node.Boot))
	})
	return answers
}

func (s *Surveys) begin(id string, reports chan<- bus.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = reports
}

func (s *Surveys) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// Receive takes a question or an answer of another node. It does not block: what there is no room
// for is dropped.
func (s *Surveys) Receive(e bus.Event) {
	if e.Survey != nil {
		select {
		case s.waiting <- *e.Survey:
		default:
		}
		return
	}
	s.mu.Lock()
	reports := s.open[e.Report.ID]
	s.mu.Unlock()
	select {
	case reports <- *e.Report: // of a question that has ended, reports is nil
	default:
	}
}

// Next returns the next question of another node. It waits for one until ctx ends, and then returns
// its error.
func (s *Surveys) Next(ctx context.Context) (bus.Survey, error) {
	select {
	case q := <-s.waiting:
		return q, nil
	case <-ctx.Done():
		return bus.Survey{}, ctx.Err()
	}
}

// Answer answers a question. A failure needs no second try: the operator's next question comes in a
// second.
func (s *Surveys) Answer(ctx context.Context, q bus.Survey, figures []byte) error {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	report := &bus.Report{ID: q.ID, Node: s.cfg.Node, Figures: figures}
	return bus.PublishOne(ctx, s.cfg.Bus, q.From, bus.Event{Report: report})
}
