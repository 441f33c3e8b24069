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

// Fault is something that befalls calls.
type Fault struct {
	Name string
	// Of says which calls it may befall; nil: all.
	Of func(*Call) bool
	// Percent is how many of them it befalls.
	Percent float64
	// do makes the call, or not, and reports whether the fault has happened: some need an answer of a certain kind.
	do func(*Network, *Call) (response *http.Response, fired bool, err error)
}

// For is the fault for some calls only.
func (f Fault) For(of func(*Call) bool) Fault {
	before := f.Of
	f.Of = func(c *Call) bool { return (before == nil || before(c)) && of(c) }
	return f
}

// At is the fault with another probability.
func (f Fault) At(percent float64) Fault {
	f.Percent = percent
	return f
}

// Named is the fault under another name.
func (f Fault) Named(name string) Fault {
	f.Name = name
	return f
}

// Writes selects what may change something.
func Writes(c *Call) bool { return c.Writes }

// reset is what a client sees of a connection that broke.
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

// Forgotten performs a transaction, breaks the connection before the answer, and forgets the transaction's token, as DynamoDB does after ten minutes: whoever repeats it
// is not told that it was performed.
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

// Delayed breaks the connection, and performs the call a while later, when it may have been repeated.
func Delayed() Fault {
	return Fault{Name: "call performed after its connection " +
		"broke", Percent: 10, do: func(n *Network, c *Call) (*http.Response, bool, error) {
		n.later(c)
		return nil, true, reset()
	}}
}

// Doubled performs the call, and a while later once more.
func Doubled() Fault {
	return Fault{Name: "call performed again later", Percent: 10, do: func(n *Network, c *Call) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		n.later(c)
		return given.response(c.request), true, nil
	}}
}

// Slow takes a while that every caller has patience for.
func Slow(least, most time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("answers slow by %v to %v", least, most), Percent: 50, do: func(n *Network, c *Call) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		if err := wait(c.request.Context(), least+time.Duration(n.below(int((most-least)/time.Millisecond)+1))*time.Millisecond); err != nil {
			return nil, true, err
		}
		return given.response(c.request), true, nil
	}}
}

// Silent performs the call or not, by chance, and never answers.
func Silent() Fault {
	return Fault{Name: "no answer at all", Percent: 3, do: func(n *Network, c *Call) (*http.Response, bool, error) {
		if n.below(2) == 0 {
			if _, err := n.perform(c.request.Context(), c.body, c); err != nil {
				return nil, false, err
			}
		}
		return nil, true, wait(c.request.Context(), time.Minute)
	}}
}

// wait returns nil after a while, or why nobody waits any more.
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
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(given.body[:n.below(len(given.body))]), broken{}))
		return response
	})
}

// broken is the end of a connection that broke.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Truncated leaves out the end of the answer, as if it were whole.
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
		wrong := given.with(given.body) // whatever the service says of checksums
		wrong.body = changed
		return wrong.response(nil)
	})
}

// Garbage answers something that is not DynamoDB's.
func Garbage() Fault {
	return mangled("garbage instead of the answer", func(n *Network, given *answer) *http.Response {
		text := []string{"", "null", "<html><body>Welcome to the hotel. Please accept our " +
			"terms.</body></html>", "\x00\x01\x02\xff"}[n.below(4)]
		wrong := given.with([]byte(text))
		wrong.header.Set("Content-Type", "text/html")
		return wrong.response(nil)
	})
}

// mangled is a fault of answers of calls that were performed.
func mangled(name string, mangle func(*Network, *answer) *http.Response) Fault {
	return Fault{Name: name, Percent: 15, do: func(n *Network, c *Call) (*http.Response, bool, error) {
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
