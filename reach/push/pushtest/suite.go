// Package pushtest has the suite that every push.Provider passes, without a list of exceptions. A
// provider runs against a fake that speaks the real protocol over a real socket, and checks what it
// gets as strictly as the real one. The fakes are in the packages below.
package pushtest

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/queue"
	"github.com/tidemark-im/tidemark/test/wait"
)

// Scene is a provider that is connected to a fake.
type Scene struct {
	Provider push.Provider
	Server   *Server
	// Targets are registrations at the fake; the key is that of the fake's device. They registered
	// two hours ago.
	Targets []push.Target
}

// Registered is when the targets of a scene registered.
func Registered() time.Time { return time.Now().Add(-2 * time.Hour) }

// banner is a notification that uses every field.
func banner() push.Notification {
	return push.Notification{
		Kind: push.Banner, Name: "Zm9vYmFyYmF6_-Zm9vYmFyYmF6MDEyMz", Chat: "secretchat",
		From: 41, To: 42, Token: "secret-ack-token", Title: "Alice Secret",
		Body: "Lunch at the secret place? <3 & \"more\" 🍜", Badge: 7,
		Clears: []push.Cleared{{Name: "c2VjcmV0LWNsZWFy", To: 40}},
		TTL:    time.Hour, Urgency: push.High,
	}
}

// Run runs the suite. open makes a scene for one test, with at least three targets.
func Run(t *testing.T, open func(t *testing.T) Scene) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Scene){
		"arrives_as_it_was_sent":                   arrives,
		"sealed_opaque_in_every_byte":              sealedOpaque,
		"silence_is_not_kept":                      silence,
		"bounds_of_the_badge_and_the_lifetime":     bounds,
		"fits_whatever_the_length":                 fits,
		"dead_registrations_are_dropped":           dead,
		"busy_waits_as_told":                       busy,
		"GOAWAY_before_the_request_loses_nothing":  goAwayBefore,
		"GOAWAY_after_the_request_is_tried_again":  brokenThen(GoAwayAfter),
		"GOAWAY_beside_a_request_stops_no_other":   goAwayLater,
		"half_an_answer_is_tried_again":            brokenThen(Half),
		"no_answer_ends_with_the_context":          silent,
		"slow_answer_counts":                       slow,
		"no_server_is_tried_again":                 unreachable,
		"expired_credentials_are_renewed_once":     expired,
		"barred_credentials_are_not_tried_forever": barred,
		"too_large_is_refused":                     tooLarge,
		"what_is_wrong_is_not_sent":                wrong,
		"many_at_once":                             many,
		"a_queue_brings_all_through_troubles":      queued,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// send sends with a deadline that no answer but Slow comes near to.
func (s Scene) send(t *testing.T, to push.Target, n push.Notification) push.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result := s.Provider.Send(ctx, to, n)
	for _, secret := range []string{to.Address, n.Body, n.Title, n.Token} {
		if secret != "" && strings.Contains(result.Detail, secret) {
			t.Errorf("the detail %q contains the secret %q", result.Detail, secret)
		}
	}
	if result.Outcome != push.Sent && result.Detail == "" {
		t.Errorf("the result %+v has no detail", result)
	}
	return result
}

// sent sends, and demands that it is accepted. It returns what the device got.
func (s Scene) sent(t *testing.T, to push.Target, n push.Notification) Received {
	t.Helper()
	result := s.send(t, to, n)
	received := s.Server.Received()
	if result.Outcome != push.Sent || len(received) != 1 {
		t.Fatalf("the result is %+v, and %d arrived; the fake says %q", result, len(received),
			s.Server.Refusals())
	}
	return received[0]
}

// answered sends, and demands an outcome.
func (s Scene) answered(t *testing.T, trouble Trouble, want push.Outcome) push.Result {
	t.Helper()
	s.Server.Script(trouble)
	result := s.send(t, s.Targets[0], banner())
	if result.Outcome != want {
		t.Fatalf("%s: the result is %+v, want %s; the fake says %q", trouble, result, want,
			s.Server.Refusals())
	}
	return result
}

func arrives(t *testing.T, s Scene) {
	for _, kind := range []push.Kind{push.Banner, push.Summary} {
		for _, sealed := range []bool{false, true} {
			n := banner()
			n.Kind, n.Sealed = kind, sealed
			if kind == push.Summary {
				n.Chat, n.From, n.To = "", 0, 0
			}
			got := s.sent(t, s.Targets[0], n)
			if diff := cmp.Diff(n.Data(), got.Data); diff != "" {
				t.Errorf("%s, sealed %t: what arrived (-want +got):\n%s", kind, sealed, diff)
			}
			if got.TTL != n.TTL || !got.Urgent {
				t.Errorf("%s, sealed %t: the TTL is %v and it is urgent: %t; want %v, true",
					kind, sealed, got.TTL, got.Urgent, n.TTL)
			}
			n.Urgency = push.Normal
			if got := s.sent(t, s.Targets[1], n); got.Urgent {
				t.Errorf("%s, sealed %t: a normal one is urgent", kind, sealed)
			}
		}
	}
}

