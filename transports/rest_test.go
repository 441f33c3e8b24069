package transports_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/rest"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const group = `{"type":"group","chat_id":"team","name":"Team","member_ids":["bob"]}`

func send(u as, id, content string) rest.Message {
	u.t.Helper()
	return get[rest.Message](u, 201, "POST", "/chats/team/messages",
		fmt.Sprintf(`{"client_message_id":%q,"content":%q}`, id, content))
}

func TestChats_created_found_listed_renamed(t *testing.T) {
	ann := start(t, dev()).as("ann")
	bob := ann.as("bob")
	chat := get[rest.Chat](ann, 201, "POST", "/chats", group)
	if chat.ChatId != "team" || chat.Name != "Team" || chat.MemberCount != 2 ||
		chat.History != "full" || chat.HeadSequence != 0 || chat.LastMessage != nil {
		t.Errorf("%+v", chat)
	}
	if r := ann.do("POST", "/chats", group); r.StatusCode != 200 {
		t.Errorf("the same request again: %d %s", r.StatusCode, r.body)
	}
	if r := bob.do("POST", "/chats", group); r.StatusCode != 409 || r.code() != "CONFLICT" {
		t.Errorf("a taken chat_id: %d %s", r.StatusCode, r.body)
	}
	direct := get[rest.Chat](ann, 201, "POST",
		"/chats", `{"type":"direct","member_ids":["bob","ann"]}`)
	again := get[rest.Chat](bob, 200, "POST",
		"/chats", `{"type":"direct","member_ids":["ann"],"chat_id":"ignored"}`)
	if direct.ChatId != again.ChatId {
		t.Errorf("the direct chat exists twice: %s and %s", direct.ChatId, again.ChatId)
	}
	// Times have milliseconds, so send until a message is later than the direct chat.
	sent := int64(0)
	for last := direct.CreatedAt; !last.After(direct.CreatedAt); {
		sent++
		last = send(ann, fmt.Sprint("c", sent), "hello").CreatedAt
	}

	list := get[rest.ChatList](bob, 200, "GET", "/chats?limit=1", "")
	if len(list.Chats) != 1 || list.Chats[0].ChatId != "team" ||
		*list.Chats[0].UnreadCount != sent || list.Chats[0].LastMessage.Content != "hello" ||
		!list.Pagination.HasMore {
		t.Errorf("%+v", list)
	}
	list = get[rest.ChatList](bob, 200, "GET",
		"/chats?limit=1&cursor="+*list.Pagination.NextCursor, "")
	if len(list.Chats) != 1 || list.Chats[0].ChatId != direct.ChatId || list.Pagination.HasMore ||
		list.Pagination.NextCursor != nil {
		t.Errorf("%+v", list)
	}
	renamed := get[rest.Chat](ann, 200, "PATCH", "/chats/team", `{"name":"Crew"}`)
	if got := get[rest.Chat](bob, 200, "GET", "/chats/team", ""); renamed.Name != "Crew" ||
		got.Name != "Crew" {
		t.Errorf("%q and %q", renamed.Name, got.Name)
	}
}

