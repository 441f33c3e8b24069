package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// example is an entry of a golden file: a text as it is sent.
type example struct {
	Name string `json:"name"`
	// Schema is the schema of openapi.yaml that the text fits, or "" if there is none.
	Schema string `json:"schema,omitempty"`
	Text   string `json:"text"`
}

var (
	at      = time.Date(2026, 1, 31, 10, 0, 5, 100_000_000, time.UTC)
	message = tidemark.Message{
		ChatID: "team", Sequence: 7, MessageID: "0190b5a1-7c5e-7000-8000-000000000001",
		SenderID: "ann", ClientMessageID: "c-1",
		Content: "Grüße \"👋\"\n\u2028", ContentType: "text/plain", CreatedAt: at,
		Kind: tidemark.KindMessage, MembersVersion: 2,
	}
	withAttachments = tidemark.Message{
		ChatID: "team", Sequence: 8, MessageID: "0190b5a1-7c5e-7000-8000-000000000002",
		SenderID: "bob", ClientMessageID: "c-2",
		ContentType: "image/png",
		Kind:        tidemark.KindMessage,
		Mentions:    tidemark.NewMentions(false, []tidemark.UserID{"ann", "zoe"}),
		Attachments: json.RawMessage(`[{"url":"https://example.org/a.png","size":1020}]`),
		CreatedAt:   at, MembersVersion: 3,
	}
	gap    = tidemark.Gap{ChatID: "team", From: 3, To: 5, Reason: tidemark.GapNotMember}
	state  = tidemark.DeliveryState{UserID: "ann", ChatID: "team", Acked: 7, Read: 9, ReadAt: at}
	marked = tidemark.DeliveryState{
		UserID: "ann", ChatID: "team", Acked: 7, Read: 9, UnreadFrom: 6, ReadAt: at,
	}
	fresh = tidemark.DeliveryState{UserID: "bob", ChatID: "team"}
)

func events() []struct {
	name    string
	session tidemark.SessionID
	event   tidemark.Event
} {
	type entry = struct {
		name    string
		session tidemark.SessionID
		event   tidemark.Event
	}
	var all []entry
	add := func(name string, id uint64, kind tidemark.EventType, payload []byte) {
		all = append(all, entry{
			name, "s3SSion_1", tidemark.Event{ID: id, Type: kind, Payload: payload},
		})
	}
	add("session", 1, tidemark.EventSession, tidemark.SessionStart{Session: "s3SSion_1",
		User: "ann", Heartbeat: 20 * time.Second, Resume: time.Minute,
		Incarnation: "x7k2mbq4vnr3wd5t"}.AppendJSON(nil))
	add("session, resumed", 43, tidemark.EventSession, tidemark.SessionStart{Session: "s3SSion_1",
		User: "ann", Resumed: true, EventID: 42,
		Heartbeat: 20 * time.Second, Resume: time.Minute,
		Incarnation: "x7k2mbq4vnr3wd5t"}.AppendJSON(nil))
	add("message", 44, tidemark.EventMessage, message.AppendJSON(nil))
	add("message with attachments", 45, tidemark.EventMessage, withAttachments.AppendJSON(nil))
	add("gap", 46, tidemark.EventGap, gap.AppendJSON(nil))
	acked := tidemark.Boundary{Acked: 7, Read: 3, AckedAt: 1_769_853_605_100}
	add("status of a member", 47, tidemark.EventStatus,
		tidemark.StatusUpdate{ChatID: "team", UserID: "bob", Boundary: acked}.AppendJSON(nil))
	add("status of all", 48, tidemark.EventStatus,
		tidemark.StatusUpdate{ChatID: "team", Boundary: acked}.AppendJSON(nil))
	removed := tidemark.MembershipChange{
		ChatID: "team", UserID: "bob", Change: tidemark.Removed, Version: 4,
	}
	add("membership", 49, tidemark.EventMembership, removed.AppendJSON(nil))
	promoted := tidemark.MembershipChange{
		ChatID: "team", UserID: "bob", Change: tidemark.RoleChanged, Role: tidemark.Admin,
		Version: 4,
	}
	add("membership with a role", 49, tidemark.EventMembership, promoted.AppendJSON(nil))
	add("caught up", 50, tidemark.EventCaughtUp, []byte(`{}`))
	add("reset", 51, tidemark.EventReset,
		tidemark.Reset{Reason: tidemark.ResetUnknownSession}.AppendJSON(nil))
	add("reset of a chat", 52, tidemark.EventReset,
		tidemark.Reset{Reason: tidemark.ResetAhead, ChatID: "team"}.AppendJSON(nil))
	add("chat_updated", 54, tidemark.EventChatUpdated,
		tidemark.ChatUpdate{ChatID: "team", Version: 2}.AppendJSON(nil))
	add("own_state", 53, tidemark.EventOwnState, tidemark.OwnState{
		DeliveryState: tidemark.DeliveryState{ChatID: "team", Acked: 9, Read: 7},
		Unread:        3, Mentions: 1,
	}.AppendJSON(nil))
	restored := tidemark.Reset{Reason: tidemark.ResetRestored, ChatID: "team", Through: 5}
	add("reset after a restore", 54, tidemark.EventReset, restored.AppendJSON(nil))
	add("typing", 0, tidemark.EventTyping,
		tidemark.Typing{ChatID: "team", UserID: "bob"}.AppendJSON(nil))
	add("presence", 0, tidemark.EventPresence, (&tidemark.Presence{
		ChatID: "team", Members: []tidemark.MemberPresence{
			{UserID: "alice", Online: true}, {UserID: "bob", LastSeen: 1_769_853_605_100},
			{UserID: "carol"},
		},
	}).AppendJSON(nil))
	add("presence of many", 0, tidemark.EventPresence,
		(&tidemark.Presence{ChatID: "town", Online: 812}).AppendJSON(nil))
	replaced := tidemark.Errorf(tidemark.Replaced, "a newer connection owns the session")
	add("problem", 0, tidemark.EventProblem, wire.ProblemOf(replaced).AppendJSON(nil))
	return all
}

