package apitest_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
)

// oldNames are the names that a thing had beside its own. Each thing has one name.
var oldNames = []string{
	"session", "after", "position", "more", "from", "to", "statuses", "offset",
}

// absent are the fields that an answer may leave out, with the reason.
var absent = map[string]string{
	"Problem.dependencies":           "only /readyz has it",
	"Dependencies.issuer":            "the server may have none",
	"Dependencies.redis":             "the server may have none",
	"Dependency.detail":              "only of one that is unavailable",
	"ProblemEvent.request_id":        "only the answer to a frame has it",
	"SendMessageAckFrame.id":         "only if it stands for the event of the message",
	"SendMessageAckFrame.request_id": "only if the frame had one",
	"SyncResponseFrame.request_id":   "only if the frame had one",
	"PongFrame.request_id":           "only if the frame had one",
	"Attachment.name":                "the sender's object, byte for byte",
	"Attachment.content_type":        "the sender's object, byte for byte",
	"Attachment.size":                "the sender's object, byte for byte",
	"Attachment.s3_ref":              "the sender's object, byte for byte",
}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// lint returns a complaint for each place of a contract that breaks a convention of the API.
func lint(contract *apitest.Contract) []string {
	l := &linter{contract: contract, answers: map[string]bool{}, requests: map[string]bool{}}
	l.operations()
	schemas := contract.Schemas()
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		l.fields(name, schemas[name].Value)
		l.union(name, schemas[name].Value)
	}
	l.pagination(schemas["Pagination"])
	// No operation refers to the schemas of events and frames.
	l.answer("the stream", ref(schemas, "Event"))
	l.answer("the stream", ref(schemas, "ReplyFrame"))
	l.request("the stream", ref(schemas, "ClientFrame"))
	l.examples()
	return l.found
}

// ref returns a reference to a schema.
func ref(schemas openapi3.Schemas, name string) *openapi3.SchemaRef {
	return &openapi3.SchemaRef{Ref: "#/components/schemas/" + name, Value: schemas[name].Value}
}

func nameOf(ref *openapi3.SchemaRef) string {
	return ref.Ref[strings.LastIndexByte(ref.Ref, '/')+1:]
}

// A linter collects what it finds. It visits each named schema once as an answer and once as a
// request.
type linter struct {
	contract          *apitest.Contract
	answers, requests map[string]bool
	found             []string
}

func (l *linter) complain(format string, args ...any) {
	l.found = append(l.found, fmt.Sprintf(format, args...))
}

// operations checks what a client needs of each operation.
func (l *linter) operations() {
	ids := map[string]bool{}
	for _, call := range l.contract.Calls() {
		what := call.Method + " " + call.Path
		if call.OperationID == "" || ids[call.OperationID] || call.Summary == "" ||
			len(call.Tags) != 1 {
			l.complain("%s: operationId %q, summary %q, tags %v",
				what, call.OperationID, call.Summary, call.Tags)
		}
		ids[call.OperationID] = true
		retry, _ := call.Extensions["x-retry"].(string)
		if (call.Method == http.MethodPost) != slices.Contains(
			[]string{"key", "natural", "harmless"}, retry) {
			l.complain("%s: x-retry is %q", what, retry)
		}
		if user, marked := call.Extensions["x-user"]; marked && user != "optional" {
			l.complain("%s: x-user is %q", what, user)
		}
		for _, p := range call.All() {
			l.parameter(what, p)
		}
		if call.RequestBody != nil {
			l.body(what, call.RequestBody.Value)
		}
		pages := call.Parameters.GetByInAndName("query", "limit") != nil
		for status, response := range call.Responses.Map() {
			l.response(what+" "+status, status, response.Value)
			if json := response.Value.Content["application/json"]; json != nil && pages &&
				json.Schema.Value.Properties["pagination"] == nil {
				l.complain("%s: %s is a list without pagination", what, nameOf(json.Schema))
			}
		}
	}
	if len(ids) < 20 {
		l.complain("only %d operations", len(ids))
	}
}

func (l *linter) parameter(what string, p *openapi3.Parameter) {
	if p.Description == "" && p.In != openapi3.ParameterInPath {
		l.complain("%s: the parameter %s has no description", what, p.Name)
	}
	if p.In != openapi3.ParameterInHeader {
		l.name(what+": the parameter "+p.Name, p.Name)
	}
	l.request(what, p.Schema)
}