func sealedOpaque(t *testing.T, s Scene) {
	n := banner()
	n.Sealed = true
	n.Body += strings.Repeat("and so on ", 1_000) // what is cut is hidden, too
	// None is so short that encrypted bytes look like it by chance.
	secrets := []string{string(n.Chat), n.Token, n.Title, "the secret place", "and so on and",
		n.Clears[0].Name}
	for _, kind := range []push.Kind{push.Banner, push.Summary, push.Clear, push.Badge} {
		n.Kind = kind
		if r := s.send(t, s.Targets[0], n); r.Outcome != push.Sent && r.Outcome != push.Withheld {
			t.Fatalf("%s: the result is %+v; the fake says %q", kind, r, s.Server.Refusals())
		}
	}
	captured := s.Server.Captured()
	if len(captured) == 0 {
		t.Fatal("nothing was captured")
	}
	for _, bytes := range captured {
		text := string(bytes)
		for _, secret := range secrets {
			for _, form := range forms(secret) {
				if strings.Contains(text, form) {
					t.Errorf("the provider sees %q, as %q, in\n%s", secret, form, bytes)
				}
			}
		}
	}
	s.Server.Received()
	n.Kind, n.Sealed = push.Banner, false
	if got := s.sent(t, s.Targets[0], n); !strings.HasPrefix(got.Body, "Lunch") {
		t.Errorf("what is not sealed arrives as %q", got.Body)
	}
}

// forms returns a text as it is, in hexadecimal, and in base64 at each of its three offsets.
func forms(text string) []string {
	all := []string{text, hex.EncodeToString([]byte(text))}
	for offset := range 3 {
		shifted := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + text))
		all = append(all, shifted[2*offset:len(shifted)-2])
	}
	return all
}

func silence(t *testing.T, s Scene) {
	for _, kind := range []push.Kind{push.Badge, push.Clear} {
		n := banner()
		n.Kind = kind
		result := s.send(t, s.Targets[0], n)
		received := s.Server.Received()
		switch {
		case result.Outcome == push.Withheld && len(received) == 0:
		case result.Outcome == push.Sent && len(received) == 1:
			got := received[0]
			if got.Kind != kind || got.TTL != 0 || got.Collapse != "" {
				t.Errorf("%s arrives as %+v, want TTL 0, and that it replaces nothing", kind, got)
			}
		default:
			t.Errorf("%s: the result is %+v, and %d arrived; the fake says %q", kind, result,
				len(received), s.Server.Refusals())
		}
	}
}

func bounds(t *testing.T, s Scene) {
	for _, tc := range []struct {
		badge, wantBadge int
		ttl, wantTTL     time.Duration
	}{
		{0, 0, 0, 0},
		{-1, 0, -time.Hour, 0},
		{9_999, 9_999, push.MaxTTL, push.MaxTTL},
		{10_000, 9_999, 10 * push.MaxTTL, push.MaxTTL},
	} {
		n := banner()
		n.Badge, n.TTL = tc.badge, tc.ttl
		if got := s.sent(t, s.Targets[0], n); got.Badge != tc.wantBadge || got.TTL != tc.wantTTL {
			t.Errorf("badge %d and TTL %v arrive as %d and %v, want %d and %v", tc.badge, tc.ttl,
				got.Badge, got.TTL, tc.wantBadge, tc.wantTTL)
		}
	}
}