func TestAppendFrame_golden(t *testing.T) {
	var got []example
	for _, e := range events() {
		got = append(got, example{e.name, "Event", string(wire.AppendFrame(nil, e.event))})
	}
	golden(t, "events.json", got)
}

func TestAppendSSE_golden(t *testing.T) {
	var got []example
	for _, e := range events() {
		got = append(got, example{e.name, "", string(wire.AppendSSE(nil, e.session, e.event))})
	}
	golden(t, "sse.json", got)
}

func TestAppendPoll_golden(t *testing.T) {
	var some []tidemark.Event
	for _, e := range events() {
		some = append(some, e.event)
	}
	golden(t, "poll.json", []example{
		{"nothing", "Poll", string(wire.AppendPoll(nil, "s3SSion_1", nil, false))},
		{"events", "Poll", string(wire.AppendPoll(nil, "s3SSion_1", some, true))},
	})
}

func TestReplies_golden(t *testing.T) {
	sent := server.Sent{Message: message, Duplicate: true}
	event := tidemark.Event{
		ID: 44, Type: tidemark.EventConfirmation, RequestID: "r1",
		Payload: tidemark.Confirmation{Message: &message, Duplicate: true}.AppendJSON(nil),
	}
	refused := tidemark.Errorf(tidemark.Invalid, "chat_id is missing")
	golden(t, "replies.json", []example{
		{"hello", "ReplyFrame", string(wire.AppendHello(nil, 25*time.Second))},
		{"send_message_ack", "ReplyFrame", string(wire.AppendSendAck(nil, "r1", sent))},
		{"send_message_ack without request_id", "ReplyFrame",
			string(wire.AppendSendAck(nil, "", server.Sent{Message: message}))},
		{"send_message_ack in place of an event", "ReplyFrame",
			string(wire.AppendFrame(nil, event))},
		{"sync_response", "ReplyFrame", string(wire.AppendSyncReply(nil, "r2", syncResponse()))},
		{"pong", "ReplyFrame", string(wire.AppendPong(nil, "r3"))},
		{"error", "ReplyFrame", string(wire.AppendError(nil, "r4", refused))},
		{"error without request_id", "ReplyFrame",
			string(wire.AppendError(nil, "", errors.New("a secret of the database")))},
	})
}

func syncResponse() server.SyncResponse {
	return server.SyncResponse{
		Chats: []server.SyncChat{
			{Chat: "team", Head: 8, Messages: []tidemark.Message{message, withAttachments},
				Gaps: []tidemark.Gap{gap}, HasMore: true},
			{Chat: "old", Head: 2, Reset: tidemark.ResetAhead},
			{Chat: "restored", Head: 12, Reset: tidemark.ResetRestored, Through: 5},
			{Chat: "other",
				Err: tidemark.Errorf(tidemark.NotMember, "you are not a member of the chat")},
		},
		Statuses: []tidemark.StatusUpdate{
			{ChatID: "team", UserID: "bob", Boundary: tidemark.Boundary{Acked: 7, Read: 3}},
		},
		HasMore: true,
	}
}

