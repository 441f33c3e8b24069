package storage

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Annotations reads the reactions and pins of chats. Append stores them, as messages with a
// Relation (tidemark.Kind.Annotates). They stand from the step that stores them to the step that
// stores their redaction, or in which their target expires (Retention). The redaction of a target
// changes nothing for them.
//
// The reactions and pins of an unknown chat are none.
type Annotations interface {
	// Reactions counts the reactions that stand to the messages of a range: one count for each
	// message and emoji. The counts ascend by message, and then by their oldest reaction. through
	// is a head of the chat. Exactly the reactions and redactions at or below it count. It is at
	// least the head of every append that returned before the call.
	//
	// Invalid: the range (CheckReactions).
	Reactions(ctx context.Context, q ReactionsQuery) (found []ReactionCount,
		through tidemark.Sequence, err error)

	// Reactors returns a page of the reactions that stand to one message. Their sequences ascend
	// and are above after, 0 for the first page. It sees every append that returned before the
	// call. limit is at least 1.
	Reactors(ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence,
		limit int) (reactions []Reaction, more bool, err error)

	// Pins returns the pins that stand, at most tidemark.MaxPins, the latest first. It sees every
	// append that returned before the call.
	Pins(ctx context.Context, chat tidemark.ChatID) ([]Pin, error)
}

// MaxReactionsRange is how many sequences ReactionsQuery may name.
const MaxReactionsRange = 200

// ReactionsQuery names the messages of a chat from From to To, both included.
type ReactionsQuery struct {
	Chat     tidemark.ChatID
	From, To tidemark.Sequence
	// User is whose reactions ReactionCount.Own names.
	User tidemark.UserID
}

// CheckReactions returns Invalid if a query names no messages, or too many. Every backend calls it
// at the start of Reactions.
func CheckReactions(q *ReactionsQuery) error {
	if q.From < 1 || q.To < q.From || q.To-q.From >= MaxReactionsRange {
		return tidemark.Errorf(tidemark.Invalid,
			"the reactions to messages %d to %d cannot be counted in one call, only those to 1 to "+
				"%d messages", q.From, q.To, MaxReactionsRange)
	}
	return nil
}

// ReactionCount says how many users have reacted to a message with an emoji.
type ReactionCount struct {
	// Sequence is that of the message.
	Sequence tidemark.Sequence
	Emoji    string
	Count    int64
	// Own is the sequence of the user's own reaction among them, or 0.
	Own tidemark.Sequence
}

// Reaction is a reaction that stands.
type Reaction struct {
	Target tidemark.Sequence
	User   tidemark.UserID
	Emoji  string
	// Sequence is that of the reaction, and At its time.
	Sequence tidemark.Sequence
	At       time.Time
}

// Pin is a pin that stands.
type Pin struct {
	Target tidemark.Sequence
	// Sequence is that of the pin, By its sender, and At its time.
	Sequence tidemark.Sequence
	By       tidemark.UserID
	At       time.Time
}

// CountReactions returns the counts of some reactions, in the order of Annotations.Reactions. It
// changes the order of the reactions.
func CountReactions(reactions []Reaction, user tidemark.UserID) []ReactionCount {
	type what struct {
		target tidemark.Sequence
		emoji  string
	}
	slices.SortFunc(reactions, func(a, b Reaction) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Sequence, b.Sequence))
	})
	var counts []ReactionCount
	at := make(map[what]int)
	for i := range reactions {
		r := &reactions[i]
		key := what{r.Target, r.Emoji}
		n, known := at[key]
		if !known {
			n = len(counts)
			at[key] = n
			counts = append(counts, ReactionCount{Sequence: r.Target, Emoji: r.Emoji})
		}
		counts[n].Count++
		if r.User == user {
			counts[n].Own = r.Sequence
		}
	}
	return counts
}

// ContentOf returns what a store keeps as the content of a message. That of a reaction is its
// emoji, and that of a redaction the list of sequences that it names. So no store needs a further
// column.
func ContentOf(m *tidemark.Message) string {
	switch {
	case m.Relation == nil:
		return m.Content
	case m.Kind == tidemark.KindReact:
		return m.Relation.Emoji
	case m.Relation.Sequences == nil:
		return m.Content
	}
	texts := make([]string, len(m.Relation.Sequences))
	for i, n := range m.Relation.Sequences {
		texts[i] = strconv.FormatUint(uint64(n), 10)
	}
	return strings.Join(texts, " ")
}

// RelatedTo returns the target that a store keeps of a relation: the first one, if it has a list.
func RelatedTo(r *tidemark.Relation) tidemark.Sequence { return r.Named()[0] }

// TakeRelation gives a message that was read with ContentOf as its content, and RelatedTo as the
// sequence of its relation, the content, the emoji and the list of sequences that it has. It must
// have its Kind and its Relation.
//
// Internal: the list is damaged.
func TakeRelation(m *tidemark.Message) error {
	switch {
	case m.Relation == nil || m.Content == "":
		return nil
	case m.Kind == tidemark.KindReact:
		m.Relation.Emoji, m.Content = m.Content, ""
		return nil
	case m.Kind != tidemark.KindRedact:
		return nil
	}
	texts := strings.Fields(m.Content)
	m.Relation.Sequences = make([]tidemark.Sequence, len(texts))
	for i, text := range texts {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return tidemark.Wrap(tidemark.Internal, err, "the list of a redaction is damaged")
		}
		m.Relation.Sequences[i] = tidemark.Sequence(n)
	}
	m.Relation.Sequence, m.Content = 0, ""
	return nil
}
