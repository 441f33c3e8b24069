package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/internal/publicnet"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

const (
	// defaultTimeout bounds a delivery: connect, handshake, request and answer.
	defaultTimeout = 15 * time.Second
	// maxAnswer is how many bytes of an answer are read, and maxHeader of its header.
	maxAnswer = 4 << 10
	maxHeader = 16 << 10
	// batchEvents and batchBytes bound a batch.
	batchEvents = 100
	batchBytes  = 256 << 10
	// maxWait bounds what a receiver may ask for by Retry-After.
	maxWait = time.Hour
	// connections is how many connections to a receiver there are at most.
	connections = 16
)

// Config configures an outlet. URL and Secrets are required.
type Config struct {
	// URL begins with https:// and has no port but 443. Within Allow, http:// and any port are
	// allowed, too.
	URL string
	// Secrets sign each delivery, the newest first. There are several while a secret is replaced.
	Secrets []string
	// Batch allows up to 100 events in a delivery, as a JSON array.
	Batch bool
	// Content is "full" or "", or "none" for messages without content, attachments and metadata.
	Content string
	// Allow are private networks to which deliveries may go.
	Allow []netip.Prefix
	// Roots are the authorities of TLS, nil for those of the system.
	Roots *x509.CertPool
	// Resolver resolves the host of the URL at each connect, nil for that of the system.
	Resolver *net.Resolver
	// Timeout bounds a delivery: connect, handshake, request and answer. 0 is 15 s.
	Timeout time.Duration
}

// Outlet delivers events to one URL. It is safe for concurrent use.
type Outlet struct {
	url     string
	timeout time.Duration
	signers Signers
	batch   bool
	bare    bool
	client  *http.Client
}

var _ outlet.Client = (*Outlet)(nil)

// New returns an outlet. It connects to nothing. Invalid: a field of the configuration; the error
// names it.
func New(cfg Config) (*Outlet, error) {
	o := &Outlet{
		url: cfg.URL, timeout: cmp.Or(cfg.Timeout, defaultTimeout), batch: cfg.Batch,
		bare: cfg.Content == "none",
	}
	var err error
	if o.signers, err = NewSigners(cfg.Secrets); err != nil {
		return nil, err
	}
	//rule:webhook_content_none.refuse-unknown-values
	if !slices.Contains([]string{"", "full", "none"}, cfg.Content) {
		return nil, tidemark.BadParam(tidemark.Invalid, "content", "must be full or none")
	}
	guard := publicnet.New(cfg.Allow, nil)
	guard.Resolver = cfg.Resolver
	inside, err := checkURL(guard, cfg.URL, len(cfg.Allow) > 0)
	if err != nil {
		return nil, tidemark.BadParam(tidemark.Invalid, "url", "is refused: %s",
			tidemark.DetailOf(err))
	}
	transport := &http.Transport{
		TLSClientConfig:        &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    o.timeout / 3,
		ForceAttemptHTTP2:      true,
		MaxConnsPerHost:        connections,
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: maxHeader,
	}
	// Otherwise a connection that is dead without saying so would be used for many minutes.
	//rule:bounded_use.leave-dead-connections
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: o.timeout / 3, PingTimeout: o.timeout / 3}
	if inside {
		o.client = guard.InsideClient(transport)
	} else {
		o.client = guard.Client(transport)
	}
	return o, nil
}

// checkURL returns Invalid unless an outlet may have a URL. It reports whether only allowed
// networks may be reached by it, because it begins with http://. allowed says that there are some.
func checkURL(guard *publicnet.Guard, text string, allowed bool) (inside bool, err error) {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "http" && allowed {
		inside, u.Scheme = true, "https" // for the other checks
		text = u.String()
	}
	if err := guard.Check(text); err != nil {
		return false, err
	}
	port := u.Port()
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return false, tidemark.Errorf(tidemark.Invalid, "the URL has the port %s, which is not "+
			"from 1 to 65535", port)
	}
	if port != "" && port != "443" && !allowed {
		return false, tidemark.Errorf(tidemark.Invalid, "the URL has the port %s; use 443, or ask "+
			"the operator to allow the receiver's network (--reach-allow-cidr)", port)
	}
	return inside, nil
}