// name checks a name of a field or parameter.
func (l *linter) name(what, name string) {
	if !snakeCase.MatchString(name) {
		l.complain("%s: names are snake_case", what)
	}
	if slices.Contains(oldNames, name) {
		l.complain("%s: it has another name", what)
	}
}

func (l *linter) body(what string, body *openapi3.RequestBody) {
	json := body.Content["application/json"]
	if json == nil || json.Schema.Value.Example == nil {
		l.complain("%s: its body has no example", what)
	}
	for _, media := range body.Content {
		l.request(what, media.Schema)
	}
}

func (l *linter) response(what, status string, r *openapi3.Response) {
	if status == "default" {
		l.complain("%s: list the statuses; a default would allow all", what)
	}
	if r.Description == nil || *r.Description == "" {
		l.complain("%s: no description", what)
	}
	problem := r.Content["application/problem+json"]
	if status >= "400" && (len(r.Content) != 1 || problem == nil ||
		problem.Schema.Ref != "#/components/schemas/Problem") {
		l.complain("%s is no Problem", what)
	}
	retry := r.Headers["Retry-After"]
	wanted := status == "429" || status == "503"
	if wanted != (retry != nil && retry.Value.Required) {
		l.complain("%s: Retry-After is needed by 429 and 503, and by no other", what)
	}
	for _, media := range r.Content {
		l.answer(what, media.Schema)
	}
}

// pagination checks the fields of Pagination, which every list has.
func (l *linter) pagination(page *openapi3.SchemaRef) {
	got := slices.Sorted(maps.Keys(page.Value.Properties))
	if !slices.Equal(got, []string{"has_more", "next_cursor"}) {
		l.complain("Pagination has %v, want has_more and next_cursor", got)
	}
}

// fields checks the names of the fields of an object, and the form of their values. It descends
// into objects that are not named schemas.
func (l *linter) fields(what string, s *openapi3.Schema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field, value := what+"."+name, s.Properties[name]
		l.name(field, name)
		isTime := strings.HasSuffix(name, "_at") || name == "send_by"
		if isTime != (value.Value.Format == "date-time") {
			l.complain("%s: send_by and names that end in _at, and no others, are times", field)
		}
		if strings.HasSuffix(name, "_seconds") && !value.Value.Type.Is("integer") {
			l.complain("%s: seconds are an integer", field)
		}
		if value.Ref == "" {
			l.fields(field, value.Value)
		}
	}
	for _, parts := range []openapi3.SchemaRefs{s.AllOf, s.OneOf, {s.Items}} {
		for _, part := range parts {
			if part != nil && part.Ref == "" {
				l.fields(what, part.Value)
			}
		}
	}
}

// union checks that a oneOf has a discriminator: a field whose value names the schema.
func (l *linter) union(what string, s *openapi3.Schema) {
	if len(s.OneOf) == 0 {
		return
	}
	if s.Discriminator == nil {
		l.complain("%s: one of several has no discriminator", what)
		return
	}
	by := s.Discriminator.PropertyName
	named := map[string]string{}
	for value, one := range s.Discriminator.Mapping {
		if !snakeCase.MatchString(value) || value == "open" || value == "error" {
			l.complain("%s: %s: names are snake_case, and not those of EventSource", what, value)
		}
		named[one.Ref] = value
	}
	for _, one := range s.OneOf {
		property := one.Value.Properties[by]
		if property == nil || !slices.Contains(one.Value.Required, by) ||
			!slices.Equal(property.Value.Enum, []any{named[one.Ref]}) {
			l.complain("%s: %s has no %s of its own, or the mapping lacks it", what, nameOf(one),
				by)
		}
	}
}

// answer checks a schema of what the server sends, and those it refers to.
func (l *linter) answer(what string, ref *openapi3.SchemaRef) {
	if ref == nil || l.answers[ref.Ref] {
		return
	}
	if ref.Ref != "" {
		l.answers[ref.Ref] = true
		what = nameOf(ref)
	}
	s := ref.Value
	if len(s.Enum) > 0 {
		l.complain("%s: an enum of an answer is open: a client that knows %v only must not fail; "+
			"use x-extensible-enum", what, s.Enum)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		if _, mayBeAbsent := absent[what+"."+name]; slices.Contains(s.Required, name) ==
			mayBeAbsent {
			l.complain("%s.%s: answers have every field; null is none", what, name)
		}
		// The name of a variant is its only value. Unknown variants are ignored.
		if (name != "type" && name != "scope") || len(field.Value.Enum) != 1 {
			l.answer(what+"."+name, field)
		}
	}
	if page := s.Properties["pagination"]; page != nil &&
		page.Ref != "#/components/schemas/Pagination" {
		l.complain("%s has a pagination of its own", what)
	}
	l.answer(what, s.Items)
	for _, parts := range []openapi3.SchemaRefs{s.AllOf, s.AnyOf, s.OneOf} {
		for _, part := range parts {
			l.answer(what, part)
		}
	}
}