func TestResponses_golden(t *testing.T) {
	chat := server.ChatView{
		Role: tidemark.Admin,
		Chat: tidemark.Chat{
			ID:          "team",
			Type:        tidemark.Group,
			Name:        "Team",
			Metadata:    json.RawMessage(`{"color":"teal"}`),
			Version:     3,
			History:     tidemark.HistoryFull,
			CreatedAt:   at,
			Head:        8,
			Floor:       3,
			MemberCount: 2,
		},
		State: marked, Unread: storage.Unread{Messages: 4, Mentions: 1}, Last: &withAttachments,
	}
	empty := server.ChatView{
		Chat: tidemark.Chat{
			ID:          "d",
			Type:        tidemark.Direct,
			Floor:       1,
			Version:     1,
			History:     tidemark.HistorySinceJoin,
			CreatedAt:   at,
			MemberCount: 2,
		},
		State: tidemark.DeliveryState{UserID: "ann"},
		Peer:  &tidemark.DeliveryState{UserID: "bob", Acked: 3, Read: 4},
	}
	held := server.ChatView{Chat: chat.Chat}
	held.Policy = tidemark.Policy{
		KeepDays: 30, Hold: true, Receipts: tidemark.ReceiptsRequired,
	}
	status := server.DeliveryStatus{
		Chat: chat.Chat, Sequence: 8, Summary: storage.Summary{Members: 2, Delivered: 1, Read: 1},
		Members: []tidemark.DeliveryState{state, fresh}, NextCursor: "n",
	}
	acks := []wire.AckItem{
		{Ack: server.Ack{Chat: "team", Acked: 7}}, {Ack: server.Ack{Chat: "gone"}},
	}
	results := []server.AckResult{
		{State: state}, {Err: tidemark.Errorf(tidemark.NotFound, "there is no such chat")},
	}
	page := server.History{Messages: []tidemark.Message{message, withAttachments}}
	counts := server.Reactions{Through: 12, Of: [][]server.ReactionCount{{
		{Sequence: 7, Emoji: "👍", Count: 2, Own: 9}, {Sequence: 7, Emoji: `"`, Count: 1},
	}, nil}}
	reactions := server.ReactionPage{Reactions: []storage.Reaction{
		{Target: 7, User: "ann", Emoji: "👍", Sequence: 9, At: at},
		{Target: 7, User: "bob", Emoji: `"`, Sequence: 11, At: at},
	}, NextCursor: "n"}
	pins := []server.Pin{{
		Pin: storage.Pin{Target: 7, Sequence: 10, By: "ann", At: at}, Message: &message,
	}, {
		Pin: storage.Pin{Target: 5, Sequence: 6, By: "bob", At: at},
	}}
	golden(t, "responses.json", []example{
		{"chat", "Chat", string(wire.AppendChat(nil, &chat, false))},
		{"empty chat", "Chat", string(wire.AppendChat(nil, &empty, false))},
		{"chat without a user", "Chat",
			string(wire.AppendChat(nil, &held, true))},
		{"chats", "ChatList", string(wire.AppendChats(nil, server.ChatPage{
			Chats: []server.ChatView{chat, empty}, NextCursor: "n",
		}, false))},
		{"no chats", "ChatList", string(wire.AppendChats(nil, server.ChatPage{}, false))},
		{"members", "MemberList", string(wire.AppendMembers(nil, server.MemberPage{
			Version: 4,
			Members: []tidemark.Member{
				{UserID: "ann", Role: tidemark.Owner, JoinedAt: at},
				{
					UserID: "bob", Role: tidemark.Ordinary, JoinedAt: at,
					Metadata: json.RawMessage(`{ "team" : "blue" }`),
				},
			},
		}))},
		{"updated member", "UpdatedMember", string(wire.AppendUpdatedMember(nil, server.MemberView{
			Member:  tidemark.Member{UserID: "bob", Role: tidemark.Reader, JoinedAt: at},
			Version: 4,
		}))},
		{"messages", "MessageList", string(wire.AppendHistory(nil, server.History{
			Messages: []tidemark.Message{message, withAttachments}, Gaps: []tidemark.Gap{gap, gap},
			HasMore: true, Next: 7,
		}, nil))},
		{"no messages", "MessageList",
			string(wire.AppendHistory(nil, server.History{Next: 7}, nil))},
		{"messages with reactions", "MessageList", string(wire.AppendHistory(nil, page, &counts))},
		{"no messages with reactions", "MessageList",
			string(wire.AppendHistory(nil, server.History{}, &server.Reactions{}))},
		{"reactions", "ReactionList", string(wire.AppendReactions(nil, reactions))},
		{"no reactions", "ReactionList",
			string(wire.AppendReactions(nil, server.ReactionPage{}))},
		{"pins", "PinList", string(wire.AppendPins(nil, pins))},
		{"no pins", "PinList", string(wire.AppendPins(nil, nil))},
		{"delivery state", "DeliveryState", string(wire.AppendState(nil, state))},
		{"delivery states", "DeliveryStateList", string(wire.AppendStates(nil, server.StatePage{
			States: []tidemark.DeliveryState{state, fresh},
		}))},
		{"acks", "AckResults", string(wire.AppendAckResults(nil, acks, results))},
		{"sync", "SyncResponse", string(wire.AppendSync(nil, syncResponse()))},
		{"nothing to sync", "SyncResponse", string(wire.AppendSync(nil, server.SyncResponse{}))},
		{"delivery status", "DeliveryStatus", string(wire.AppendDeliveryStatus(nil, status))},
		{"delivery status of an empty chat", "DeliveryStatus",
			string(wire.AppendDeliveryStatus(nil, server.DeliveryStatus{
				Chat: empty.Chat, Summary: storage.Summary{Members: 2, Delivered: 2, Read: 2},
				Members: []tidemark.DeliveryState{fresh},
			}))},
		{"ticket", "Ticket", string(wire.AppendTicket(nil, "ABC", at))},
	})
}