// Limits implements outlet.Client.
func (o *Outlet) Limits() outlet.Limits {
	if o.batch {
		return outlet.Limits{Events: batchEvents, Bytes: batchBytes}
	}
	return outlet.Limits{Events: 1, Bytes: batchBytes}
}

// Close implements outlet.Client.
func (o *Outlet) Close() error {
	o.client.CloseIdleConnections()
	return nil
}

// Deliver implements outlet.Client. All events are accepted, or none is.
func (o *Outlet) Deliver(
	ctx context.Context, events []outlet.Event,
) (accepted int, refused *outlet.Refusal) {
	id, body := o.body(events)
	//rule:bounded_use.bound-a-delivery
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return 0, &outlet.Refusal{Detail: err.Error()}
	}
	o.signers.Sign(request.Header, id, time.Now(), body)
	// The receiver knows a repetition by its id. So the client repeats by itself what it sent on a
	// connection that the receiver was closing. A header without values is not sent.
	request.Header["Idempotency-Key"] = []string{}
	answer, err := o.client.Do(request)
	if err != nil {
		return 0, &outlet.Refusal{Detail: o.whyNot(err)}
	}
	defer answer.Body.Close()
	var text []byte
	// The body of 101 is the connection itself, whose reads ctx does not end.
	if answer.StatusCode != http.StatusSwitchingProtocols {
		//rule:bounded_use.read-little-of-an-answer
		text, _ = io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // The status says enough.
	}
	if answer.StatusCode/100 == 2 {
		return len(events), nil
	}
	return 0, judge(answer, text, len(events))
}

// judge returns what follows from an answer that is no success.
func judge(answer *http.Response, text []byte, events int) *outlet.Refusal {
	// The receiver's own reason is left out: it may have any bytes.
	named := strings.TrimSpace(
		strconv.Itoa(answer.StatusCode) + " " + http.StatusText(answer.StatusCode))
	r := &outlet.Refusal{
		Status: answer.StatusCode,
		Detail: named + ": " + printable(string(text), maxAnswer),
	}
	switch status := answer.StatusCode; {
	case status == http.StatusGone:
		r.Action = outlet.Disable
		r.Detail = "the receiver answered 410 Gone: it wants no more events"
	case status/100 == 3:
		r.Detail = fmt.Sprintf("%s: redirects are not followed; set the outlet's url to \"%s\" if "+
			"it has moved", named, printable(answer.Header.Get("Location"), maxAnswer))
	case status == http.StatusTooManyRequests || status/100 == 5:
		r.After = retryAfter(answer.Header.Get("Retry-After"), time.Now())
	case events > 1 && status/100 == 4:
		r.Action = outlet.Split
	}
	return r
}

// retryAfter returns the wait that a header asks for, from 0 to maxWait.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxWait)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxWait)
}

// whyNot returns why there was no answer, without the URL, which the reader knows.
func (o *Outlet) whyNot(err error) string {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	var network net.Error
	switch {
	case errors.Is(err, publicnet.ErrPrivate):
		return "the receiver's address is not public: " + err.Error() +
			"; serve with --reach-allow-cidr if it may be reached"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Sprintf("the receiver gave no answer within %v", o.timeout)
	}
	return "the receiver cannot be reached: " + printable(err.Error(), maxAnswer)
}

// printable returns a text of the receiver for an operator: its beginning, at most a number of
// bytes, without control characters.
func printable(text string, most int) string {
	var shown []byte
	for _, r := range text {
		one := string(r)
		if !strconv.IsGraphic(r) {
			one = strings.Trim(strconv.QuoteRune(r), "'")
		}
		if len(shown)+len(one) > most {
			break
		}
		shown = append(shown, one...)
	}
	return string(shown)
}

// body returns the id and the body of a delivery.
func (o *Outlet) body(events []outlet.Event) (id string, body []byte) {
	if !o.batch {
		return events[0].ID, events[0].AppendBody(nil, o.bare)
	}
	subject := make([]string, len(events))
	body = []byte{'['}
	for i := range events {
		subject[i] = events[i].ID
		if i > 0 {
			body = append(body, ',')
		}
		body = events[i].AppendBody(body, o.bare)
	}
	return outlet.EventID("batch", subject...), append(body, ']')
}