// request checks a schema of what clients send, and those it refers to. An anyOf only says which
// fields are needed.
func (l *linter) request(what string, ref *openapi3.SchemaRef) {
	if ref == nil || l.requests[ref.Ref] {
		return
	}
	if ref.Ref != "" {
		l.requests[ref.Ref] = true
		what = nameOf(ref)
	}
	s := ref.Value
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		// Attachments are the sender's own objects, and the server returns them as they are.
		if what != "Attachment" && slices.Contains(s.Required, name) == field.Value.Nullable {
			l.complain("%s.%s: in a request null is absent: what may be absent is nullable, and "+
				"nothing else", what, name)
		}
		l.request(what+"."+name, field)
	}
	l.request(what, s.Items)
	for _, parts := range []openapi3.SchemaRefs{s.AllOf, s.OneOf} {
		for _, part := range parts {
			l.request(what, part)
		}
	}
}

// examples checks that each schema of an answer is in an example.
func (l *linter) examples() {
	schemas := l.contract.Schemas()
	covered := map[string]bool{}
	for name, schema := range schemas {
		cover(ref(schemas, name), schema.Value.Example, covered)
	}
	for _, name := range slices.Sorted(maps.Keys(l.answers)) {
		if !covered[name] {
			l.complain("%s: no example has it", name[strings.LastIndexByte(name, '/')+1:])
		}
	}
	if len(l.answers) < 60 {
		l.complain("only %d schemas of answers", len(l.answers))
	}
}

// cover notes the schemas that a value of an example belongs to.
func cover(ref *openapi3.SchemaRef, value any, covered map[string]bool) {
	if ref == nil || value == nil {
		return
	}
	covered[ref.Ref] = true
	s := ref.Value
	for _, part := range s.AllOf {
		cover(part, value, covered)
	}
	for _, one := range s.OneOf {
		if one.Value.VisitJSON(value) == nil {
			cover(one, value, covered)
		}
	}
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			cover(s.Items, element, covered)
		}
	case map[string]any:
		for name, field := range s.Properties {
			cover(field, value[name], covered)
		}
	}
}

// TestOpenAPI_keeps_its_conventions: docs/internals/api-v1.md lists them.
func TestOpenAPI_keeps_its_conventions(t *testing.T) {
	for _, complaint := range lint(apitest.Load(t)) {
		t.Error(complaint)
	}
}

