package transports_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestAudit_audited_before_done_not_refused_after_the_effect makes calls that have their effect,
// and whose answer is refused after that.
func TestAudit_audited_before_done_not_refused_after_the_effect(t *testing.T) {
	for _, c := range []struct {
		operation string
		exchange
		// effect is the step of the store after which the others refuse.
		effect string
		then   []string
		target audit.Target
	}{
		{"updateChat", exchange{who: "key", method: "PATCH", path: "/chats/team",
			body: `{"keep_days":30}`, status: 503, code: "UNAVAILABLE"},
			"UpdateChat", []string{"Chat"}, audit.Target{Chat: "team"}},
		{"addMembers", exchange{who: "key", method: "POST", path: "/chats/team/members",
			body: `{"user_ids":["dan"],"role":"admin"}`, status: 503, code: "UNAVAILABLE"},
			"AddMembers", []string{"Rosters"}, audit.Target{User: "dan", Chat: "team"}},
		{"exportUser", exchange{who: "key", method: "GET", path: "/users/ann/export", status: 200},
			"BlocksOf", []string{"ChatsNaming"}, audit.Target{User: "ann"}},
	} {
		t.Run(c.operation, func(t *testing.T) {
			var armed, happened atomic.Bool // which the server reads also in the background
			store := storagetest.Fault(memory.New())
			store.After = func(method string) error {
				if armed.Load() && method == c.effect {
					happened.Store(true)
				}
				return nil
			}
			store.Before = func(method string) error {
				if happened.Load() && slices.Contains(c.then, method) {
					return tidemark.Errorf(tidemark.NotFound, "it is gone")
				}
				return nil
			}
			s := auditStack(t, store)
			armed.Store(true)
			c.try(t, s)
			if !happened.Load() {
				t.Fatalf("the call did not reach %s", c.effect)
			}
			want := []audit.Entry{{
				Key: "backend", Operation: c.operation, Target: c.target,
				State: storage.AuditUnknown, Code: tidemark.Unavailable,
			}}
			got := entriesOf(t, store, map[storage.AuditID]bool{})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAudit_names_an_outlet_without_an_id creates an outlet whose id the server chooses.
func TestAudit_names_an_outlet_without_an_id(t *testing.T) {
	store := memory.New()
	s := auditStack(t, store)
	res := exchange{who: "key", method: "POST", path: "/admin/outlets", status: 201,
		body: `{"type":"webhook","url":"https://hook.example.com/own"}`}.try(t, s)
	var made struct {
		ID string `json:"outlet_id"`
	}
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil || made.ID == "" {
		t.Fatalf("got the outlet %q and error %v", made.ID, err)
	}
	got := entriesOf(t, store, map[storage.AuditID]bool{})
	if len(got) != 1 || got[0].Target != (audit.Target{Outlet: made.ID}) {
		t.Errorf("got entries %+v, want one that names %s", got, made.ID)
	}
}

// TestAudit_audited_before_done_unless_users_are_refused makes calls that are refused, and reads
// the log.
func TestAudit_audited_before_done_unless_users_are_refused(t *testing.T) {
	s := auditStack(t, nil)
	entries := func() (found []string) {
		t.Helper()
		res := exchange{who: "key", method: "GET", path: "/audit", status: 200}.try(t, s)
		var page struct {
			Entries []struct {
				Operation, State, Code string
				Key                    string `json:"key_name"`
				Actor                  string `json:"actor_id"`
			}
		}
		if err := json.NewDecoder(res.Body).Decode(&page); err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			found = append(found, strings.Join(
				[]string{e.Key, e.Actor, e.Operation, e.State, e.Code}, " "))
		}
		return found
	}
	for _, c := range []struct {
		exchange
		times int
		want  []string
	}{
		// A member who may not ban, and somebody who is no member.
		{exchange{who: "bob", path: "/chats/team/bans/cid", status: 403, code: "DENIED"}, 100, nil},
		{exchange{who: "zed", path: "/chats/team/bans/cid", status: 403, code: "NOT_A_MEMBER"},
			1, nil},
		{exchange{who: "backend", path: "/chats/none/bans/cid", status: 404, code: "NOT_FOUND"},
			1, []string{"backend ann putBan refused NOT_FOUND"}},
	} {
		c.method = "PUT"
		for range c.times {
			c.try(t, s)
		}
		if diff := cmp.Diff(c.want, entries()); diff != "" {
			t.Errorf("after calls of %s, the entries (-want +got):\n%s", c.who, diff)
		}
	}
}
