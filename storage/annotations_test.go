package storage_test

import (
	"slices"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestCountReactions_in_the_order_of_the_contract: by message, and then by the oldest reaction.
func TestCountReactions_in_the_order_of_the_contract(t *testing.T) {
	reactions := []storage.Reaction{
		{Target: 2, User: "bob", Emoji: "a", Sequence: 9},
		{Target: 3, User: "bob", Emoji: "b", Sequence: 4},
		{Target: 2, User: "alice", Emoji: "b", Sequence: 8},
		{Target: 2, User: "alice", Emoji: "a", Sequence: 6},
		{Target: 2, User: "bob", Emoji: "b", Sequence: 5},
	}
	want := []storage.ReactionCount{
		{Sequence: 2, Emoji: "b", Count: 2, Own: 5},
		{Sequence: 2, Emoji: "a", Count: 2, Own: 9},
		{Sequence: 3, Emoji: "b", Count: 1, Own: 4},
	}
	if got := storage.CountReactions(slices.Clone(reactions), "bob"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i := range want {
		want[i].Own = 0
	}
	if got := storage.CountReactions(slices.Clone(reactions), "carol"); !slices.Equal(got, want) {
		t.Errorf("for a user who did not react: got %v, want %v", got, want)
	}
	if got := storage.CountReactions(nil, "bob"); len(got) != 0 {
		t.Errorf("of no reactions: got %v", got)
	}
}

// TestCheckReactions: a query names 1 to MaxReactionsRange messages.
func TestCheckReactions(t *testing.T) {
	for _, test := range []struct {
		from, to tidemark.Sequence
		want     tidemark.Code
	}{
		{1, 1, ""},
		{1, storage.MaxReactionsRange, ""},
		{1, storage.MaxReactionsRange + 1, tidemark.Invalid},
		{7, 6 + storage.MaxReactionsRange, ""},
		{0, 1, tidemark.Invalid},
		{2, 1, tidemark.Invalid},
		{1, tidemark.MaxSequence, tidemark.Invalid},
	} {
		err := storage.CheckReactions(&storage.ReactionsQuery{From: test.from, To: test.to})
		if got := tidemark.CodeOf(err); got != test.want {
			t.Errorf("from %d to %d: got error %v, want code %q", test.from, test.to, err,
				test.want)
		}
	}
}

// TestContentOf_is_the_emoji_of_a_reaction, and TakeEmoji takes it back.
func TestContentOf_is_the_emoji_of_a_reaction(t *testing.T) {
	for _, test := range []struct {
		message tidemark.Message
		want    string
	}{
		{tidemark.Message{Kind: tidemark.KindMessage, Content: "hello"}, "hello"},
		{tidemark.Message{
			Kind: tidemark.KindReact, Relation: &tidemark.Relation{Sequence: 3, Emoji: "👍"},
		}, "👍"},
		{tidemark.Message{
			Kind: tidemark.KindPin, Relation: &tidemark.Relation{Sequence: 3},
		}, ""},
		{tidemark.Message{
			Kind: tidemark.KindEdit, Content: "edited", Relation: &tidemark.Relation{Sequence: 3},
		}, "edited"},
	} {
		m := test.message
		if got := storage.ContentOf(&m); got != test.want {
			t.Errorf("%s: got %q, want %q", m.Kind, got, test.want)
		}
		read := m
		read.Content = storage.ContentOf(&m)
		if m.Relation != nil {
			read.Relation = &tidemark.Relation{Sequence: m.Relation.Sequence}
		}
		if err := storage.TakeRelation(&read); err != nil {
			t.Error(err)
		}
		if read.Content != m.Content ||
			m.Relation != nil && read.Relation.Emoji != m.Relation.Emoji {
			t.Errorf("%s: got content %q and relation %+v back", m.Kind, read.Content,
				read.Relation)
		}
	}
}
