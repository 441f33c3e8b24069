package transports_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/apitest"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// audited has the operations that are audited, with what a call of a good request concerns. A body
// takes the place of the good one's.
var audited = map[string]struct {
	body   string
	target audit.Target
}{
	"updateChat": {`{"keep_days":30}`, audit.Target{Chat: "team"}},
	"deleteChat": {"", audit.Target{Chat: "team-2"}},
	"addMembers": {
		`{"user_ids":["dan"],"role":"admin"}`, audit.Target{User: "dan", Chat: "team"},
	},
	"updateMember":     {"", audit.Target{User: "cid", Chat: "team"}},
	"removeMember":     {"", audit.Target{User: "cid", Chat: "team"}},
	"putBan":           {"", audit.Target{User: "zed", Chat: "team"}},
	"removeBan":        {"", audit.Target{User: "zed", Chat: "team"}},
	"putSuspension":    {"", audit.Target{User: "zoe"}},
	"deleteSuspension": {"", audit.Target{User: "zoe"}},
	"signOutUser":      {"", audit.Target{User: "zoe"}},
	"signOut":          {"", audit.Target{User: "ann"}},
	"startErasure":     {"", audit.Target{User: "uma"}},
	"exportUser":       {"", audit.Target{User: "ann"}},
	"createOutlet":     {"", audit.Target{Outlet: "new"}},
	"updateOutlet":     {"", audit.Target{Outlet: "crm"}},
	"deleteOutlet":     {"", audit.Target{Outlet: "crm"}},
	"replayOutlet":     {"", audit.Target{Chat: "team", Outlet: "crm"}},

	"endSession":  {"", audit.Target{User: "ann"}},
	"endSessions": {"", audit.Target{User: "ann"}},

	"createOutletSecret": {"", audit.Target{Outlet: "old"}},
	// Only redactions are; the message is of bob.
	"sendMessage": {
		`{"client_message_id":"c9","kind":"redact","relation":{"sequence":2}}`,
		audit.Target{User: "bob", Chat: "team", Sequence: 2},
	},
}

// Why operations are not audited.
const (
	reads    = "it changes nothing"
	own      = "a user does it to themselves, or a key for them"
	adds     = "it takes nothing from anybody"
	again    = "the outlet gets what it gets anyway"
	operates = "it is for probes"
	logins   = "backends do it at each login, and it changes nothing that is stored"
)

// notAudited has the operations that are not audited, and why.
var notAudited = map[string]string{
	"listChats": reads, "getChat": reads, "listMembers": reads, "listBans": reads,
	"listBlocks": reads, "listMessages": reads, "listReactions": reads, "listPins": reads,
	"getDeliveryState": reads, "getDeliveryStatus": reads, "listDeliveryStates": reads,
	"listStatuses": reads, "getUnread": reads, "listPending": reads, "listSessions": reads,
	"getPresence": reads, "getReceiptsSettings": reads, "getPush": reads, "sync": reads,
	"getAttachment": reads, "getErasure": reads, "getSuspension": reads, "getStats": reads,
	"listAudit": reads, "listOutlets": reads, "getOutlet": reads, "listOutletFailures": reads,
	"listParkedEvents": reads, "streamEvents": reads, "poll": reads, "connectWebSocket": reads,
	"putBlock": own, "removeBlock": own, "updateDeliveryState": own, "markUnread": own,
	"sendTyping": own, "putLook": own,
	"putPresenceSettings": own, "putReceiptsSettings": own, "putPushSettings": own,
	"registerDevice": own, "dropDevice": own, "acknowledgePush": own, "acknowledge": own,
	"createTicket": own, "createAttachment": own, "createToken": logins,
	"createChat": adds,
	"testOutlet": again, "resendParkedEvent": again,
	"health": operates, "ready": operates, "metrics": operates, "openapi": operates,
}

