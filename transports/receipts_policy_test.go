package transports_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/rest"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// readsOf returns what a caller sees that the others have read of the chat team. It leaves out dan,
// who wrote the messages.
func readsOf(u as) map[string]int64 {
	u.t.Helper()
	seen := map[string]int64{}
	for _, m := range get[rest.DeliveryStatus](u, 200, "GET", "/chats/team/delivery-status",
		"").Members {
		if u.credentials != "Bearer dev:"+m.UserId && m.UserId != "dan" {
			seen[m.UserId] = m.LastReadSequence
		}
	}
	return seen
}

// The policy of a chat comes before what its three members have set: required shows all reads, off
// hides them and shows nobody those of others, and optional leaves it to the members again.
func TestReceipts_shown_within_real_policy_over_rest(t *testing.T) {
	key, keys := transporttest.APIKey(t)
	ann := start(t, options{auth: auth.Config{Dev: true, APIKeys: keys}}).as("ann")
	bob, cid := ann.as("bob"), ann.as("cid")
	backend := as{api: ann.api, credentials: "Bearer " + key}
	get[rest.Chat](ann, 201, "POST", "/chats",
		`{"type":"group","chat_id":"team","member_ids":["bob","cid","dan"]}`)
	for i := range 6 {
		send(ann.as("dan"), fmt.Sprint("a", i), "hello")
	}
	get[rest.ReceiptsSettings](bob, 200, "PUT", "/receipts/settings", `{"read_receipts":"off"}`)
	policy := func(to string) {
		t.Helper()
		changed := get[rest.Chat](backend, 200, "PATCH", "/chats/team",
			fmt.Sprintf(`{"read_receipts":%q}`, to))
		if seen := get[rest.Chat](cid, 200, "GET", "/chats/team", ""); seen.ReadReceipts != to ||
			changed.ReadReceipts != to {
			t.Errorf("the policy is %s, and a member sees %s, want %s", changed.ReadReceipts,
				seen.ReadReceipts, to)
		}
	}
	read := func(n int) {
		t.Helper()
		for _, u := range []as{ann, bob, cid} {
			get[rest.DeliveryState](u, 200, "PATCH", "/chats/team/delivery-state",
				fmt.Sprintf(`{"last_read_sequence":%d}`, n))
		}
	}
	want := func(what string, ofAnn, ofBob, ofCid int64, hidden bool) {
		t.Helper()
		all := map[string]int64{"ann": ofAnn, "bob": ofBob, "cid": ofCid}
		if diff := cmp.Diff(all, readsOf(backend)); diff != "" {
			t.Errorf("%s: shown (-want +got):\n%s", what, diff)
		}
		for _, u := range []as{ann, bob} {
			seen := get[rest.ReceiptsSettings](u, 200, "GET", "/receipts/settings?chat_id=team", "")
			of, hides := map[string]int64{}, hidden
			if what == "optional" {
				hides = u.credentials == bob.credentials
			}
			for user, n := range all {
				if hides {
					n = 0
				}
				if u.credentials != "Bearer dev:"+user {
					of[user] = n
				}
			}
			if diff := cmp.Diff(of, readsOf(u)); diff != "" {
				t.Errorf("%s: %s sees (-want +got):\n%s", what, u.credentials, diff)
			}
			if seen.Hidden != hides || seen.ChatReadReceipts == nil ||
				*seen.ChatReadReceipts != what {
				t.Errorf("%s: the setting of %s is %+v", what, u.credentials, seen)
			}
		}
	}
	read(1)
	want("optional", 1, 0, 1, false)
	policy("required")
	read(2)
	want("required", 2, 2, 2, false)
	policy("off")
	read(3)
	want("off", 2, 2, 2, true)
	policy("optional")
	want("optional", 2, 2, 2, false)
	read(4)
	want("optional", 4, 2, 4, false)
	// What a send reads is written a little later, but before a change of the policy.
	get[rest.Message](cid, 201, "POST", "/chats/team/messages",
		`{"client_message_id":"c1","content":"x","seen_sequence":6}`)
	policy("off")
	want("off", 4, 2, 7, true)
	if r := ann.do("PATCH", "/chats/team", `{"read_receipts":"required"}`); r.StatusCode != 403 ||
		r.code() != "DENIED" || r.param() != "read_receipts" {
		t.Errorf("an owner: %d %s", r.StatusCode, r.body)
	}
	all := get[rest.ReceiptsSettings](bob, 200, "GET", "/receipts/settings", "")
	if !all.Hidden || all.ChatReadReceipts != nil {
		t.Errorf("the setting for all chats is %+v", all)
	}
}

// A change of who sees what is read is recorded, as one of what may be removed.
func TestAudit_audited_before_done_policy_of_receipts(t *testing.T) {
	store := memory.New()
	s := auditStack(t, store)
	known := map[storage.AuditID]bool{}
	for body, want := range map[string]int{`{"name":"x"}`: 0, `{"read_receipts":"off"}`: 1} {
		exchange{who: "backend", method: "PATCH", path: "/chats/team", body: body,
			status: 200}.try(t, s)
		added := entriesOf(t, store, known)
		if len(added) != want || want > 0 && added[0].Target != (audit.Target{Chat: "team"}) {
			t.Errorf("after %s: got entries %+v, want %d", body, added, want)
		}
	}
}