// TestOpenAPI_lint_complains breaks the contract in one place at a time.
func TestOpenAPI_lint_complains(t *testing.T) {
	for what, tt := range map[string]struct{ old, new, want string }{
		"a closed enum in an answer": {
			"x-extensible-enum: [message, system, edit, redact, react, pin, control]",
			"enum: [message, system]",
			"MessageKind: an enum of an answer is open"},
		"an enum of one value that names no variant": {
			"status: {type: string, x-extensible-enum: [ok]}", "status: {type: string, enum: [ok]}",
			"Health.status: an enum of an answer is open"},
		"a field in camel case": {
			"expires_in_seconds:\n          type", "expiresInSeconds:\n          type",
			"Typing.expiresInSeconds: names are snake_case"},
		"a parameter in camel case": {
			"name: for_sequence", "name: forSequence",
			"the parameter forSequence: names are snake_case"},
		"an old name": {
			"name: after_event_id", "name: after", "the parameter after: it has another"},
		"a time without _at": {
			"token: {type: string, desc", "token: {type: string, format: date-time, desc",
			"Token.token: send_by and names that end in _at"},
		"an _at that is no time": {
			"acked_at:\n          type: string\n          format: date-time",
			"acked_at:\n          type: string", "MemberBoundary.acked_at: send_by and names"},
		"seconds that are no number": {
			"heartbeat_seconds: {type: integer, minimum: 0}", "heartbeat_seconds: {type: boolean}",
			"SessionStart.heartbeat_seconds: seconds are an integer"},
		"a list without pagination": {
			"        pending: {type: array, items: {$ref: '#/components/schemas/Pending'}}\n" +
				"        pagination: {$ref: '#/components/schemas/Pagination'}\n",
			"        pending: {type: array, items: {$ref: '#/components/schemas/Pending'}}\n",
			"PendingList is a list without pagination"},
		"another shape of pages": {
			"next_cursor: {type: string, nullable: true}",
			"next_cursor: {type: string, nullable: true}\n        total: {type: integer}",
			"Pagination has [has_more next_cursor total]"},
		"a pagination of its own": {
			"        pagination: {$ref: '#/components/schemas/Pagination'}",
			"        pagination: {type: object}", "ChatList has a pagination of its own"},
		"a POST without x-retry": {
			"      x-retry: natural\n", "", "/chats/{chat_id}/members: x-retry is \"\""},
		"an unknown x-retry": {
			"x-retry: key", "x-retry: never", "POST /api/v1/chats: x-retry is \"never\""},
		"an unknown x-user": {
			"      x-user: optional", "      x-user: never",
			"POST /api/v1/chats: x-user is \"never\""},
		"an x-retry of a GET": {
			"operationId: getUnread", "operationId: getUnread\n      x-retry: natural",
			"GET /api/v1/unread: x-retry is \"natural\""},
		"an error that is no Problem": {
			"        '404': {$ref: '#/components/responses/NotFound'}\n",
			"        '404': {description: There is no such chat.}\n", " 404 is no Problem"},
		"a default answer": {
			"        '204': {description: They have ended.}\n",
			"        '204': {description: They have ended.}\n        default: {description: x}\n",
			"a default would allow all"},
		"429 without Retry-After": {
			"        Retry-After:\n          required: true", "        Retry-After:",
			"429: Retry-After is needed"},
		"an event of EventSource": {
			"          problem: '#/components/schemas/ProblemEvent'\n",
			"          error: '#/components/schemas/ProblemEvent'\n",
			"Event: error: names are snake_case, and not those of EventSource"},
		"an event without a mapping": {
			"          typing: '#/components/schemas/TypingEvent'\n", "",
			"Event: TypingEvent has no type of its own, or the mapping lacks it"},
		"an event whose type is another": {
			"enum: [own_state]", "enum: [ownState]",
			"Event: OwnStateEvent has no type of its own"},
		"a union without a discriminator": {
			"      discriminator:\n        propertyName: scope\n        mapping:\n" +
				"          member: '#/components/schemas/MemberBoundary'\n" +
				"          chat: '#/components/schemas/ChatBoundary'\n", "",
			"StatusUpdate: one of several has no discriminator"},
		"an answer without an example": {
			"      example: {status: ok}\n", "", "Health: no example has it"},
		"an answer in no example": {
			"peer: {user_id: alice, last_acked_sequence: 1, last_read_sequence: 1}", "peer: null",
			"Peer: no example has it"},
		"a body without an example": {
			"      example: {user_id: bob, ttl_seconds: 900}\n", "",
			"POST /api/v1/tokens: its body has no example"},
		"a field of an answer that may be absent": {
			"required: [user_id, role, joined_at, metadata]",
			"required: [user_id, role, joined_at]",
			"Member.metadata: answers have every field"},
		"a field of a frame that may be absent": {
			"required: [code, detail, param]", "required: [code, detail]",
			"ProblemDetail.param: answers have every field"},
		"a field of a request that may be absent and not null": {
			"ttl_seconds: {type: integer, nullable: true", "ttl_seconds: {type: integer",
			"TokenRequest.ttl_seconds: in a request null is absent"},
		"a field of a frame that may be null and not absent": {
			"required: [chat_id, last_acked_sequence]\n",
			"required: [chat_id, last_acked_sequence, incarnation]\n",
			"SyncCursor.incarnation: in a request null is absent"},
		"an operation without a summary": {
			"      summary: My own sessions\n", "", "GET /api/v1/sessions: operationId"},
		"a parameter without a description": {
			"          description: The session that stays.\n", "",
			"the parameter except has no description"},
	} {
		t.Run(what, func(t *testing.T) {
			wrong := strings.Replace(string(tidemark.OpenAPI), tt.old, tt.new, 1)
			if wrong == string(tidemark.OpenAPI) {
				t.Fatalf("openapi.yaml does not have %q", tt.old)
			}
			contract, err := apitest.Parse([]byte(wrong))
			if err != nil {
				t.Fatal(err)
			}
			got := lint(contract)
			if !strings.Contains(strings.Join(got, "\n"), tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
