package transports_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// The examples of ADR-008, Appendix F, in its own words. No command rewrites them.
const (
	statusOfAppendix = `{
  "chat_id": "chat_01HQX...",
  "chat_type": "group",
  "member_count": 5,
  "delivery_summary": {
    "sequence": 47,
    "delivered_count": 4,
    "pending_count": 1,
    "all_delivered": false
  },
  "members": [
    {
      "user_id": "user_01ABC...",
      "display_name": "Alice",
      "last_acked_sequence": 47,
      "updated_at": "2026-01-31T10:00:05.000Z"
    },
    {
      "user_id": "user_01DEF...",
      "display_name": "Bob",
      "last_acked_sequence": 45,
      "updated_at": "2026-01-31T09:58:00.000Z"
    }
  ],
  "pagination": {
    "has_more": false,
    "next_cursor": null
  }
}`
	updateOfAppendix = `{
  "last_acked_sequence": 47
}`
	updatedOfAppendix = `{
  "chat_id": "chat_01HQX...",
  "user_id": "user_01ABC...",
  "last_acked_sequence": 47,
  "updated_at": "2026-01-31T10:00:05.000Z"
}`
)

// additions are the fields that Tidemark adds to those of Appendix F, by the path of their object.
// openapi.yaml documents them: every exchange of a test is compared with it.
func additions() map[string][]string {
	return map[string][]string{
		"delivery status":                  nil,
		"delivery status.delivery_summary": {"read_count", "all_read"},
		"delivery status.members[]":        {"last_read_sequence"},
		"delivery state":                   {"last_read_sequence"},
	}
}

// scene creates the chat of the appendix. It has 47 messages of its third member. All five members
// have all of them, but for Bob, who has 45.
func scene(t *testing.T) *transporttest.Stack {
	t.Helper()
	s := transporttest.New(t, transporttest.Options{})
	exchange{who: "user_02", method: "POST", path: "/chats", status: 201,
		body: `{"type":"group","chat_id":"chat_01HQX","member_ids":["user_01ABC","user_01DEF",` +
			`"user_03","user_04"]}`}.try(t, s)
	s.Send("user_02", "chat_01HQX", 1, 47)
	for _, user := range []string{"user_01ABC", "user_01DEF", "user_02", "user_03", "user_04"} {
		body := updateOfAppendix
		if user == "user_01DEF" {
			body = `{"last_acked_sequence":45}`
		}
		update(user, body, 200, "").try(t, s)
	}
	return s
}

func status(who, query string, code int, name string) exchange {
	return exchange{who: who, method: "GET", path: "/chats/chat_01HQX/delivery-status" + query,
		status: code, code: name}
}

func update(who, body string, code int, name string) exchange {
	return exchange{who: who, method: "PATCH", path: "/chats/chat_01HQX/delivery-state",
		body: body, status: code, code: name}
}

// TestAppendixF_1_delivery_status: the answer has the fields, order, types and numbers of ADR-008
// F.1, and no others but those documented. Its errors have the statuses and codes of F.1.
func TestAppendixF_1_delivery_status(t *testing.T) {
	s := scene(t)
	want := parsed(t, strings.NewReader(statusOfAppendix))
	for _, query := range []string{"", "?for_sequence=47"} {
		got := parsed(t, status("user_01ABC", query, 200, "").try(t, s).Body)
		if members := len(got.fields["members"].list); members != 5 {
			t.Errorf("%d members, want all 5", members)
		}
		compareNodes(t, "delivery status", want, got)
	}
	for query, all := range map[string]string{
		"?for_sequence=45": `"delivered_count":5,"pending_count":0,"all_delivered":true`,
		"?for_sequence=46": `"delivered_count":4,"pending_count":1,"all_delivered":false`,
	} {
		raw, err := io.ReadAll(status("user_01DEF", query, 200, "").try(t, s).Body)
		if err != nil || !bytes.Contains(raw, []byte(all)) {
			t.Errorf("%s: %s, %v, want %s", query, raw, err, all)
		}
	}
	missing := status("user_01ABC", "", 404, "NOT_FOUND")
	missing.path = "/chats/chat_02/delivery-status"
	for _, e := range []exchange{
		status("stranger", "", 403, "NOT_A_MEMBER"),
		status("stranger", "?for_sequence=47", 403, "NOT_A_MEMBER"),
		missing,
		// The appendix does not say what a sequence above the head is. It is as in F.2.
		status("user_01ABC", "?for_sequence=48", 422, "INVALID_SEQUENCE"),
	} {
		e.try(t, s)
	}
}