func TestClientFrames_golden(t *testing.T) {
	frames := []example{
		{"send_message", "ClientFrame",
			`{"type":"send_message","request_id":"r1","payload":{"chat_id":"team",` +
				`"client_message_id":"c-1","content":"Grüße 👋"}}`},
		{"send_message with everything", "ClientFrame",
			`{"type":"send_message","request_id":"r2","payload":{"chat_id":"team",` +
				`"client_message_id":"c-2","content":"","content_type":"image/png",` +
				`"attachments":[{"size":10}],"metadata":{"a":1},"kind":"message",` +
				`"mentions":{"all":false,"user_ids":["bob"]},"seen_sequence":7,` +
				`"send_by":"2026-01-31T18:00:00.000Z"}}`},
		{"ack", "ClientFrame",
			`{"type":"ack","payload":{"chat_id":"team","last_acked_sequence":7}}`},
		{"ack of several chats", "ClientFrame",
			`{"type":"ack","payload":{"chats":[{"chat_id":"team","last_acked_sequence":7},` +
				`{"chat_id":"other","last_acked_sequence":1,"last_read_sequence":1}]}}`},
		{"read", "ClientFrame",
			`{"type":"read","payload":{"chat_id":"team","last_read_sequence":7}}`},
		{"sync_request", "ClientFrame",
			`{"type":"sync_request","request_id":"r3","payload":{"chats":[{"chat_id":"team",` +
				`"last_acked_sequence":0,"incarnation":"x7k2mbq4vnr3wd5t"}],` +
				`"session_id":"s3SSion_1","limit":100,` +
				`"status_updates":true}}`},
		{"typing", "ClientFrame", `{"type":"typing","payload":{"chat_id":"team"}}`},
		{"look", "ClientFrame", `{"type":"look","payload":{"chat_ids":["team","town"]}}`},
		{"ping", "ClientFrame", `{"type":"ping","request_id":"r4"}`},
	}
	for _, f := range frames {
		if _, err := wire.DecodeFrame([]byte(f.Text)); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	golden(t, "client_frames.json", frames)
}

// golden compares the examples with a golden file, and each with its schema.
func golden(t *testing.T, file string, got []example) {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(tidemark.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range got {
		if e.Schema == "" {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(e.Text), &v); err != nil {
			t.Errorf("%s: %v in %s", e.Name, err, e.Text)
		} else if err := doc.Components.Schemas[e.Schema].Value.VisitJSON(v); err != nil {
			t.Errorf("%s does not fit %s: %v", e.Name, e.Schema, err)
		}
	}
	path := filepath.Join("testdata", file)
	if *update {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(got); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want []example
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got; go test -update rewrites it):\n%s", path, diff)
	}
}
