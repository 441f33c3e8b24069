package transports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// Edits, reactions and control messages have a rate of their own, which the transports share.
// Messages do not count against it.
func TestSend_what_nobody_is_shown_has_a_rate_of_its_own(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		Limit: limit.New(limit.Config{
			User: limit.Rates{Silent: limit.Rate{PerSecond: 0.001, Burst: 3}},
		}),
	})
	chat := s.Group("ann", "bob")
	post := func(status int, key, more string) {
		t.Helper()
		exchange{
			who: "ann", method: "POST", path: fmt.Sprintf("/chats/%s/messages", chat),
			body: fmt.Sprintf(`{"client_message_id":%q,%s}`, key, more), status: status,
		}.try(t, s)
	}
	c := transporttest.DialWebSocket(t, s, nil, "ann")
	write := func(key, more, want string) {
		t.Helper()
		c.Write(fmt.Sprintf(`{"type":"send_message","request_id":%q,"payload":{"chat_id":%q,`+
			`"client_message_id":%q,%s}}`, key, chat, key, more))
		for ctx := wait.Context(t); ; {
			ev, err := c.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ev.RequestID != key {
				continue
			}
			if !strings.Contains(string(ev.Type)+string(ev.Payload), want) {
				t.Errorf("%s is answered by %s %s, want %s", key, ev.Type, ev.Payload, want)
			}
			return
		}
	}
	const (
		message = `"content":"hello"`
		control = `"kind":"control","content":"ring"`
		edit    = `"kind":"edit","relation":{"sequence":1},"content":"hi"`
	)
	post(201, "m1", message)
	post(201, "c1", control)
	post(201, "e1", edit)
	write("c2", control, "send_message_ack")
	write("e2", edit, "RATE_LIMITED")
	post(429, "c3", control)
	post(429, "r1", `"kind":"react","relation":{"sequence":1,"emoji":"👍"}`)
	post(201, "m2", message)
	write("m3", message, "send_message_ack")
}