// TestAudit_audited_before_done_decided_of_each_operation requires that somebody has decided.
func TestAudit_audited_before_done_decided_of_each_operation(t *testing.T) {
	seen := 0
	for _, call := range apitest.Load(t).Calls() {
		_, is := audited[call.OperationID]
		why, not := notAudited[call.OperationID]
		if is == not || not && why == "" {
			t.Errorf("%s is in the tables: %v, %v; want one of them", call.OperationID, is, not)
		}
		seen++
	}
	if got := len(audited) + len(notAudited); got != seen {
		t.Errorf("the tables have %d operations, want the %d of openapi.yaml", got, seen)
	}
}

// auditStack returns a server on a store, with a key of all scopes.
func auditStack(t *testing.T, store storage.Store) *transporttest.Stack {
	key, keys := transporttest.APIKey(t)
	s := transporttest.New(t, transporttest.Options{
		Storage: store, Auth: auth.Config{APIKeys: keys},
	})
	s.Backend = key
	team(s, t)
	exchange{who: "bob", method: "POST", path: "/chats/team/messages", status: 201,
		body: `{"client_message_id":"b1","content":"x"}`}.try(t, s)
	return s
}

// entriesOf returns the entries of a store, except those that are known, without ids and times.
func entriesOf(
	t *testing.T, store storage.Store, known map[storage.AuditID]bool,
) (entries []audit.Entry) {
	t.Helper()
	found, _, err := store.ListAudit(t.Context(), storage.AuditPage{Limit: storage.MaxAudit})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		if known[e.ID] {
			continue
		}
		known[e.ID] = true
		if e.EndedAt.IsZero() || e.Request == "" {
			t.Errorf("%+v has no end, or no request", e)
		}
		e.ID, e.Request, e.EndedAt = "", "", time.Time{}
		entries = append(entries, e)
	}
	return entries
}

// TestAudit_audited_before_done_by_keys makes each call with a key.
func TestAudit_audited_before_done_by_keys(t *testing.T) {
	store := memory.New()
	s := auditStack(t, store)
	requests, known := good(), map[storage.AuditID]bool{}
	for _, operation := range inOrder(requests) {
		e, want := requests[operation], audited[operation]
		if e.who == "ann" {
			e.who = "backend"
		}
		if want.body != "" {
			e.body = want.body
		}
		if operation == "startErasure" { // The good one was asked for before.
			e.path = strings.Replace(e.path, "yan", "uma", 1)
		}
		e.try(t, s)
		added := entriesOf(t, store, known)
		if _, is := audited[operation]; !is {
			if len(added) > 0 {
				t.Errorf("%s: got entries %+v, want none", operation, added)
			}
			continue
		}
		actor := tidemark.UserID("")
		if e.who == "backend" {
			actor = "ann"
		}
		if len(added) != 1 {
			t.Errorf("%s: got %d entries, want 1", operation, len(added))
			continue
		}
		if diff := cmp.Diff(audit.Entry{
			Key: "backend", Actor: actor, Operation: operation, Target: want.target,
			State: storage.AuditDone,
		}, added[0]); diff != "" {
			t.Errorf("the entry of %s (-want +got):\n%s", operation, diff)
		}
	}
}