func TestMembers_added_listed_removed(t *testing.T) {
	ann := start(t, dev()).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	list := get[rest.MemberList](ann, 200, "POST",
		"/chats/team/members", `{"user_ids":["cid","bob"]}`)
	var got []string
	for _, m := range list.Members {
		got = append(got, m.UserId+" "+m.Role)
	}
	if diff := cmp.Diff([]string{"ann owner", "bob member", "cid member"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	page := get[rest.MemberList](ann, 200, "GET", "/chats/team/members?limit=2", "")
	rest2 := get[rest.MemberList](ann, 200, "GET",
		"/chats/team/members?limit=2&cursor="+*page.Pagination.NextCursor, "")
	if len(page.Members) != 2 || len(rest2.Members) != 1 || rest2.Members[0].UserId != "cid" {
		t.Errorf("%+v, then %+v", page, rest2)
	}
	if r := ann.do("DELETE", "/chats/team/members/cid", ""); r.StatusCode != 204 {
		t.Errorf("removing: %d %s", r.StatusCode, r.body)
	}
	if r := ann.as("bob").do("DELETE", "/chats/team/members/bob", ""); r.StatusCode != 204 {
		t.Errorf("leaving: %d %s", r.StatusCode, r.body)
	}
	if r := ann.as("bob").do("GET", "/chats/team", ""); r.StatusCode != 403 ||
		r.code() != "NOT_A_MEMBER" {
		t.Errorf("after leaving: %d %s", r.StatusCode, r.body)
	}
}

func TestMembers_added_with_a_role_which_each_sees_in_the_chat(t *testing.T) {
	s := start(t, dev())
	ann := s.as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	list := get[rest.MemberList](ann, 200, "POST",
		"/chats/team/members", `{"user_ids":["cid","bob"],"role":"admin"}`)
	var got []string
	for _, m := range list.Members {
		got = append(got, m.UserId+" "+m.Role)
	}
	if diff := cmp.Diff([]string{"ann owner", "bob member", "cid admin"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for user, want := range map[string]string{"ann": "owner", "bob": "member", "cid": "admin"} {
		one := get[rest.Chat](s.as(user), 200, "GET", "/chats/team", "")
		all := get[rest.ChatList](s.as(user), 200, "GET", "/chats", "")
		if diff := cmp.Diff([]*string{&want, &want},
			[]*string{one.Role, all.Chats[0].Role}); diff != "" {
			t.Errorf("%s: -want +got:\n%s", user, diff)
		}
	}
	r := s.as("cid").do("POST", "/chats/team/members", `{"user_ids":["dan"],"role":"owner"}`)
	if r.StatusCode != 403 || r.code() != "DENIED" {
		t.Errorf("an admin makes an owner: %d %s", r.StatusCode, r.body)
	}
}

func TestMessages_duplicate_has_200_and_the_same_body(t *testing.T) {
	ann := start(t, dev()).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	const body = `{"client_message_id":"c1","content":"Grüße 👋","attachments":[{"k":[1,2]}],` +
		`"content_type":"text/markdown"}`
	first := ann.do("POST", "/chats/team/messages", body)
	second := ann.do("POST", "/chats/team/messages", body)
	if first.StatusCode != 201 || second.StatusCode != 200 ||
		!bytes.Equal(first.body, second.body) {
		t.Errorf("%d %s, then %d %s", first.StatusCode, first.body, second.StatusCode, second.body)
	}
	r := ann.do("POST", "/chats/team/messages", `{"client_message_id":"c1","content":"other"}`)
	if r.StatusCode != 409 || r.code() != "CONFLICT" {
		t.Errorf("other content: %d %s", r.StatusCode, r.body)
	}
	if m := send(ann, "c2", "x"); m.Sequence != 2 || m.ContentType != "text/plain" ||
		m.SenderId != "ann" || time.Since(m.CreatedAt) > time.Minute {
		t.Errorf("%+v", m)
	}
}

func TestMessages_pages_in_both_directions(t *testing.T) {
	ann := start(t, dev()).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	for i := 1; i <= 5; i++ {
		send(ann, fmt.Sprint("c", i), fmt.Sprint(i))
	}
	page := func(query string) string {
		t.Helper()
		l := get[rest.MessageList](ann, 200, "GET", "/chats/team/messages"+query, "")
		var b strings.Builder
		for _, m := range l.Messages {
			fmt.Fprint(&b, m.Sequence, " ")
		}
		if l.Pagination.HasMore {
			fmt.Fprint(&b, "→ ", *l.Pagination.NextCursor)
		}
		return b.String()
	}
	for query, want := range map[string]string{
		"":                              "1 2 3 4 5 ",
		"?limit=2":                      "4 5 → 4",
		"?limit=2&before_sequence=4":    "2 3 → 2",
		"?limit=2&before_sequence=2":    "1 ",
		"?before_sequence=0":            "",
		"?limit=2&after_sequence=0":     "1 2 → 2",
		"?limit=2&after_sequence=4":     "5 ",
		"?after_sequence=5":             "",
		"?after_sequence=9000000000000": "",
		"?limit=100000":                 "1 2 3 4 5 ",
	} {
		if got := page(query); got != want {
			t.Errorf("messages%s: %q, want %q", query, got, want)
		}
	}
}

func TestMessages_gap_where_the_user_was_no_member(t *testing.T) {
	ann := start(t, dev()).as("ann")
	bob := ann.as("bob")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	send(ann, "c1", "1")
	ann.do("DELETE", "/chats/team/members/bob", "")
	send(ann, "c2", "2")
	ann.do("POST", "/chats/team/members", `{"user_ids":["bob"]}`)
	send(ann, "c3", "3")
	list := get[rest.MessageList](bob, 200, "GET", "/chats/team/messages?after_sequence=0", "")
	want := []rest.Gap{{ChatId: "team", FromSequence: 2, ToSequence: 2, Reason: "not_a_member"}}
	if diff := cmp.Diff(want, list.Gaps); diff != "" || len(list.Messages) != 2 {
		t.Errorf("%d messages, -want +got:\n%s", len(list.Messages), diff)
	}
}

func TestDeliveryState_raw_for_oneself_and_never_falling(t *testing.T) {
	ann := start(t, dev()).as("ann")
	bob := ann.as("bob")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	for i := range 3 {
		send(ann, fmt.Sprint("c", i), "x")
	}
	state := get[rest.DeliveryState](bob, 200, "GET", "/chats/team/delivery-state", "")
	if state.UserId != "bob" || state.LastAckedSequence != 0 || state.UpdatedAt != nil {
		t.Errorf("at first: %+v", state)
	}
	state = get[rest.DeliveryState](bob, 200, "PATCH",
		"/chats/team/delivery-state", `{"last_acked_sequence":2,"last_read_sequence":3}`)
	if state.LastAckedSequence != 2 || state.LastReadSequence != 3 || state.UpdatedAt == nil {
		t.Errorf("raised: %+v", state)
	}
	state = get[rest.DeliveryState](bob, 200, "PATCH",
		"/chats/team/delivery-state", `{"last_acked_sequence":1}`)
	if state.LastAckedSequence != 2 || state.LastReadSequence != 3 {
		t.Errorf("after a stale one: %+v", state)
	}
	list := get[rest.DeliveryStateList](bob, 200, "GET", "/delivery-states", "")
	if len(list.States) != 1 || list.States[0].LastAckedSequence != 2 {
		t.Errorf("all: %+v", list)
	}
}

func TestDeliveryStatus_exposes_read_as_delivered(t *testing.T) {
	ann := start(t, dev()).as("ann")
	bob := ann.as("bob")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	empty := get[rest.DeliveryStatus](ann, 200, "GET", "/chats/team/delivery-status", "")
	if empty.DeliverySummary.Sequence != 0 || !empty.DeliverySummary.AllDelivered ||
		empty.MemberCount != 2 || empty.ChatType != "group" {
		t.Errorf("empty chat: %+v", empty)
	}
	for i := range 2 {
		send(ann, fmt.Sprint("c", i), "x")
	}
	get[rest.DeliveryState](ann, 200, "PATCH",
		"/chats/team/delivery-state", `{"last_acked_sequence":2}`)
	get[rest.DeliveryState](bob, 200, "PATCH",
		"/chats/team/delivery-state", `{"last_read_sequence":1}`)
	status := get[rest.DeliveryStatus](ann, 200, "GET", "/chats/team/delivery-status", "")
	// The author has read what they wrote.
	want := rest.DeliverySummary{Sequence: 2, DeliveredCount: 1, PendingCount: 1, ReadCount: 1}
	if diff := cmp.Diff(want, status.DeliverySummary); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if m := status.Members[1]; m.UserId != "bob" || m.DisplayName != "bob" ||
		m.LastAckedSequence != 1 || m.LastReadSequence != 1 {
		t.Errorf("bob: %+v", m)
	}
	status = get[rest.DeliveryStatus](ann, 200, "GET",
		"/chats/team/delivery-status?for_sequence=1&limit=1", "")
	if s := status.DeliverySummary; s.Sequence != 1 || !s.AllDelivered || !s.AllRead ||
		len(status.Members) != 1 || !status.Pagination.HasMore {
		t.Errorf("for 1: %+v", status)
	}
}

func TestAcks_each_stands_for_itself(t *testing.T) {
	ann := start(t, dev()).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	get[rest.Chat](ann.as("eve"), 201,
		"POST", "/chats", `{"type":"group","chat_id":"secret","member_ids":[]}`)
	send(ann, "c1", "x")
	got := get[struct {
		Results []struct {
			ChatID string `json:"chat_id"`
			State  *struct {
				Acked int64 `json:"last_acked_sequence"`
			}
			Problem *struct{ Code, Param string }
		}
	}](ann.as("bob"), 200, "POST", "/acks", `{"chats":[
		{"chat_id":"team","last_acked_sequence":2},
		{"chat_id":"team","last_acked_sequence":1},
		{"chat_id":"team","last_acked_sequence":0},
		{"chat_id":"team","last_read_sequence":"1"},
		{"chat_id":"nowhere","last_acked_sequence":1},
		{"chat_id":"secret","last_acked_sequence":1}]}`)
	var lines []string
	for _, r := range got.Results {
		switch {
		case r.State != nil && r.Problem == nil:
			lines = append(lines, fmt.Sprint(r.ChatID, " ", r.State.Acked))
		case r.State == nil && r.Problem != nil:
			lines = append(lines, strings.TrimSpace(
				fmt.Sprint(r.ChatID, " ", r.Problem.Code, " ", r.Problem.Param)))
		default:
			t.Errorf("%s has a state and a problem, or neither", r.ChatID)
		}
	}
	want := []string{
		"team INVALID_SEQUENCE last_acked_sequence", "team 1",
		"team INVALID_SEQUENCE last_acked_sequence", "team INVALID last_read_sequence",
		"nowhere NOT_FOUND", "secret NOT_A_MEMBER",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCalls_of_a_client_that_has_closed_its_side_are_done: net/http ends a request's context when
// the client closes its write side. But the client may still wait for the answer.
func TestCalls_of_a_client_that_has_closed_its_side_are_done(t *testing.T) {
	a := start(t, dev())
	get[rest.Chat](a.as("ann"), 201, "POST", "/chats", group)
	closed, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(closed, "GET", transports.BasePath+"/chats/team", nil)
	r.Header.Set("Authorization", "Bearer dev:ann")
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestSync_cursors_acknowledge_and_what_was_not_named_comes_too(t *testing.T) {
	ann := start(t, dev()).as("ann")
	bob := ann.as("bob")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	get[rest.Chat](ann, 201, "POST",
		"/chats", `{"type":"group","chat_id":"other","member_ids":["bob"]}`)
	for i := range 3 {
		send(ann, fmt.Sprint("c", i), "x")
	}
	get[rest.Message](ann, 201, "POST",
		"/chats/other/messages", `{"client_message_id":"c","content":"y"}`)
	got := get[rest.SyncResponse](bob, 200, "POST", "/sync", `{"chats":[{"chat_id":"team",`+
		`"last_acked_sequence":1},{"chat_id":"nowhere","last_acked_sequence":0}],"limit":1,`+
		`"status_updates":true}`)
	chats := map[string]rest.SyncChat{}
	for _, c := range got.Chats {
		chats[c.ChatId] = c
	}
	if c := chats["team"]; len(c.Messages) != 1 || c.Messages[0].Sequence != 2 || !c.HasMore ||
		c.HeadSequence != 3 || !got.HasMore {
		t.Errorf("team: %+v", c)
	}
	if c := chats["other"]; len(c.Messages) != 1 || c.HasMore {
		t.Errorf("other: %+v", c)
	}
	if c := chats["nowhere"]; c.Problem == nil || c.Problem.Code != "NOT_FOUND" ||
		len(got.StatusUpdates) == 0 {
		t.Errorf("nowhere: %+v, %d statuses", c, len(got.StatusUpdates))
	}
	state := get[rest.DeliveryState](bob, 200, "GET", "/chats/team/delivery-state", "")
	if s := state; s.LastAckedSequence != 1 {
		t.Errorf("the cursor acknowledged %d", s.LastAckedSequence)
	}
	got = get[rest.SyncResponse](bob, 200, "POST",
		"/sync", `{"chats":[{"chat_id":"team","last_acked_sequence":7}]}`)
	for _, c := range got.Chats {
		if c.ChatId == "team" && (c.Reset == nil || c.Reset.Reason != "ahead") {
			t.Errorf("a cursor beyond the head: %+v", c)
		}
	}
}

func TestSend_of_a_backend_reads_nothing(t *testing.T) {
	key, keys := transporttest.APIKey(t)
	ann := start(t, options{auth: auth.Config{Dev: true, APIKeys: keys}}).as("ann")
	bob := ann.as("bob")
	bot := as{api: ann.api, credentials: "Bearer " + key}.with("X-User-ID", "bob")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	send(ann, "a1", "one")
	get[rest.DeliveryState](bob, 200, "PATCH", "/chats/team/delivery-state",
		`{"last_acked_sequence":1}`)
	read := func() int64 {
		return get[rest.DeliveryState](bob, 200, "GET",
			"/chats/team/delivery-state", "").LastReadSequence
	}
	// What a send raises is written a little later, so a state that does not change is observed by
	// one that does: the last send reads what the first one did not.
	get[rest.Message](bot, 201, "POST", "/chats/team/messages",
		`{"client_message_id":"b1","content":"beep"}`)
	get[rest.Message](bot, 201, "POST", "/chats/team/messages",
		`{"client_message_id":"b2","content":"beep","seen_sequence":0}`)
	wait.Until(t, "the bot's messages count as acknowledged", func() bool {
		return get[rest.DeliveryState](bob, 200, "GET",
			"/chats/team/delivery-state", "").LastAckedSequence == 3
	})
	if n := read(); n != 0 {
		t.Errorf("the backend has read %d", n)
	}
	get[rest.Message](bot, 201, "POST", "/chats/team/messages",
		`{"client_message_id":"b3","content":"beep","seen_sequence":1}`)
	wait.Until(t, "what the backend says it showed is read", func() bool { return read() == 1 })
	send(bob, "b4", "boop")
	wait.Until(t, "a person reads what was delivered", func() bool { return read() == 5 })
}

func TestStatuses_of_several_chats(t *testing.T) {
	ann := start(t, dev()).as("ann")
	bob := ann.as("bob")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	many := make([]string, 51)
	for i := range many {
		many[i] = fmt.Sprintf("%q", fmt.Sprint("u", i))
	}
	get[rest.Chat](ann, 201, "POST", "/chats",
		`{"type":"group","chat_id":"crowd","member_ids":[`+strings.Join(many, ",")+`]}`)
	get[rest.Chat](ann, 201, "POST", "/chats",
		`{"type":"direct","chat_id":"pair","member_ids":["bob"]}`)
	get[rest.Chat](bob, 201, "POST", "/chats",
		`{"type":"group","chat_id":"secret","member_ids":[]}`)
	send(ann, "c1", "x")
	get[rest.DeliveryState](bob, 200, "PATCH",
		"/chats/team/delivery-state", `{"last_read_sequence":1}`)
	got := ann.do("GET", "/statuses?chat_id=team&chat_id=secret&chat_id=nowhere&chat_id=crowd"+
		"&chat_id=pair", "")
	for _, want := range []string{
		`{"results":[{"chat_id":"team","status_updates":[`,
		`{"chat_id":"team","scope":"member","user_id":"bob","last_acked_sequence":1,` +
			`"last_read_sequence":1,"acked_at":"20`,
		`{"chat_id":"secret","status_updates":[],"problem":{"code":"NOT_A_MEMBER"`,
		`{"chat_id":"nowhere","status_updates":[],"problem":{"code":"NOT_FOUND"`,
		`{"chat_id":"crowd","status_updates":[],"problem":null}`,
		`{"chat_id":"pair","status_updates":[],"problem":null}]}`,
	} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("%s is missing in %s", want, got.body)
		}
	}
	for query, param := range map[string]string{
		"": "", "?chat_id=a%20b": "chat_id", "?chat_id=": "chat_id",
		"?" + strings.Repeat("chat_id=a&", 101): "chat_id",
	} {
		r := ann.do("GET", "/statuses"+query, "")
		if r.StatusCode != 400 || r.param() != param {
			t.Errorf("%s: %d %s", query, r.StatusCode, r.body)
		}
	}
}

func TestPending_is_what_waits(t *testing.T) {
	ann := start(t, dev()).as("ann")
	bob := ann.as("bob")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	get[rest.Chat](ann, 201, "POST", "/chats",
		`{"type":"direct","chat_id":"pair","member_ids":["bob"]}`)
	if page := get[rest.PendingList](bob, 200, "GET", "/pending", ""); len(page.Pending) != 0 {
		t.Errorf("before the first message: %+v", page)
	}
	send(ann, "c1", "x")
	send(ann, "c2", "x")
	get[rest.Message](ann, 201, "POST",
		"/chats/pair/messages", `{"client_message_id":"p","content":"y"}`)
	one := int64(1)
	page := get[rest.PendingList](bob, 200, "GET", "/pending?limit=1", "")
	want := []rest.Pending{{ChatId: "pair", FirstUndeliveredSequence: &one}}
	if diff := cmp.Diff(want, page.Pending); diff != "" || !page.Pagination.HasMore {
		t.Fatalf("the first page, -want +got:\n%s", diff)
	}
	page = get[rest.PendingList](bob, 200, "GET",
		"/pending?limit=1&cursor="+*page.Pagination.NextCursor, "")
	want[0].ChatId = "team"
	if diff := cmp.Diff(want, page.Pending); diff != "" || page.Pagination.HasMore {
		t.Errorf("the second page, -want +got:\n%s", diff)
	}
	get[rest.DeliveryState](bob, 200, "PATCH",
		"/chats/team/delivery-state", `{"last_acked_sequence":1}`)
	wait.Until(t, "an acknowledgement moves the row", func() bool {
		page := get[rest.PendingList](bob, 200, "GET", "/pending", "")
		return len(page.Pending) == 2 && *page.Pending[1].FirstUndeliveredSequence == 2
	})
}
