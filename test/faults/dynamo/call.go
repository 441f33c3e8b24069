package dynamo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Call is a call to DynamoDB in its protocol, AWS JSON 1.0.
type Call struct {
	// Operation is the name of the API: "PutItem".
	Operation string
	// Tables are the tables that the call names, without the prefix of the store, in ascending
	// order.
	Tables []string
	// Writes reports that the call may change something.
	Writes bool
	// Strong reports that a read asks for the newest state.
	Strong bool

	request *http.Request
	body    []byte
	fields  map[string]any
}

// Kind names the operation and its tables, such as "PutItem pending_deliveries".
func (c *Call) Kind() string {
	return strings.Join(append([]string{c.Operation}, c.Tables...), " ")
}

// On reports whether the call is of this operation and names the table, perhaps beside others. An
// empty table matches every call.
func (c *Call) On(operation, table string) bool {
	return c.Operation == operation && (table == "" || slices.Contains(c.Tables, table))
}

// parse parses a request, and closes its body.
func parse(request *http.Request, prefix string) (*Call, error) {
	_, operation, found := strings.Cut(request.Header.Get("X-Amz-Target"), ".")
	if !found || request.Body == nil {
		return nil, fmt.Errorf("dynamo: the request is no call to DynamoDB: X-Amz-Target is %q",
			request.Header.Get("X-Amz-Target"))
	}
	defer request.Body.Close()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	c := &Call{Operation: operation, request: request, body: body}
	if err := decode(body, &c.fields); err != nil {
		return nil, fmt.Errorf("dynamo: %w", err)
	}
	c.Writes = slices.Contains([]string{
		"TransactWriteItems", "UpdateItem", "PutItem", "DeleteItem", "BatchWriteItem",
	}, operation)
	c.Strong = operation == "TransactGetItems" || c.fields["ConsistentRead"] == true
	c.name(c.fields["TableName"], prefix)
	for table, of := range object(c.fields["RequestItems"]) {
		c.name(table, prefix)
		c.Strong = c.Strong || object(of)["ConsistentRead"] == true
	}
	actions, _ := c.fields["TransactItems"].([]any)
	for _, action := range actions {
		for _, one := range object(action) { // a Put, Update, Delete or ConditionCheck
			c.name(object(one)["TableName"], prefix)
		}
	}
	slices.Sort(c.Tables)
	return c, nil
}

// name records the name of a table.
func (c *Call) name(table any, prefix string) {
	if text, ok := table.(string); ok {
		if text = strings.TrimPrefix(text, prefix); !slices.Contains(c.Tables, text) {
			c.Tables = append(c.Tables, text)
		}
	}
}

// actions returns how many actions a transaction has.
func (c *Call) actions() int {
	actions, _ := c.fields["TransactItems"].([]any)
	return len(actions)
}

// object returns a JSON object's fields, nil if the value is no object.
func object(value any) map[string]any {
	fields, _ := value.(map[string]any)
	return fields
}

// decode parses JSON, and keeps its numbers as they are written.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// encode formats what decode has parsed.
func encode(fields map[string]any) []byte {
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err) // what was JSON can be encoded
	}
	return text
}

// answer is DynamoDB's answer to a call.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// fields parses a body, and returns nil if it is no JSON object.
func (a *answer) fields() (fields map[string]any) {
	if decode(a.body, &fields) != nil {
		return nil
	}
	return fields
}

// with returns the answer with another body, and its checksum.
func (a *answer) with(body []byte) *answer {
	header := a.header.Clone()
	header.Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE(body)))
	return &answer{status: a.status, header: header, body: body}
}

// response returns the answer as a client reads it.
func (a *answer) response(request *http.Request) *http.Response {
	header := a.header.Clone()
	header.Set("Content-Length", fmt.Sprint(len(a.body)))
	return &http.Response{
		Status:     fmt.Sprint(a.status, " ", http.StatusText(a.status)),
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)), Request: request,
	}
}