// TestAudit_audited_before_done_by_users makes calls that users make of others, and of themselves.
func TestAudit_audited_before_done_by_users(t *testing.T) {
	redact := func(n string) string {
		return `{"client_message_id":"r` + n + `","kind":"redact",` +
			`"relation":{"sequence":` + n + `}}`
	}
	redactAll := func(list string) string {
		return `{"client_message_id":"all","kind":"redact","relation":{"sequences":[` + list + `]}}`
	}
	messages, asCid := "/chats/team/messages", [2]string{"X-User-ID", "cid"}
	for _, c := range []struct {
		name string
		exchange
		want []audit.Entry
	}{
		{"their own message", exchange{who: "bob", method: "POST", path: messages,
			body: redact("2"), status: 201}, nil},
		{"a message of another user", exchange{who: "ann", method: "POST", path: messages,
			body: redact("2"), status: 201}, []audit.Entry{{
			Actor: "ann", Operation: "sendMessage", State: storage.AuditDone,
			Target: audit.Target{User: "bob", Chat: "team", Sequence: 2},
		}}},
		{"a message that they may not redact", exchange{who: "bob", method: "POST", path: messages,
			body: redact("1"), status: 403}, nil},
		{"a list of their own", exchange{who: "bob", method: "POST", path: messages,
			body: redactAll("2"), status: 201}, nil},
		{"a list with messages of another user", exchange{who: "ann", method: "POST",
			path: messages, body: redactAll("1,2"), status: 201}, []audit.Entry{{
			Actor: "ann", Operation: "sendMessage", State: storage.AuditDone,
			Target: audit.Target{User: "bob", Chat: "team", Sequence: 2},
		}}},
		{"a list with messages of several users", exchange{who: "key", method: "POST",
			path: messages, body: redactAll("1,2"), header: asCid, status: 201}, []audit.Entry{{
			Key: "backend", Actor: "cid", Operation: "sendMessage", State: storage.AuditDone,
			Target: audit.Target{Chat: "team", Sequence: 1},
		}}},
		{"no message", exchange{who: "ann", method: "POST", path: messages, body: redact("9"),
			status: 404}, nil},
		{"leaving", exchange{who: "bob", method: "DELETE", path: "/chats/team/members/bob",
			status: 204}, nil},
		{"removing", exchange{who: "ann", method: "DELETE", path: "/chats/team/members/bob",
			status: 204}, []audit.Entry{{
			Actor: "ann", Operation: "removeMember", State: storage.AuditDone,
			Target: audit.Target{User: "bob", Chat: "team"},
		}}},
		{"removing without the right", exchange{who: "bob", method: "DELETE",
			path: "/chats/team/members/cid", status: 403}, nil},
		{"a name", exchange{who: "ann", method: "PATCH", path: "/chats/team",
			body: `{"name":"Crew"}`, status: 200}, nil},
		{"a member without a role", exchange{who: "ann", method: "POST",
			path: "/chats/team/members", body: `{"user_ids":["dan"]}`, status: 200}, nil},
		{"metadata", exchange{who: "ann", method: "PATCH", path: "/chats/team/members/bob",
			body: `{"metadata":{}}`, status: 200}, nil},
		{"signing out", exchange{who: "bob", method: "POST", path: "/sign-out", status: 200}, nil},
		{"ending their sessions", exchange{who: "bob", method: "DELETE", path: "/sessions",
			status: 204}, nil},
		{"the log", exchange{who: "ann", method: "GET", path: "/audit", status: 403}, nil},
		{"what no key allows", exchange{who: "bob", method: "PUT", path: "/users/zoe/suspension",
			body: `{}`, status: 403}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memory.New()
			s := auditStack(t, store)
			c.try(t, s)
			got := entriesOf(t, store, map[storage.AuditID]bool{})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAudit_audited_before_done_in_doubt redacts a list of messages whose authors cannot be read.
func TestAudit_audited_before_done_in_doubt(t *testing.T) {
	var broken atomic.Bool // the server calls the store meanwhile
	store := storagetest.Fault(memory.New())
	store.Before = func(method string) error {
		if broken.Load() && method == "Ranges" {
			return tidemark.Errorf(tidemark.Unavailable, "no answer")
		}
		return nil
	}
	s := auditStack(t, store)
	broken.Store(true)
	exchange{who: "ann", method: "POST", path: "/chats/team/messages", status: 201,
		body: `{"client_message_id":"c9","kind":"redact","relation":{"sequences":[1,2]}}`,
	}.try(t, s)
	got := entriesOf(t, store, map[storage.AuditID]bool{})
	want := []audit.Entry{{
		Actor: "ann", Operation: "sendMessage", State: storage.AuditDone,
		Target: audit.Target{Chat: "team", Sequence: 1},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// TestAudit_audited_before_done_or_refused makes calls while the log cannot be written. They have
// no effect.
func TestAudit_audited_before_done_or_refused(t *testing.T) {
	var broken atomic.Bool // the server calls the store meanwhile
	store := storagetest.Fault(memory.New())
	store.Before = func(method string) error {
		if broken.Load() && method == "RecordAudit" {
			return tidemark.Errorf(tidemark.Unavailable, "the disk is full")
		}
		return nil
	}
	s := auditStack(t, store)
	broken.Store(true)
	requests := good()
	for operation, want := range audited {
		e := requests[operation]
		if e.who == "ann" {
			e.who = "backend"
		}
		if want.body != "" {
			e.body = want.body
		}
		if operation != "sendMessage" { // The entry follows a redaction.
			e.status, e.code = http.StatusServiceUnavailable, "UNAVAILABLE"
		}
		e.try(t, s)
	}
	broken.Store(false)
	if got := entriesOf(t, store, map[storage.AuditID]bool{}); len(got) > 0 {
		t.Errorf("got entries %+v, want none", got)
	}
	for _, e := range []exchange{
		{who: "key", method: "GET", path: "/chats/team-2", status: 200},
		{who: "key", method: "GET", path: "/admin/outlets/crm", status: 200},
		{who: "key", method: "GET", path: "/admin/outlets/new", status: 404},
		{who: "ann", method: "DELETE", path: "/chats/team/members/cid", status: 204},
		{who: "ann", method: "POST", path: "/chats/team/members", status: 200,
			body: `{"user_ids":["zed"]}`},
	} {
		e.try(t, s)
	}
}

// TestAudit_list reads the log with each filter, page by page.
func TestAudit_list(t *testing.T) {
	s := auditStack(t, memory.New())
	for _, e := range []exchange{
		{who: "key", method: "POST", path: "/users/zoe/sign-out", status: 200},
		{who: "ann", method: "PUT", path: "/chats/team/bans/zed", status: 204},
		{who: "backend", method: "DELETE", path: "/chats/team/bans/zed", status: 204},
		{who: "ann", method: "DELETE", path: "/chats/team/members/cid", status: 204},
	} {
		e.try(t, s)
	}
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"", []string{"removeBan", "removeMember", "putBan", "signOutUser"}},
		{"user_id=zed", []string{"putBan", "removeBan"}},
		{"user_id=ann", []string{"putBan", "removeBan", "removeMember"}},
		{"chat_id=team", []string{"putBan", "removeBan", "removeMember"}},
		{"chat_id=team-2", nil},
		{"key=backend", []string{"removeBan", "signOutUser"}},
		{"operation=putBan", []string{"putBan"}},
		{"key=backend&user_id=zed", []string{"removeBan"}},
		{"begun_from=2999-01-01T00:00:00Z", nil},
		{"begun_before=2001-01-01T00:00:00Z", nil},
		{"begun_from=2001-01-01T00:00:00Z&begun_before=2999-01-01T00:00:00Z",
			[]string{"putBan", "removeBan", "removeMember", "signOutUser"}},
	} {
		var got []string
		next := ""
		for range 9 {
			res := exchange{who: "key", method: "GET", status: 200,
				path: "/audit?limit=1&" + c.query + next}.try(t, s)
			var page struct {
				Entries    []struct{ Operation string }
				Pagination struct {
					HasMore    bool    `json:"has_more"`
					NextCursor *string `json:"next_cursor"`
				}
			}
			if err := json.NewDecoder(res.Body).Decode(&page); err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entries {
				got = append(got, e.Operation)
			}
			if !page.Pagination.HasMore {
				break
			}
			next = "&cursor=" + *page.Pagination.NextCursor
		}
		// Entries of the same millisecond have any order.
		slices.Sort(got)
		slices.Sort(c.want)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.query, diff)
		}
	}
	for _, query := range []string{
		"cursor=x", "begun_from=x", "begun_before=2026", "begun_from=", "limit=0", "limit=",
		"user_id=", "key=a%20b",
	} {
		exchange{who: "key", method: "GET", path: "/audit?" + query, status: 400,
			code: "INVALID"}.try(t, s)
	}
}
