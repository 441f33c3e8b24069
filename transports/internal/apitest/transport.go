package apitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Transport returns a RoundTripper that compares every exchange with the contract: the answer, an
// accepted request, and what streams carry. It reads an answer to its end before it returns it,
// unless the answer is a stream.
func (c *Contract) Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	return &transport{contract: c, t: t, base: base}
}

type transport struct {
	contract *Contract
	t        testing.TB
	base     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	res, err := tr.base.RoundTrip(r)
	if err != nil {
		return res, err
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch conn, _ := res.Body.(io.ReadWriteCloser); {
	case res.StatusCode == http.StatusSwitchingProtocols && conn != nil:
		// A request with a bad query is upgraded too, and then closed.
		res.Body = &frames{
			ReadWriteCloser: conn,
			contract:        tr.contract,
			t:               tr.t,
			opened:          func() { tr.contract.Request(tr.t, r, sent) },
		}
		tr.contract.Answer(tr.t, r.Method, r.URL.EscapedPath(), res, nil)
		return res, nil
	case media == "text/event-stream":
		stream := &blocks{ReadCloser: res.Body, contract: tr.contract, t: tr.t}
		if route := tr.contract.route(r.Method, r.URL.EscapedPath()); route != nil {
			stream.figures = route.operation.OperationID == "getStats"
		}
		res.Body = stream
		tr.contract.Answer(tr.t, r.Method, r.URL.EscapedPath(), res, nil)
	default:
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		res.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		if err != nil {
			return res, nil // the connection was cut, so there is nothing to compare
		}
		tr.contract.Answer(tr.t, r.Method, r.URL.EscapedPath(), res, body)
		if bytes.Contains(body, []byte(`"code":"INVALID`)) {
			return res, nil // one of several acknowledgements was refused
		}
	}
	if res.StatusCode < http.StatusBadRequest {
		tr.contract.Request(tr.t, r, sent)
	}
	return res, nil
}

// failing is the end of a body that was already read.
type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

// Request fails the test unless the contract has the operation with these parameters and this body.
func (c *Contract) Request(t testing.TB, r *http.Request, body []byte) {
	t.Helper()
	if route := c.route(r.Method, r.URL.EscapedPath()); route != nil {
		if err := route.accepts(r, body); err != nil {
			t.Errorf("%s %s was accepted, but does not fit openapi.yaml: %v\n%.500s",
				r.Method, r.URL, err, body)
		}
	}
}

func (r *route) accepts(req *http.Request, body []byte) error {
	query := req.URL.Query()
	var problems []error
	for _, p := range r.parameters {
		value, present := r.values[p.Value.Name], true
		switch p.Value.In {
		case openapi3.ParameterInQuery:
			present = query.Has(p.Value.Name)
			value = query.Get(p.Value.Name)
			query.Del(p.Value.Name)
		case openapi3.ParameterInHeader:
			value = req.Header.Get(p.Value.Name)
			present = value != ""
		}
		if !present {
			continue
		}
		if err := AcceptsParameter(p.Value, value); err != nil {
			problems = append(problems, err)
		}
	}
	if r.operation.Security != nil &&
		strings.Contains(fmt.Sprint(*r.operation.Security), "ticket") {
		query.Del("ticket")
	}
	for name := range query {
		if !r.ignoresUnknown() {
			problems = append(problems, fmt.Errorf("there is no parameter %q", name))
		}
	}
	return errors.Join(append(problems, r.acceptsBody(req.Header.Get("Content-Type"), body))...)
}

// ignoresUnknown reports whether the route opens a stream. There the server ignores parameters that
// it does not know, because a URL may come from a later version.
func (r *route) ignoresUnknown() bool {
	return slices.Contains([]string{"streamEvents", "poll", "connectWebSocket"},
		r.operation.OperationID)
}

// AcceptsParameter returns nil if the value of a parameter fits its schema, else an error with the
// reason.
func AcceptsParameter(p *openapi3.Parameter, value string) error {
	schema := p.Schema.Value
	if schema.Type.Is("array") { // the parameter is repeated, and value is one of its values
		schema = schema.Items.Value
	}
	if err := schema.VisitJSON(typed(schema, value)); err != nil {
		return fmt.Errorf("%s %q: %w", p.Name, value, err)
	}
	return nil
}

func (r *route) acceptsBody(contentType string, body []byte) error {
	if r.operation.RequestBody == nil {
		return nil
	}
	media, _, _ := mime.ParseMediaType(contentType)
	content := r.operation.RequestBody.Value.Content
	if contentType != "" && content[media] == nil {
		return fmt.Errorf("the Content-Type %q", contentType)
	}
	return accepts(content["application/json"].Schema, body)
}
