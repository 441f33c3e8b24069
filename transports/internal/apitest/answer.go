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

// Answer fails the test unless the contract has the operation, with the answer's status, headers,
// media type and body. Every answer of status 400 and above must be a Problem with the same status
// and request id. That holds for paths that the contract does not know, too. path may have a query.
// Answer does not check the body of a stream.
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
	c.incarnation(t, what, id, path, res)
	response := route.closed.Responses.Status(res.StatusCode)
	if response == nil {
		t.Errorf("%s is not an answer of %s in openapi.yaml: list it there, or do not send it: %s",
			what, id, body)
		return
	}
	c.seen.add(id + " " + strconv.Itoa(res.StatusCode))
	headers(t, what, response.Value, res.Header)
	if len(response.Value.Content) == 0 {
		if len(body) > 0 {
			t.Errorf("%s has the body %s, want none", what, body)
		}
		return
	}
	content := response.Value.Content[media]
	switch {
	case content == nil:
		t.Errorf("%s with Content-Type %q", what, res.Header.Get("Content-Type"))
	case media == "application/x-ndjson": // Lines of JSON, which the contract calls a string.
	case strings.HasSuffix(media, "json"):
		if err := fits(content.Schema, body); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if id == "poll" && media == "application/json" {
			c.polled(body)
		}
	}
}

// unknown checks the answer to a path that the contract does not know: the router's, or a file of
// the page.
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
	// The query may be checked before the method.
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusBadRequest:
	case strings.HasPrefix(path, c.apiBase()) || res.StatusCode >= http.StatusBadRequest:
		t.Errorf("%s, but it is not in openapi.yaml", what)
	}
}

// caching checks that no cache keeps an answer about a caller.
func (c *Contract) caching(t testing.TB, what, id, path string, res *http.Response) {
	t.Helper()
	want := "no-store"
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols, !strings.HasPrefix(path, c.apiBase()) &&
		res.StatusCode < http.StatusBadRequest:
		return
	case res.Header.Get("Content-Type") == "text/event-stream":
		want = "no-cache, no-transform"
	}
	if got := res.Header.Get("Cache-Control"); got != want {
		t.Errorf("%s with Cache-Control %q, want %q", what, got, want)
	}
}

// incarnation checks that an answer names the data that it is about. A new session of a stream does
// so in its first event. Refusals are not checked: some come before the header is set.
func (c *Contract) incarnation(t testing.TB, what, id, path string, res *http.Response) {
	t.Helper()
	others := []string{"streamEvents", "poll", "connectWebSocket"}
	if res.StatusCode >= http.StatusBadRequest || !strings.HasPrefix(path, c.apiBase()) ||
		slices.Contains(others, id) || strings.HasPrefix(path, c.apiBase()+"admin/") {
		return
	}
	if res.Header.Get("Tidemark-Incarnation") == "" {
		t.Errorf("%s has no Tidemark-Incarnation", what)
	}
}

// headers checks the headers that the contract names.
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

// typed returns the value of a text of a header, a path or a query. That is a number if the schema
// is an integer, else the text.
func typed(schema *openapi3.Schema, text string) any {
	if schema.Type.Is("integer") &&
		strings.Trim(strings.TrimPrefix(text, "-"), "0123456789") == "" {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	if schema.Type.Is("boolean") && (text == "true" || text == "false") {
		return text == "true"
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
