package apitest

import (
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Answer fails the test unless the contract has the operation, and for its status these headers and a content of this type which the body
// fits. Every answer of 400 and above must be a Problem that says the status and the request id of the header, also where the contract does not know
// the path. path may have a query. The body of a stream is not looked at.
func (c *Contract) Answer(t testing.TB, method, path string, res *http.Response, body []byte) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	what := method + " " + path + ": " + strconv.Itoa(res.StatusCode)
	if res.Header.Get("X-Request-ID") == "" {
		t.Errorf("%s has no X-Request-ID", what)
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode >= http.StatusBadRequest && method != http.MethodHead {
		if media != "application/problem+json" {
			t.Fatalf("%s with Content-Type %q: %s", what, res.Header.Get("Content-Type"), body)
		}
		c.problem(t, what, res, body)
	}
	route := c.route(method, path)
	if route == nil {
		c.unknown(t, what, method, path, res)
		return
	}
	id := route.operation.OperationID
	c.caching(t, what, id, path, res)
	response := route.closed.Responses.Status(res.StatusCode)
	if response == nil {
		t.Errorf("%s is not among the answers of %s: list it in openapi.yaml, or do not give it: "+
			"%s", what, id, body)
		return
	}
	c.seen.add(id + " " + strconv.Itoa(res.StatusCode))
	headers(t, what, response.Value, res.Header)
	if len(response.Value.Content) == 0 {
		if len(body) > 0 {
			t.Errorf("%s has the body %s, and should have none", what, body)
		}
		return
	}
	content := response.Value.Content[media]
	switch {
	case content == nil:
		t.Errorf("%s with Content-Type %q", what, res.Header.Get("Content-Type"))
	case strings.HasSuffix(media, "json"):
		if err := fits(content.Schema, body); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if id == "poll" && media == "application/json" {
			c.polled(body)
		}
	}
}

// unknown checks the answer to what the contract does not know: the router's, or a file of the page.
func (c *Contract) unknown(t testing.TB, what, method, path string, res *http.Response) {
	t.Helper()
	switch {
	case res.StatusCode == http.StatusMethodNotAllowed:
		if allow := res.Header.Get("Allow"); allow == "" ||
			slices.Contains(strings.Split(allow, ", "), method) {
			t.Errorf("%s with Allow: %q", what, allow)
		}
	case method == http.MethodOptions && res.StatusCode == http.StatusNoContent:
		if res.Header.Get("Allow") == "" {
			t.Errorf("%s without Allow", what)
		}
	// a query may be looked at before the method
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusBadRequest:
	case strings.HasPrefix(path, c.apiBase()) || res.StatusCode >= http.StatusBadRequest:
		t.Errorf("%s, and it is not in openapi.yaml", what)
	}
}

// caching checks that nobody keeps an answer about one caller.
func (c *Contract) caching(t testing.TB, what, id, path string, res *http.Response) {
	t.Helper()
	want := "no-store"
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols, !strings.HasPrefix(path, c.apiBase()) &&
		res.StatusCode < http.StatusBadRequest:
		return
	case id == "streamEvents" && res.StatusCode == http.StatusOK:
		want = "no-cache, no-transform"
	}
	if got := res.Header.Get("Cache-Control"); got != want {
		t.Errorf("%s with Cache-Control %q, want %q", what, got, want)
	}
}

// headers checks those that the contract names.
func headers(t testing.TB, what string, response *openapi3.Response, h http.Header) {
	t.Helper()
	for name, header := range response.Headers {
		value := h.Get(name)
		if value == "" {
			if header.Value.Required {
				t.Errorf("%s lacks the header %s", what, name)
			}
			continue
		}
		err := header.Value.Schema.Value.VisitJSON(typed(header.Value.Schema.Value, value))
		if err != nil {
			t.Errorf("%s with %s: %s: %v", what, name, value, err)
		}
	}
}

// typed returns what a text of a header, a path or a query stands for where a schema asks for it.
func typed(schema *openapi3.Schema, text string) any {
	if schema.Type.Is("integer") &&
		strings.Trim(strings.TrimPrefix(text, "-"), "0123456789") == "" {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	return text
}

func (c *Contract) problem(t testing.TB, what string, res *http.Response, body []byte) {
	t.Helper()
	c.Schema(t, "Problem", body)
	var p struct {
		Status    int
		Detail    string
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Errorf("%s: %v in %s", what, err, body)
	}
	if p.Status != res.StatusCode || p.Detail == "" || p.RequestID == "" ||
		p.RequestID != res.Header.Get("X-Request-ID") {
		t.Errorf("%s, X-Request-ID %q: %s", what, res.Header.Get("X-Request-ID"), body)
	}
	if retry := res.Header.Get("Retry-After"); retry == "" &&
		(p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable) {
		t.Errorf("%s without Retry-After", what)
	}
}
