package test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/tidemark-im/tidemark/test/frozen"
)

const frozenContract = "testdata/openapi-v1.yaml"

// released matches the heading of a version in CHANGELOG.md.
var released = regexp.MustCompile(`(?m)^## \[[0-9]`)

// TestFrozen_contract_only_grows compares openapi.yaml with the version that clients were promised.
// TIDEMARK_UPDATE=1 writes that version. After the first release it writes only what breaks no
// client.
func TestFrozen_contract_only_grows(t *testing.T) {
	old, present := readFile(t, frozenContract), readFile(t, "../openapi.yaml")
	found := frozen.Breaks(contractOf(t, old), contractOf(t, present))
	changelog := readFile(t, "../CHANGELOG.md")
	if os.Getenv("TIDEMARK_UPDATE") != "" && (len(found) == 0 || !released.Match(changelog)) {
		must(t, os.WriteFile(frozenContract, present, 0o644))
		return
	}
	for _, broken := range found {
		t.Errorf("clients of version 1 break: %s", broken)
	}
	if !bytes.Equal(old, present) && !released.Match(changelog) {
		t.Errorf("%s is not a copy of openapi.yaml: run TIDEMARK_UPDATE=1 go test -run Frozen "+
			"./test (CONTRIBUTING.md says when)", frozenContract)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

func contractOf(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(text)
	must(t, err)
	return doc
}

// TestFrozen_breaking_changes_are_noticed makes one change at a time. want is a part of the text
// that Breaks returns.
func TestFrozen_breaking_changes_are_noticed(t *testing.T) {
	text := string(readFile(t, frozenContract))
	before := contractOf(t, []byte(text))
	for what, tt := range map[string]struct{ old, new, want string }{
		"a path is renamed": {
			"\n  /unread:", "\n  /unread-count:",
			"GET /api/v1/unread is gone"},
		"the base path changes": {
			"- url: /api/v1", "- url: /api", "GET /api/v1/chats is gone"},
		"a method is renamed": {
			"    put:\n      operationId: markUnread\n",
			"    post:\n      operationId: markUnread\n",
			"PUT /api/v1/chats/{chat_id}/delivery-state/unread is gone"},
		"an operationId is renamed": {
			"operationId: getUnread", "operationId: unread",
			"GET /api/v1/unread: the operationId"},
		"a parameter is renamed": {
			"- name: for_sequence", "- name: of_sequence",
			"the query parameter for_sequence is gone"},
		"a parameter becomes required": {
			"    cursor:\n      name: cursor\n",
			"    cursor:\n      name: cursor\n      required: true\n",
			"the query parameter cursor became required"},
		"a new parameter is required": {
			"        - name: except\n          in: query\n",
			"        - name: except\n          in: query\n        - name: now\n" +
				"          in: query\n          required: true\n",
			"the query parameter now is new and required"},
		"a bound of a parameter is narrowed": {
			"maxItems: 100\n", "maxItems: 50\n",
			"the query parameter chat_id: the maxItems was lowered to 50"},
		"a status is removed": {
			"        '410': {$ref: '#/components/responses/SessionGone'}\n", "",
			"the status 410 is gone"},
		"a header is removed": {
			"        WWW-Authenticate: {required: true, schema: {type: string}}\n",
			"        X-Other: {schema: {type: string}}\n",
			"401: the header WWW-Authenticate is gone"},
		"a header may be absent": {
			"        WWW-Authenticate: {required: true, ", "        WWW-Authenticate: {",
			"the header Www-Authenticate may be absent"},
		"credentials are refused": {
			"[{bearer: []}, {ticket: []}]", "[{bearer: []}]",
			"credentials [ticket] are accepted no more"},
		"credentials are sent in another way": {
			"      name: ticket\n", "      name: t\n",
			"the credentials ticket are sent in another way"},
		"a media type is removed": {
			"          text/plain: {schema: {type: string}}\n      responses", "      responses",
			"POST /api/v1/acks: the media type text/plain is gone"},
		"a call needs a user": {
			"x-retry: harmless\n      x-user: optional\n", "x-retry: harmless\n",
			"x-user was optional and is <nil>"},
		"a call needs credentials": {
			"summary: The process is alive\n      security: []\n",
			"summary: The process is alive\n",
			"credentials are needed"},
		"x-retry changes": {
			"x-retry: key", "x-retry: natural", "x-retry was key and is natural"},
		"a field of an answer is renamed": {
			"        member_count: {type: integer, minimum: 0}\n        head_sequence",
			"        members: {type: integer, minimum: 0}\n        head_sequence",
			"member_count is gone"},
		"a field of an answer has another type": {
			"chats_with_unread: {type: integer, format: int64, minimum: 0}",
			"chats_with_unread: {type: string}",
			"chats_with_unread: the type was"},
		"a number of an answer has another format": {
			"chats_with_unread: {type: integer, format: int64",
			"chats_with_unread: {type: integer, format: int32",
			"chats_with_unread: the type was [integer] int64"},
		"a field of an answer may be null": {
			"display_name: {type: string", "display_name: {nullable: true, type: string",
			"display_name may be null now"},
		"a field of an answer may be absent": {
			"required: [user_id, role, joined_at, metadata]",
			"required: [user_id, role, joined_at]",
			"metadata may be absent now"},
		"an id of an answer is longer": {
			"session_id: {type: string, maxLength: 128}", "session_id: {type: string}",
			"session_id: the maxLength was 128 and is higher"},
		"a count of an answer may be negative": {
			"read_count: {type: integer, minimum: 0}", "read_count: {type: integer}",
			"read_count: the minimum was 0 and is lower"},
		"a value of an answer is renamed": {
			"x-extensible-enum: [not_a_member, expired]", "x-extensible-enum: [expired]",
			"the values [not_a_member] are gone"},
		"a code is removed": {
			"        - SESSION_GONE\n", "", "the values [SESSION_GONE] are gone"},
		"an event is removed": {
			"          typing: '#/components/schemas/TypingEvent'\n", "",
			"events[]: typing is gone"},
		"an event is renamed": {
			"          own_state: '#/", "          own_unread: '#/",
			"events[]: own_state is gone"},
		"a scope is removed": {
			"          chat: '#/components/schemas/ChatBoundary'\n", "",
			": chat is gone"},
		"a field of an event is renamed": {
			"        resume_seconds: {", "        window_seconds: {",
			"resume_seconds is gone"},
		"an event loses its id": {
			"      required: [id, type, payload]\n      properties:\n" +
				"        id: {$ref: '#/components/schemas/EventId'}\n" +
				"        type: {type: string, " +
				"enum: [gap]}", "      required: [type, payload]\n      properties:\n" +
				"        type: {type: string, enum: [gap]}",
			"gap.id is gone"},
		"a frame of the server is removed": {
			"          hello: '#/components/schemas/HelloFrame'\n", "",
			"ReplyFrame: hello is gone"},
		"a frame of the client is renamed": {
			"          ping: '#/", "          heartbeat: '#/",
			"ClientFrame: ping is gone"},
		"a field of a frame becomes required": {
			"      required: [type]\n      properties:\n        type: {type: string, " +
				"enum: [ping]}", "      required: [type, request_id]\n      properties:\n" +
				"        type: {type: string, enum: [ping]}",
			"ping.request_id became required"},
		"a field of a request becomes required": {
			"required: [type, member_ids]", "required: [type, member_ids, name]",
			"name became required"},
		"a field of a request is renamed": {
			"        send_by:\n", "        store_by:\n", "send_by is gone"},
		"a field of a request may not be null": {
			"ttl_seconds: {type: integer, nullable: true", "ttl_seconds: {type: integer",
			"ttl_seconds may not be null any more"},
		"a maximum of a request is lowered": {
			"maximum: 3600", "maximum: 600", "the maximum was lowered to 600"},
		"a minimum of a request is raised": {
			"nullable: true, minimum: 1, max", "nullable: true, minimum: 60, max",
			"the minimum was raised to 60"},
		"a pattern of a request changes": {
			"pattern: '^[ -~]*$'", "pattern: '^[a-z/]*$'", "the pattern was"},
		"a default of a request changes": {
			"default: text/plain", "default: text/markdown", "the default was"},
		"a bound of an id is narrowed": {
			"      minLength: 1\n      maxLength: 128\n",
			"      minLength: 1\n      maxLength: 64\n",
			"the maxLength was lowered to 64"},
		"a closed enum of a request loses a value": {
			"enum: [owner, admin, member, reader]\n      description: A role to",
			"enum: [owner, admin, member]\n      description: A role to",
			"role: the values were [owner admin member reader]"},
		"a field of a request gets an enum": {
			"        name: {type: string, nullable: true, desc",
			"        name: {type: string, nullable: true, enum: [a, b], desc",
			"name: the values were []"},
		"a request needs other fields": {
			"        - required: [client_chat_id]\n" +
				"          properties: {client_chat_id: {type: string}}\n", "",
			"other fields are needed"},
		"unknown fields of a request are refused": {
			"    TokenRequest:\n      type: object\n",
			"    TokenRequest:\n      type: object\n      additionalProperties: false\n",
			"other fields are refused"},
	} {
		t.Run(what, func(t *testing.T) {
			got := frozen.Breaks(before, changed(t, text, tt.old, tt.new))
			if !strings.Contains(strings.Join(got, "\n"), tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// changed returns the contract with the first occurrence of old replaced.
func changed(t *testing.T, text, old, new string) *openapi3.T {
	t.Helper()
	after := strings.Replace(text, old, new, 1)
	if after == text {
		t.Fatalf("%s does not have %q", frozenContract, old)
	}
	return contractOf(t, []byte(after))
}

// TestFrozen_additions_pass: clients ignore what they do not know.
func TestFrozen_additions_pass(t *testing.T) {
	text := string(readFile(t, frozenContract))
	before := contractOf(t, []byte(text))
	for what, change := range map[string][2]string{
		"a path": {"\n  /unread:\n", "\n  /later:\n    get:\n      operationId: later\n" +
			"      responses: {'204': {description: Done.}}\n  /unread:\n"},
		"a parameter": {"        - name: except\n", "        - {name: why, in: query, " +
			"schema: {type: string}}\n        - name: except\n"},
		"a status": {"        '204': {description: They have ended.}\n",
			"        '202': {description: Soon.}\n" +
				"        '204': {description: They have ended.}\n"},
		"a header": {"        WWW-Authenticate: {", "        X-Other: {schema: {type: string}}\n" +
			"        WWW-Authenticate: {"},
		"credentials": {"[{bearer: []}, {ticket: []}]", "[{bearer: []}, {ticket: []}, {}]"},
		"a field of an answer": {"        chats_with_unread: {",
			"        oldest: {type: string}\n        chats_with_unread: {"},
		"a field of an answer that is always there": {
			"      required: [token, expires_at]\n      properties:\n",
			"      required: [token, expires_at, kind]\n      properties:\n" +
				"        kind: {type: string}\n"},
		"a value of an answer": {"x-extensible-enum: [not_a_member, expired]",
			"x-extensible-enum: [not_a_member, expired, later]"},
		"a code": {"        - SESSION_GONE\n", "        - SESSION_GONE\n        - TEAPOT\n"},
		"an event": {"        - {$ref: '#/components/schemas/ProblemEvent'}\n" +
			"      discriminator:\n        propertyName: type\n        mapping:\n",
			"        - {$ref: '#/components/schemas/ProblemEvent'}\n" +
				"        - {$ref: '#/components/schemas/HelloFrame'}\n" +
				"      discriminator:\n        propertyName: type\n        mapping:\n" +
				"          hello: '#/components/schemas/HelloFrame'\n"},
		"a field of an event": {"        resume_seconds: {type: integer, minimum: 0}\n",
			"        resume_seconds: {type: integer, minimum: 0}\n        node: {type: string}\n"},
		"an optional field of a request": {"        ttl_seconds: {",
			"        scope: {type: string, nullable: true}\n        ttl_seconds: {"},
		"a value of a request": {
			"enum: [owner, admin, member, reader]\n      description: A role to",
			"enum: [owner, admin, member, reader, guest]\n      description: A role to"},
		"a wider bound of a request":  {"maximum: 3600", "maximum: 7200"},
		"less is needed in a request": {"required: [type, member_ids]", "required: [type]"},
		"a narrower answer": {"read_count: {type: integer, minimum: 0}",
			"read_count: {type: integer, minimum: 0, maximum: 9}"},
		"other words": {"summary: My own sessions", "summary: Where I am"},
		"another example": {"      example: {user_id: bob, ttl_seconds: 900}",
			"      example: {user_id: bob, ttl_seconds: 60}"},
	} {
		if got := frozen.Breaks(before, changed(t, text, change[0], change[1])); got != nil {
			t.Errorf("%s: got %q, want nothing", what, got)
		}
	}
}
