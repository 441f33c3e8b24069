package dynamo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Fault is a fault that happens to calls.
type Fault struct {
	Name string
	// Of selects the calls that the fault may happen to. nil selects all.
	Of func(*Call) bool
	// Percent is the share of them that it happens to.
	Percent float64
	// do makes the call, or not, and reports whether the fault has happened. Some faults need an
	// answer of a certain kind.
	do func(*Network, *Call) (response *http.Response, fired bool, err error)
}

// For returns the fault for selected calls only.
func (f Fault) For(of func(*Call) bool) Fault {
	before := f.Of
	f.Of = func(c *Call) bool { return (before == nil || before(c)) && of(c) }
	return f
}

// At returns the fault with another probability.
func (f Fault) At(percent float64) Fault {
	f.Percent = percent
	return f
}

// Named returns the fault under another name.
func (f Fault) Named(name string) Fault {
	f.Name = name
	return f
}

// Writes selects calls that may change something.
func Writes(c *Call) bool { return c.Writes }

// reset returns the error that a client sees when a connection breaks.
func reset() error { return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET} }

// ReplyLost performs the call, and breaks the connection before the answer.
func ReplyLost() Fault {
	return Fault{Name: "reply lost after the call was " +
		"performed", Percent: 20, do: func(n *Network, c *Call) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		return nil, given.status == http.StatusOK, reset()
	}}
}

// Forgotten performs a transaction, breaks the connection before the answer, and forgets the
// transaction's token, as DynamoDB does after ten minutes. A repetition is then performed again.
func Forgotten() Fault {
	return Fault{
		Name:    "reply of a transaction lost, and its token forgotten",
		Percent: 20,
		Of:      func(c *Call) bool { return c.Operation == "TransactWriteItems" },
		do: func(n *Network, c *Call) (*http.Response, bool, error) {
			fields := maps.Clone(c.fields)
			delete(fields, "ClientRequestToken")
			given, err := n.perform(c.request.Context(), encode(fields), c)
			if err != nil {
				return nil, false, err
			}
			return nil, given.status == http.StatusOK, reset()
		},
	}
}

// RequestLost breaks the connection before the call is performed.
func RequestLost() Fault {
	return Fault{Name: "connection broken before the call was " +
		"performed", Percent: 20, do: func(*Network, *Call) (*http.Response, bool, error) {
		return nil, true, reset()
	}}
}

// Delayed breaks the connection, and performs the call a while later, perhaps after a repetition.
func Delayed() Fault {
	return Fault{Name: "call performed after its connection " +
		"broke", Percent: 10, do: func(n *Network, c *Call) (*http.Response, bool, error) {
		n.later(c)
		return nil, true, reset()
	}}
}

// Doubled performs the call, and performs it again a while later.
func Doubled() Fault {
	return Fault{Name: "call performed again later", Percent: 10, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		n.later(c)
		return given.response(c.request), true, nil
	}}
}

// Slow delays the answer, within the patience of every caller.
func Slow(least, most time.Duration) Fault {
	name := fmt.Sprintf("answers slow by %v to %v", least, most)
	return Fault{Name: name, Percent: 50, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		more := time.Duration(n.below(int((most-least)/time.Millisecond)+1)) * time.Millisecond
		if err := wait(c.request.Context(), least+more); err != nil {
			return nil, true, err
		}
		return given.response(c.request), true, nil
	}}
}

// Silent performs the call or not, by chance, and never answers.
func Silent() Fault {
	return Fault{Name: "no answer at all", Percent: 3, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		if n.below(2) == 0 {
			if _, err := n.perform(c.request.Context(), c.body, c); err != nil {
				return nil, false, err
			}
		}
		return nil, true, wait(c.request.Context(), time.Minute)
	}}
}

// wait returns nil after the duration, or the error of ctx if that ends first.
func wait(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cut breaks the connection in the middle of the answer.
func Cut() Fault {
	return mangled("answer cut in its middle", func(n *Network, given *answer) *http.Response {
		response := given.response(nil)
		begin := bytes.NewReader(given.body[:n.below(len(given.body))])
		response.Body = io.NopCloser(io.MultiReader(begin, broken{}))
		return response
	})
}

// broken is a reader that fails like a broken connection.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Truncated leaves out the end of the answer, and reports the shorter length.
func Truncated() Fault {
	return mangled("end of the answer missing", func(n *Network, given *answer) *http.Response {
		return given.with(given.body[:n.below(len(given.body))]).response(nil)
	})
}

// Corrupted changes some bytes of the answer, which its checksum shows.
func Corrupted() Fault {
	return mangled("bytes of the answer changed", func(n *Network, given *answer) *http.Response {
		changed := bytes.Clone(given.body)
		for range 3 {
			changed[n.below(len(changed))] ^= byte(1 + n.below(255))
		}
		wrong := given.with(given.body) // with a checksum, even if the service sends none
		wrong.body = changed
		return wrong.response(nil)
	})
}

// Garbage answers with a page that DynamoDB does not send.
func Garbage() Fault {
	return mangled("garbage instead of the answer", func(n *Network, given *answer) *http.Response {
		text := []string{"", "null", "<html><body>Welcome to the hotel. Please accept our " +
			"terms.</body></html>", "\x00\x01\x02\xff"}[n.below(4)]
		wrong := given.with([]byte(text))
		wrong.header.Set("Content-Type", "text/html")
		return wrong.response(nil)
	})
}

// mangled returns a fault that changes the answers of performed calls.
func mangled(name string, mangle func(*Network, *answer) *http.Response) Fault {
	return Fault{Name: name, Percent: 15, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		if len(given.body) < 2 {
			return given.response(c.request), false, nil
		}
		response := mangle(n, given)
		response.Request = c.request
		return response, true, nil
	}}
}
