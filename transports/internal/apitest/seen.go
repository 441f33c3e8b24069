package apitest

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
)

// seen records what went over the wire: "<operationId> <status>", "<transport> event <type>",
// "frame <type>" and "reply <type>".
type seen struct {
	mu   sync.Mutex
	what map[string]bool
}

func (s *seen) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what == nil {
		s.what = make(map[string]bool)
	}
	s.what[what] = true
}

func (s *seen) has(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.what[what]
}

// Complete fails the test unless this Contract has seen all of openapi.yaml. That is each operation
// with each listed status, each event type over each transport, each frame of a client and each
// reply.
func (c *Contract) Complete(t testing.TB) {
	t.Helper()
	var want []string
	for _, call := range c.Calls() {
		for status := range call.Responses.Map() {
			want = append(want, call.OperationID+" "+status)
		}
	}
	for _, kind := range c.types("Event") {
		for _, transport := range []string{"websocket", "sse", "longpoll"} {
			if kind == "problem" && transport == "longpoll" {
				continue // a long-poll answers errors with statuses
			}
			want = append(want, transport+" event "+kind)
		}
	}
	for _, kind := range c.types("ClientFrame") {
		want = append(want, "frame "+kind)
	}
	for _, kind := range c.types("ReplyFrame") {
		want = append(want, "reply "+kind)
	}
	slices.Sort(want)
	for _, what := range want {
		if !c.seen.has(what) {
			t.Errorf("openapi.yaml has %q, but no test has seen it", what)
		}
	}
	if len(want) < 100 {
		t.Errorf("only %d entries were expected; is the contract complete?", len(want))
	}
}

// types returns the values of `type` in the alternatives of a schema.
func (c *Contract) types(schema string) []string {
	var all []string
	for _, one := range c.doc.Components.Schemas[schema].Value.OneOf {
		all = append(all, one.Value.Properties["type"].Value.Enum[0].(string))
	}
	return all
}

// polled records the events of a long-poll answer.
func (c *Contract) polled(body []byte) {
	var page struct{ Events []struct{ Type string } }
	if json.Unmarshal(body, &page) != nil {
		return
	}
	for _, event := range page.Events {
		c.seen.add("longpoll event " + event.Type)
	}
}

// Event fails the test unless a frame of the server is an event or a reply of the contract.
// transport is "websocket" or "sse".
func (c *Contract) Event(t testing.TB, transport string, raw []byte) {
	t.Helper()
	var frame struct{ Type string }
	_ = json.Unmarshal(raw, &frame) // if this fails, no schema fits either
	switch {
	case transport == "websocket" && slices.Contains(c.types("ReplyFrame"), frame.Type):
		c.Schema(t, "ReplyFrame", raw)
		c.seen.add("reply " + frame.Type)
		if frame.Type == "problem" {
			c.seen.add("websocket event problem")
		}
	default:
		c.Schema(t, "Event", raw)
		c.seen.add(transport + " event " + frame.Type)
	}
	if strings.Contains(string(raw), "\n") {
		t.Errorf("%s: a frame of several lines: %s", transport, raw)
	}
}
