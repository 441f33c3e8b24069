package record

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// ReactionsKey returns the partition of the messages table that has the reactions of a chat that
// stand, by their targets. No chat id contains a bar.
func ReactionsKey(chat tidemark.ChatID) string { return "reaction|" + string(chat) }

// PinsKey returns the partition of the messages table that has the pins of a chat that stand, by
// their targets.
func PinsKey(chat tidemark.ChatID) string { return "pin|" + string(chat) }

// The sort key of the messages table is a number. That of a reaction has the digits of its target.
// Then come userDigits of a hash of its user, and emojiDigits of a hash of its user and emoji. A
// number has at most 38 digits, of which a sequence takes 16.
const (
	userDigits  = 12
	emojiDigits = 10
)

// digits returns the decimal digits of a hash of texts.
func digits(n int, texts ...string) string {
	most := uint64(1)
	for range n {
		most *= 10
	}
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return fmt.Sprintf("%0*d", n, binary.BigEndian.Uint64(sum[:])%most)
}

// number returns a number of more digits than an integer has.
func number(target tidemark.Sequence, rest string) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(uint64(target)) + rest}
}

// ReactionsTo returns the range of the reactions to the messages from one to another, both
// included.
func ReactionsTo(from, to tidemark.Sequence) [2]types.AttributeValue {
	return [2]types.AttributeValue{
		number(from, strings.Repeat("0", userDigits+emojiDigits)),
		number(to, strings.Repeat("9", userDigits+emojiDigits)),
	}
}

// ReactionsBy returns the range of the reactions of a user to a message. Very rarely it has those
// of another user, too.
func ReactionsBy(user tidemark.UserID, target tidemark.Sequence) [2]types.AttributeValue {
	of := digits(userDigits, string(user))
	return [2]types.AttributeValue{
		number(target, of+strings.Repeat("0", emojiDigits)),
		number(target, of+strings.Repeat("9", emojiDigits)),
	}
}

// SameKey reports whether reactions of a user with two emoji to one message have the same key. A
// user can search for different emoji that do. These count as the same emoji, because their items
// cannot both stand: the transaction of the second one would be tried again and again.
func SameKey(user tidemark.UserID, one, other string) bool {
	return digits(emojiDigits, string(user), one) == digits(emojiDigits, string(user), other)
}

// AnnotationKey returns the key of the item with which a reaction or pin stands.
func AnnotationKey(m *tidemark.Message) call.Item {
	if m.Kind == tidemark.KindPin {
		return call.Item{
			"chat_id": call.Text(PinsKey(m.ChatID)), "sequence": call.Number(m.Relation.Sequence),
		}
	}
	user, emoji := string(m.SenderID), m.Relation.Emoji
	return call.Item{
		"chat_id": call.Text(ReactionsKey(m.ChatID)),
		"sequence": number(m.Relation.Sequence,
			digits(userDigits, user)+digits(emojiDigits, user, emoji)),
	}
}

// AnnotationItem returns the item with which a reaction or pin stands.
func AnnotationItem(m *tidemark.Message) call.Item {
	it := AnnotationKey(m)
	it["target"] = call.Number(m.Relation.Sequence)
	it["sender_id"] = call.Text(m.SenderID)
	it["message_sequence"] = call.Number(m.Sequence)
	it["created_at"] = call.Number(m.CreatedAt.UnixMilli())
	if m.Kind == tidemark.KindReact {
		it["emoji"] = call.Text(m.Relation.Emoji)
	}
	return it
}

// Annotations reads the reactions or pins that stand, from a partition and a range of it, with
// strong consistency. A pin has no emoji.
func (c Access) Annotations(
	ctx context.Context, partition string, within [2]types.AttributeValue,
) (found []storage.Reaction, err error) {
	q := call.Query{
		Read: call.Read{Table: Messages}, Partition: "chat_id", Sort: "sequence",
		Of: call.Text(partition), Range: within,
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		found = append(found, storage.Reaction{
			Target:   r.Sequence("target"),
			User:     tidemark.UserID(r.Text("sender_id")),
			Emoji:    r.Text("emoji"),
			Sequence: r.Sequence("message_sequence"),
			At:       r.Time("created_at"),
		})
		return true, r.Err
	})
	return found, err
}