// TestAppendixF_2_delivery_state: the body of ADR-008 F.2 is taken as it stands there. The answer
// has the fields, order, types and numbers of F.2, and no others but those documented. Its errors
// have the statuses and codes of F.2.
func TestAppendixF_2_delivery_state(t *testing.T) {
	s := scene(t)
	want := parsed(t, strings.NewReader(updatedOfAppendix))
	for _, body := range []string{updateOfAppendix, `{"last_acked_sequence":46}`} { // 46 is stale
		got := parsed(t, update("user_01ABC", body, 200, "").try(t, s).Body)
		compareNodes(t, "delivery state", want, got)
	}
	for _, e := range []exchange{
		update("stranger", updateOfAppendix, 403, "NOT_A_MEMBER"),
		update("user_01DEF", `{"last_acked_sequence":48}`, 422, "INVALID_SEQUENCE"),
		// "must be > 0"; the appendix names no other code for it.
		update("user_01DEF", `{"last_acked_sequence":0}`, 422, "INVALID_SEQUENCE"),
		update("user_01DEF", `{"last_acked_sequence":-1}`, 422, "INVALID_SEQUENCE"),
		update("user_01DEF", `{}`, 400, "INVALID"),
	} {
		e.try(t, s)
	}
	// What was refused has changed nothing.
	raw, err := io.ReadAll(status("user_01DEF", "", 200, "").try(t, s).Body)
	if err != nil || !bytes.Contains(raw, []byte(`"display_name":"user_01DEF",`+
		`"last_acked_sequence":45,`)) {
		t.Errorf("Bob is no longer at 45: %s, %v", raw, err)
	}
}

// node is a JSON value with the order of its fields.
type node struct {
	names  []string
	fields map[string]node
	list   []node
	// value is a string, a json.Number, a bool or nil, or the delimiter of an object or list.
	value any
}

func parsed(t *testing.T, r io.Reader) node {
	t.Helper()
	d := json.NewDecoder(r)
	d.UseNumber()
	n, err := next(d)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func next(d *json.Decoder) (n node, err error) {
	if n.value, err = d.Token(); err != nil {
		return n, err
	}
	object := n.value == json.Delim('{')
	if !object && n.value != json.Delim('[') {
		return n, nil
	}
	n.fields = map[string]node{}
	for d.More() {
		var name any = ""
		if object {
			if name, err = d.Token(); err != nil {
				return n, err
			}
		}
		inner, err := next(d)
		if err != nil {
			return n, err
		}
		if object {
			n.names, n.fields[name.(string)] = append(n.names, name.(string)), inner
		} else {
			n.list = append(n.list, inner)
		}
	}
	_, err = d.Token()
	return n, err
}

// instant is the form of the appendix's times.
func instant() *regexp.Regexp {
	return regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
}

// compareNodes compares a value with that of the appendix. A text of the appendix that ends in dots
// is the beginning of the text. Of a time and of a display name it compares the type.
func compareNodes(t *testing.T, path string, want, got node) {
	t.Helper()
	if a, b := fmt.Sprintf("%T", want.value), fmt.Sprintf("%T", got.value); a != b {
		t.Errorf("%s is a %s, want a %s", path, b, a)
		return
	}
	own := slices.DeleteFunc(slices.Clone(got.names), func(name string) bool {
		return slices.Contains(additions()[path], name)
	})
	if !slices.Equal(own, want.names) {
		t.Errorf("%s has the fields %q, want %q in this order, and may have %q",
			path, got.names, want.names, additions()[path])
	}
	for _, name := range want.names {
		if field, ok := got.fields[name]; ok {
			compareNodes(t, path+"."+name, want.fields[name], field)
		}
	}
	for i, element := range want.list {
		if i < len(got.list) {
			compareNodes(t, path+"[]", element, got.list[i])
		}
	}
	text, ok := want.value.(string)
	switch {
	case !ok && got.value != want.value,
		instant().MatchString(text) && !instant().MatchString(got.value.(string)),
		strings.HasSuffix(text, "...") && got.value != strings.TrimSuffix(text, "..."),
		strings.HasSuffix(path, ".chat_type") && got.value != text:
		t.Errorf("%s is %v, want %v", path, got.value, want.value)
	}
}
