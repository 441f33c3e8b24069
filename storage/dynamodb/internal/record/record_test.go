package record

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// at returns a time with millisecond precision, as it is stored.
func at(second int) time.Time {
	return time.Date(2026, 1, 31, 10, 0, second, 123_000_000, time.UTC)
}

func TestCounter_comes_back_as_it_was_stored(t *testing.T) {
	for _, want := range []Counter{
		{
			Chat: tidemark.Chat{
				ID: "c", Type: tidemark.Direct, History: tidemark.HistoryFull, CreatedAt: at(1),
				Floor: 1, MembersVersion: 1, MemberCount: 2,
			},
			Activity: at(1), CreatedBy: "t", Outbox: Outbox{Open: true},
		},
		{
			Chat: tidemark.Chat{
				ID: "c", Type: tidemark.Group, Name: "München\x00|",
				History: tidemark.HistorySinceJoin, CreatedAt: at(1),
				Floor: 1, Head: tidemark.MaxSequence,
				MembersVersion: 1 << 60, MemberCount: 10_000, Large: true,
			},
			Activity: at(2), CreatedBy: "t", Standing: true, Outbox: Outbox{Open: true},
		},
	} {
		got, err := CounterOf(want.Item())
		if err != nil {
			t.Errorf("CounterOf: %v", err)
			continue
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("a counter has changed (-want +got):\n%s", diff)
		}
	}
}

func TestCounter_of_a_chat_that_is_only_prepared_is_none(t *testing.T) {
	for name, it := range map[string]call.Item{
		"nothing": nil,
		"prepared": {
			"chat_id": call.Text("c"), "changing": call.Text("t"), "changing_at": call.Number(1),
		},
	} {
		if got, err := CounterOf(it); got != nil || err != nil {
			t.Errorf("%s: %v, %v, want no chat and no error", name, got, err)
		}
	}
}

func TestMembership_comes_back_as_it_was_stored(t *testing.T) {
	for _, want := range []Membership{
		{Member: tidemark.Member{UserID: "u", Role: tidemark.Owner,
			Intervals: tidemark.Intervals{{From: 1}}, JoinedAt: at(1)}, Version: 1, ChangedBy: "t"},
		{Member: tidemark.Member{UserID: "u", Role: tidemark.Ordinary,
			Intervals: tidemark.Intervals{{From: 1, To: 7}, {From: 9}}, JoinedAt: at(2)},
			Version: 3, ChangedBy: "t"},
	} {
		got, err := MembershipOf(want.Item("c"))
		if err != nil {
			t.Errorf("MembershipOf: %v", err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a membership has changed (-want +got):\n%s", diff)
		}
	}
}

func TestMessage_comes_back_as_it_was_stored(t *testing.T) {
	for _, draft := range []tidemark.Draft{
		{ChatID: "c", SenderID: "u", ClientMessageID: "k", MessageID: "m", Content: "",
			ContentType: "text/plain", CreatedAt: at(1)},
		{
			ChatID: "c", SenderID: "u", ClientMessageID: "k", MessageID: "m",
			Content: "a\u2028b\U0001F600", ContentType: "text/plain", CreatedAt: at(2),
			Attachments: json.RawMessage(`[{"name":"a.png"}]`),
			Metadata:    json.RawMessage(`{"reply_to":{"sequence":1}}`),
		},
		{ChatID: "c", SenderID: "u", ClientMessageID: "k", MessageID: "m", Content: "in the target",
			ContentType: "text/markdown", CreatedAt: at(3), Kind: tidemark.KindEdit,
			Relation: &tidemark.Relation{Sequence: tidemark.MaxSequence - 1}},
	} {
		want := draft.Message(tidemark.MaxSequence, 5)
		got, err := MessageOf(MessageItem(&draft, tidemark.MaxSequence, 5, 1))
		if err != nil {
			t.Errorf("MessageOf: %v", err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a message has changed (-want +got):\n%s", diff)
		}
	}
}

// TestMembership_counts_a_change_once_it_is_the_counters: a joining has no effect until the counter
// has its token. Then it begins where the change took effect.
func TestMembership_counts_a_change_once_it_is_the_counters(t *testing.T) {
	former := Membership{
		Member: tidemark.Member{UserID: "u", Role: tidemark.Owner,
			Intervals: tidemark.Intervals{{From: 1, To: 7}}, JoinedAt: at(1)},
		Version: 2, Next: &Joining{Change: "t", Role: tidemark.Ordinary, At: at(2)},
	}
	joined := tidemark.Member{UserID: "u", Role: tidemark.Ordinary,
		Intervals: former.Intervals.Joined(9, tidemark.HistoryFull, true), JoinedAt: at(2)}
	for _, tc := range []struct {
		name    string
		counter Counter
		want    tidemark.Member
	}{
		{"no change", Counter{}, former.Member},
		{"another change", Counter{Change: Change{Changed: "other", ChangeHead: 9}}, former.Member},
		{"its change", Counter{Chat: tidemark.Chat{History: tidemark.HistoryFull},
			Change: Change{Changed: "t", ChangeHead: 9}}, joined},
	} {
		if diff := cmp.Diff(tc.want, former.At(&tc.counter)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestItems_of_another_kind_are_errors: an item that was edited by hand is an error, and not taken
// for another value.
func TestItems_of_another_kind_are_errors(t *testing.T) {
	chat := Counter{Chat: tidemark.Chat{ID: "c", Type: tidemark.Group, CreatedAt: at(1)},
		Activity: at(1)}
	for _, tc := range []struct {
		name  string
		value call.Item
	}{
		{"a text for a number", call.Item{"head": call.Text("7")}},
		{"a number for a text", call.Item{"name": call.Number(7)}},
		{"below 0", call.Item{"head": call.Number(-1)}},
		{"a text for a time", call.Item{"activity_at": call.Text("now")}},
	} {
		it := chat.Item()
		for name, value := range tc.value {
			it[name] = value
		}
		if _, err := CounterOf(it); tidemark.CodeOf(err) != tidemark.Internal {
			t.Errorf("%s: %v, want Internal", tc.name, err)
		}
	}
}