func fits(t *testing.T, s Scene) {
	for name, text := range map[string]string{
		"ASCII":  strings.Repeat("a", 70_000),
		"quotes": strings.Repeat(`"\`, 5_000),
		"zeros":  strings.Repeat("\x00", 4_000),
		// So a cut is within the character for one of them, wherever it is.
		"emoji":             strings.Repeat("🍜", 3_000),
		"emoji after one":   "a" + strings.Repeat("🍜", 3_000),
		"emoji after two":   "aa" + strings.Repeat("🍜", 3_000),
		"emoji after three": "aaa" + strings.Repeat("🍜", 3_000),
	} {
		for _, sealed := range []bool{false, true} {
			n := banner()
			n.Sealed, n.Body = sealed, text
			got := s.sent(t, s.Targets[0], n)
			body, cut := strings.CutSuffix(got.Body, "…")
			if !cut || !strings.HasPrefix(text, body) || !utf8.ValidString(body) {
				t.Errorf("%s, sealed %t: the body of %d bytes arrives as %d bytes that end in %q",
					name, sealed, len(text), len(body), body[max(0, len(body)-9):])
			}
			if quoted, _ := push.JSON(body); len(quoted) < 2_300 {
				t.Errorf("%s, sealed %t: only %d bytes of the text arrive", name, sealed, len(body))
			}
			if got.Token != "" || got.Title != n.Title {
				t.Errorf("%s, sealed %t: a part of a message arrives with the token %q and the "+
					"title %q", name, sealed, got.Token, got.Title)
			}
		}
	}
}

func dead(t *testing.T, s Scene) {
	for _, trouble := range []Trouble{Gone, Mistaken} {
		result := s.answered(t, trouble, push.DropTarget)
		to := s.Targets[0]
		if !result.Drops(to) {
			t.Errorf("%s: %+v does not drop a registration of %v", trouble, result, to.Registered)
		}
		to.Registered = time.Now()
		if got := result.Drops(to); got == !result.DeadSince.IsZero() {
			t.Errorf("%s: %+v drops a registration of now: %t", trouble, result, got)
		}
	}
	s.sent(t, s.Targets[1], banner())
}

func busy(t *testing.T, s Scene) {
	for trouble, least := range map[Trouble]time.Duration{
		Busy: RetryAfter, Unavailable: RetryAfter, Failed: 0,
	} {
		if result := s.answered(t, trouble, push.Retry); result.Wait < least {
			t.Errorf("%s: the wait is %v, want at least %v", trouble, result.Wait, least)
		}
		s.sent(t, s.Targets[0], banner())
	}
}

func goAwayBefore(t *testing.T, s Scene) {
	s.sent(t, s.Targets[0], banner())
	s.answered(t, GoAwayBefore, push.Sent)
	if got := len(s.Server.Received()); got != 1 {
		t.Errorf("%d arrived, want 1", got)
	}
	if _, connections := s.Server.Seen(); connections < 2 {
		t.Errorf("there was one connection, want a second one after GOAWAY")
	}
}

// goAwayLater: while a request hangs on a connection that takes no more, others get a new one.
func goAwayLater(t *testing.T, s Scene) {
	s.sent(t, s.Targets[0], banner())
	s.Server.Script(Silent, GoAwayLater)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan push.Result, 1)
	go func() { ended <- s.Provider.Send(ctx, s.Targets[0], banner()) }()
	for requests := 0; requests < 2; requests, _ = s.Server.Seen() {
		select {
		case r := <-ended:
			t.Fatalf("the request that hangs ends with %+v", r)
		case <-time.After(time.Millisecond):
		}
	}
	s.sent(t, s.Targets[1], banner())
	s.sent(t, s.Targets[2], banner())
	select {
	case r := <-ended:
		t.Errorf("the request that hangs ends with %+v", r)
	default:
	}
	if _, connections := s.Server.Seen(); connections != 2 {
		t.Errorf("there were %d connections, want the old one and a new one", connections)
	}
	cancel()
	if r := <-ended; r.Outcome != push.Retry {
		t.Errorf("the request that hung ends with %+v, want Retry", r)
	}
}

func brokenThen(trouble Trouble) func(*testing.T, Scene) {
	return func(t *testing.T, s Scene) {
		s.sent(t, s.Targets[0], banner())
		s.answered(t, trouble, push.Retry)
		s.sent(t, s.Targets[0], banner())
	}
}

func silent(t *testing.T, s Scene) {
	s.sent(t, s.Targets[0], banner()) // connects
	s.Server.Script(Silent)
	before, _ := s.Server.Seen()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan push.Result, 1)
	go func() { ended <- s.Provider.Send(ctx, s.Targets[0], banner()) }()
	// If the request arrived after the end of the context, the next one would get no answer.
	wait.Until(t, "the request has arrived", func() bool {
		now, _ := s.Server.Seen()
		return now != before
	})
	cancel()
	select {
	case result := <-ended:
		if result.Outcome != push.Retry {
			t.Errorf("the result is %+v, want Retry", result)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Send goes on after its context")
	}
	s.sent(t, s.Targets[0], banner())
}

func slow(t *testing.T, s Scene) {
	s.answered(t, Slow, push.Sent)
}

func unreachable(t *testing.T, s Scene) {
	s.sent(t, s.Targets[0], banner())
	_ = s.Server.server.Close()
	if result := s.send(t, s.Targets[0], banner()); result.Outcome != push.Retry {
		t.Errorf("the result is %+v, want Retry", result)
	}
}

func expired(t *testing.T, s Scene) {
	s.sent(t, s.Targets[0], banner())
	before, _ := s.Server.Seen()
	s.answered(t, Expired, push.Sent)
	if after, _ := s.Server.Seen(); after-before != 2 {
		t.Errorf("there were %d requests, want the one that was refused and another", after-before)
	}
	s.Server.Received()
	s.sent(t, s.Targets[1], banner()) // with the new credentials
	if after, _ := s.Server.Seen(); after-before != 3 {
		t.Errorf("the new credentials are not kept: %d requests", after-before)
	}
}

func barred(t *testing.T, s Scene) {
	s.Server.Script(Barred, Barred, Barred)
	if result := s.send(t, s.Targets[0], banner()); result.Outcome != push.Refused {
		t.Errorf("the result is %+v, want Refused", result)
	}
	if requests, _ := s.Server.Seen(); requests > 2 {
		t.Errorf("there were %d requests, want at most one repetition", requests)
	}
	s.Server.Script()
	s.sent(t, s.Targets[0], banner())
}

func tooLarge(t *testing.T, s Scene) {
	s.answered(t, TooLarge, push.Refused)
}

func wrong(t *testing.T, s Scene) {
	to, noKey, noAddress := s.Targets[0], s.Targets[0], s.Targets[0]
	noKey.Key, noAddress.Address = push.Key{}, ""
	for name, tc := range map[string]struct {
		to     push.Target
		change func(*push.Notification)
	}{
		"kind":           {to, func(n *push.Notification) { n.Kind = "other" }},
		"chat":           {to, func(n *push.Notification) { n.Chat = "a b" }},
		"range":          {to, func(n *push.Notification) { n.From = n.To + 1 }},
		"no range":       {to, func(n *push.Notification) { n.From, n.To = 0, 0 }},
		"no name":        {to, func(n *push.Notification) { n.Name = "" }},
		"long name":      {to, func(n *push.Notification) { n.Name += "x" }},
		"name":           {to, func(n *push.Notification) { n.Name = "a b" }},
		"no text":        {to, func(n *push.Notification) { n.Title, n.Body = "", "" }},
		"many to clear":  {to, func(n *push.Notification) { n.Clears = make([]push.Cleared, 17) }},
		"sealed, no key": {noKey, func(n *push.Notification) { n.Sealed = true }},
		"no address":     {noAddress, func(*push.Notification) {}},
	} {
		n := banner()
		tc.change(&n)
		if result := s.send(t, tc.to, n); result.Outcome != push.Refused {
			t.Errorf("%s: the result is %+v, want Refused", name, result)
		}
	}
	if requests, _ := s.Server.Seen(); requests != 0 {
		t.Errorf("%d requests were made", requests)
	}
}

func many(t *testing.T, s Scene) {
	const all = push.MaxInFlight
	var sends sync.WaitGroup
	for i := range all {
		sends.Go(func() {
			n := banner()
			n.Badge = i
			r := s.Provider.Send(t.Context(), s.Targets[i%len(s.Targets)], n)
			if r.Outcome != push.Sent {
				t.Errorf("%d: the result is %+v", i, r)
			}
		})
	}
	sends.Wait()
	got := make(map[int]bool)
	for _, r := range s.Server.Received() {
		got[r.Badge] = true
	}
	if refusals := s.Server.Refusals(); len(got) != all || len(refusals) > 0 {
		t.Errorf("%d of %d arrived; the fake says %v", len(got), all, fmt.Sprint(refusals))
	}
}

// queued sends by a queue, while connections end in every way.
func queued(t *testing.T, s Scene) {
	const all = 400
	q := queue.New(s.Provider)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s.sent(t, s.Targets[0], banner()) // connects
	troubles := []Trouble{
		OK, OK, GoAwayBefore, OK, Half, OK, OK, GoAwayAfter, OK, GoAwayLater,
	}
	var script []Trouble
	for i := range all / 4 {
		script = append(script, troubles[i%len(troubles)])
	}
	s.Server.Script(script...)
	for i := range all {
		to, n := s.Targets[i%len(s.Targets)], banner()
		to.Device = tidemark.DeviceID(fmt.Sprint("device", i))
		n.Badge, n.Body = i, "old"
		q.Enqueue(to, n)
		n.Body = "new"
		q.Enqueue(to, n)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		counts, gauges := q.Stats()
		if gauges.Queued+gauges.InFlight == 0 {
			if counts.Sent+counts.Replaced != 2*all {
				t.Errorf("the counts are %+v, want %d sent or replaced", counts, 2*all)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute the queue has %+v, and counted %+v", gauges, counts)
		}
		<-time.After(5 * time.Millisecond)
	}
	arrived := make(map[int]string)
	for _, r := range s.Server.Received() {
		if arrived[r.Badge] == "new" && r.Body == "old" {
			t.Errorf("device %d got the old one after the new one", r.Badge)
		}
		arrived[r.Badge] = r.Body
	}
	if requests, _ := s.Server.Seen(); requests <= all+1 {
		t.Errorf("there were %d requests for %d devices, want some to be repeated", requests, all)
	}
	for i := range all {
		if arrived[i] != "new" {
			t.Errorf("device %d got %q at last, want new", i, arrived[i])
		}
	}
}
