package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// TestKnown_only_grows: values that arrive late, or come from an older copy, replace nothing.
func TestKnown_only_grows(t *testing.T) {
	k := NewKnown()
	if _, found := k.Guess("u", "c"); found || k.Reaches("c", 1) {
		t.Error("something is known from the beginning")
	}
	k.SawHead("c", 7)
	k.SawHead("c", 5)
	if !k.Reaches("c", 7) || k.Reaches("c", 8) {
		t.Error("the head that is known is not the highest that was seen")
	}
	state := func(acked, read tidemark.Sequence, n int) State {
		return State{DeliveryState: tidemark.DeliveryState{
			UserID: "u", ChatID: "c", Acked: acked, Read: read, AckedAt: at(n),
		}}
	}
	want := state(7, 3, 2)
	k.SawState(want)
	for _, older := range []State{state(6, 3, 1), state(7, 2, 1), state(0, 0, 0)} {
		k.SawState(older)
		got, found := k.Guess("u", "c")
		if diff := cmp.Diff(want, got); diff != "" || !found {
			t.Errorf("an older state replaced the later one (-want +got):\n%s", diff)
		}
	}
	want.Acked, want.AckedAt = 8, at(3)
	k.SawState(want)
	if got, _ := k.Guess("u", "c"); got != want {
		t.Errorf("a later state was not remembered: %v", got)
	}
}

// TestKnown_unread_exact_behind_a_counter: the counter after messages of others is told from them,
// if none is missing.
func TestKnown_unread_exact_behind_a_counter(t *testing.T) {
	seen := Counter{
		Chat:      tidemark.Chat{ID: "c", Head: 4, MembersVersion: 2},
		Senders:   Senders{{User: "a", Sent: 3, Last: 4}},
		Uncounted: 1, LastUncounted: 2,
	}
	message := func(sequence tidemark.Sequence, sender tidemark.UserID) *tidemark.Message {
		return &tidemark.Message{
			ChatID: "c", Sequence: sequence, SenderID: sender, Kind: tidemark.KindMessage,
			MembersVersion: 2,
		}
	}
	line, named, newer := message(5, "a"), message(5, "a"), message(5, "a")
	line.Kind = tidemark.KindSystem
	named.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"b"})
	newer.MembersVersion = 3
	after := func(change func(*Counter)) Counter {
		next := seen
		next.Head = 5
		change(&next)
		return next
	}
	gone := seen
	gone.LastMoved = 1
	for _, tt := range []struct {
		name     string
		from     Counter
		messages []*tidemark.Message
		want     Counter
		latest   bool
	}{
		{"nothing", seen, nil, seen, true},
		{"a message", seen, []*tidemark.Message{message(5, "a")}, after(func(c *Counter) {
			c.Senders = Senders{{"a", 4, 5}}
		}), true},
		{"twice, and an old one", seen,
			[]*tidemark.Message{message(5, "a"), message(5, "a"), message(3, "a")},
			after(func(c *Counter) { c.Senders = Senders{{"a", 4, 5}} }), true},
		{"of a new sender", seen, []*tidemark.Message{message(5, "b")}, after(func(c *Counter) {
			c.Senders = Senders{{"b", 1, 5}, {"a", 3, 4}}
		}), true},
		{"of one who may have left the senders", gone, []*tidemark.Message{message(5, "b")}, gone,
			false},
		{"a line of the system", seen, []*tidemark.Message{line}, after(func(c *Counter) {
			c.Uncounted, c.LastUncounted = 2, 5
		}), true},
		{"one that names a user", seen, []*tidemark.Message{named}, after(func(c *Counter) {
			c.Senders, c.LastMention = Senders{{"a", 4, 5}}, 5
		}), true},
		{"behind one that is missing", seen, []*tidemark.Message{message(6, "a")}, seen, false},
		{"behind a change of members", seen, []*tidemark.Message{newer}, seen, false},
	} {
		k := NewKnown()
		k.SawCounter(&tt.from)
		for _, m := range tt.messages {
			k.SawMessage(m)
		}
		got, latest := k.Follow(&tt.from)
		if diff := cmp.Diff(&tt.want, got); diff != "" || latest != tt.latest {
			t.Errorf("%s: latest is %v (-want +got):\n%s", tt.name, latest, diff)
		}
		highest := tidemark.Sequence(4)
		for _, m := range tt.messages {
			highest = max(highest, m.Sequence)
		}
		if !k.Reaches("c", highest) || k.Reaches("c", highest+1) {
			t.Errorf("%s: the head is not known to be %d", tt.name, highest)
		}
	}
}
