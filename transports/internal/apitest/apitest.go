// Package apitest compares what goes over the wire with openapi.yaml. It is for tests.
//
// What the server sends must fit a copy of the contract in which every object is closed. A field
// that is not described is an error, and so is a status that is not listed. What a client sends
// must fit the contract if the server has accepted it.
package apitest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tidemark-im/tidemark"
)

// Contract is the parsed openapi.yaml, with a record of what tests have seen of it. It is safe for
// concurrent use.
type Contract struct {
	doc    *openapi3.T
	closed *openapi3.T
	seen   seen
}

// Load returns the contract with an empty record. It ends the test if the file is not a valid
// OpenAPI document.
func Load(t testing.TB) *Contract {
	t.Helper()
	parsed, err := documents()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return &Contract{doc: parsed.doc, closed: parsed.closed}
}

// Parse returns the contract in a text, without checking that it is valid OpenAPI. It has no closed
// copy, so it cannot check what goes over the wire.
func Parse(raw []byte) (*Contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	return &Contract{doc: doc}, err
}

// pair is the contract and its copy with closed objects.
type pair struct{ doc, closed *openapi3.T }

// documents parses the contract once, because parsing takes longer than most tests.
var documents = sync.OnceValues(func() (p pair, err error) {
	loader := openapi3.NewLoader()
	if p.doc, err = loader.LoadFromData(tidemark.OpenAPI); err != nil {
		return p, err
	}
	err = p.doc.Validate(loader.Context, openapi3.EnableExamplesValidation(),
		openapi3.EnableSchemaDefaultsValidation(), openapi3.EnableSchemaFormatValidation(),
		openapi3.EnableSchemaPatternValidation())
	if err != nil {
		return p, err
	}
	if p.closed, err = openapi3.NewLoader().LoadFromData(tidemark.OpenAPI); err == nil {
		closeAll(p.closed)
	}
	return p, err
})

// Call is an operation of the contract.
type Call struct {
	Method, Path string
	*openapi3.Operation

	// parameters holds those of the path and of the operation.
	parameters openapi3.Parameters
}

// Calls returns all operations with their paths on the server, in no order.
func (c *Contract) Calls() []Call {
	var calls []Call
	for template, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			calls = append(calls, Call{
				method, c.base(item) + template, operation,
				append(slices.Clone(item.Parameters), operation.Parameters...),
			})
		}
	}
	return calls
}

// Schemas returns the named schemas.
func (c *Contract) Schemas() openapi3.Schemas { return c.doc.Components.Schemas }

// Codes returns the error codes that the contract names.
func (c *Contract) Codes() []string { return c.enum("Code") }

func (c *Contract) enum(schema string) []string {
	var values []string
	for _, value := range openEnum(c.doc.Components.Schemas[schema].Value) {
		values = append(values, value.(string))
	}
	return values
}

// openEnum returns the values that the server sends today. A later server may send others.
func openEnum(s *openapi3.Schema) []any {
	values, _ := s.Extensions["x-extensible-enum"].([]any)
	return values
}

// Schema fails the test unless a JSON text of the server fits a schema of the contract.
func (c *Contract) Schema(t testing.TB, name string, raw []byte) {
	t.Helper()
	schema := c.closed.Components.Schemas[name]
	if schema == nil {
		t.Fatalf("openapi.yaml has no schema %s", name)
	}
	if err := fits(schema, raw); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// Accepts returns nil if a JSON text of a client fits a schema, else an error with the reason. A
// null field counts as absent.
func (c *Contract) Accepts(name string, raw []byte) error {
	return accepts(c.doc.Components.Schemas[name], raw)
}

func accepts(schema *openapi3.SchemaRef, raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return schema.Value.VisitJSON(withoutNulls(v), openapi3.EnableFormatValidation())
}

func fits(schema *openapi3.SchemaRef, raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("%w in %.2000s", err, raw)
	}
	if err := schema.Value.VisitJSON(v, openapi3.EnableFormatValidation()); err != nil {
		return fmt.Errorf("does not fit openapi.yaml: %w\n%.2000s", err, raw)
	}
	return nil
}

// withoutNulls removes the null members of objects. It leaves attachments and metadata alone, which
// may hold anything.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if member == nil {
				delete(v, key)
			} else if key != "attachments" && key != "metadata" {
				withoutNulls(member)
			}
		}
	case []any:
		for _, element := range v {
			withoutNulls(element)
		}
	}
	return v
}

// base returns the prefix of an item's path on the server.
func (c *Contract) base(item *openapi3.PathItem) string {
	servers := c.doc.Servers
	if len(item.Servers) > 0 {
		servers = item.Servers
	}
	return strings.TrimSuffix(servers[0].URL, "/")
}

// apiBase returns the prefix of every path but those for operators.
func (c *Contract) apiBase() string { return strings.TrimSuffix(c.doc.Servers[0].URL, "/") + "/" }

// route is the operation of a path.
type route struct {
	operation *openapi3.Operation
	// closed is the same operation in the copy with closed objects.
	closed *openapi3.Operation
	// parameters holds those of the path and of the operation. values holds the path's parameters.
	parameters openapi3.Parameters
	values     map[string]string
}

// route returns the operation of an escaped path, or nil if there is none.
func (c *Contract) route(method, path string) *route {
	for template, item := range c.doc.Paths.Map() {
		values, ok := match(c.base(item)+template, path)
		if !ok {
			continue
		}
		operation := item.GetOperation(method)
		if operation == nil {
			return nil
		}
		return &route{
			operation: operation, closed: c.closed.Paths.Value(template).GetOperation(method),
			values:     values,
			parameters: append(slices.Clone(item.Parameters), operation.Parameters...),
		}
	}
	return nil
}

// match compares an escaped path with a template and returns the values of its parameters.
func match(template, path string) (values map[string]string, ok bool) {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return nil, false
	}
	values = make(map[string]string)
	for i := range want {
		name, isParameter := strings.CutPrefix(want[i], "{")
		value, err := url.PathUnescape(got[i])
		switch {
		case isParameter && err == nil:
			values[strings.TrimSuffix(name, "}")] = value
		case want[i] != got[i]:
			return nil, false
		}
	}
	return values, true
}

// Example returns the example of a schema. It ends the test if there is none.
func (c *Contract) Example(t testing.TB, name string) []byte {
	t.Helper()
	schema := c.doc.Components.Schemas[name]
	if schema == nil || schema.Value.Example == nil {
		t.Fatalf("openapi.yaml has no example of %s", name)
	}
	raw, err := json.Marshal(schema.Value.Example)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// All returns the parameters of the operation and of its path.
func (c Call) All() []*openapi3.Parameter {
	var all []*openapi3.Parameter
	for _, p := range c.parameters {
		all = append(all, p.Value)
	}
	return all
}

// Events returns the types of the events of a stream.
func (c *Contract) Events() []string { return c.types("Event") }

// Frames returns the types of the frames that a WebSocket client sends.
func (c *Contract) Frames() []string { return c.types("ClientFrame") }
