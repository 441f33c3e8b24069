// Package apitest compares answers of the server with openapi.yaml. It is for tests.
package apitest

import (
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tidemark-im/tidemark"
)

// Contract is openapi.yaml, parsed. It is safe for concurrent use.
type Contract struct{ doc *openapi3.T }

// Load returns the contract. It ends the test if the file is no valid OpenAPI document.
func Load(t testing.TB) *Contract {
	t.Helper()
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(tidemark.OpenAPI)
	if err == nil {
		err = doc.Validate(loader.Context)
	}
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return &Contract{doc: doc}
}

// Call is an operation of the contract.
type Call struct{ Method, Path string }

// Calls returns all operations, by their paths on the server, in no order.
func (c *Contract) Calls() []Call {
	var calls []Call
	for template, item := range c.doc.Paths.Map() {
		for method := range item.Operations() {
			calls = append(calls, Call{method, c.base(item) + template})
		}
	}
	return calls
}

// Codes returns the error codes that the contract names.
func (c *Contract) Codes() []string {
	var codes []string
	for _, code := range c.doc.Components.Schemas["Code"].Value.Enum {
		codes = append(codes, code.(string))
	}
	return codes
}

// Schema fails the test unless a JSON text fits a schema of the contract.
func (c *Contract) Schema(t testing.TB, name string, raw []byte) {
	t.Helper()
	schema := c.doc.Components.Schemas[name]
	if schema == nil {
		t.Fatalf("openapi.yaml has no schema %s", name)
	}
	c.fits(t, name, schema, raw)
}

// Answer fails the test unless the contract has the operation, and for its status a content of this type which the body fits. Every answer of 400 and
// above must be a Problem that says the status and the request id of the header, also where the contract does not know the path.
func (c *Contract) Answer(t testing.TB, method, path string, res *http.Response, body []byte) {
	t.Helper()
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode >= http.StatusBadRequest && method != http.MethodHead {
		if media != "application/problem+json" {
			t.Fatalf("%s %s: %d with Content-Type %q: %s", method, path, res.StatusCode, res.Header.Get("Content-Type"), body)
		}
		c.problem(t, res, body)
	}
	operation := c.operation(method, path)
	if operation == nil {
		if res.StatusCode < http.StatusBadRequest {
			t.Errorf("%s %s is not in openapi.yaml, and gave %d", method, path, res.StatusCode)
		}
		return
	}
	response := operation.Responses.Status(res.StatusCode)
	if response == nil && res.StatusCode >= http.StatusBadRequest {
		response = operation.Responses.Default()
	}
	if response == nil {
		t.Errorf("%s %s: openapi.yaml knows no %d", method, path, res.StatusCode)
		return
	}
	if len(response.Value.Content) == 0 {
		if len(body) > 0 {
			t.Errorf("%s %s: %d has the body %s, and should have none", method, path, res.StatusCode, body)
		}
		return
	}
	content := response.Value.Content[media]
	switch {
	case err != nil || content == nil:
		t.Errorf("%s %s: %d with Content-Type %q", method, path, res.StatusCode, res.Header.Get("Content-Type"))
	case strings.HasSuffix(media, "json"):
		c.fits(t, method+" "+path, content.Schema, body)
	}
}

func (c *Contract) problem(t testing.TB, res *http.Response, body []byte) {
	t.Helper()
	c.Schema(t, "Problem", body)
	var p struct {
		Status    int
		Detail    string
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Errorf("%v in %s", err, body)
	}
	if p.Status != res.StatusCode || p.Detail == "" || p.RequestID == "" || p.RequestID != res.Header.Get("X-Request-ID") {
		t.Errorf("status %d, X-Request-ID %q: %s", res.StatusCode, res.Header.Get("X-Request-ID"), body)
	}
}

func (c *Contract) fits(t testing.TB, what string, schema *openapi3.SchemaRef, raw []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Errorf("%s: %v in %s", what, err, raw)
	} else if err := schema.Value.VisitJSON(v, openapi3.EnableFormatValidation()); err != nil {
		t.Errorf("%s does not fit openapi.yaml: %v\n%s", what, err, raw)
	}
}

// base is what stands before the path of an item.
func (c *Contract) base(item *openapi3.PathItem) string {
	servers := c.doc.Servers
	if len(item.Servers) > 0 {
		servers = item.Servers
	}
	return strings.TrimSuffix(servers[0].URL, "/")
}

// operation finds what serves a path, nil if nothing does.
func (c *Contract) operation(method, path string) *openapi3.Operation {
	path, _, _ = strings.Cut(path, "?")
	for template, item := range c.doc.Paths.Map() {
		if matches(c.base(item)+template, path) {
			return item.GetOperation(method)
		}
	}
	return nil
}

func matches(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}
