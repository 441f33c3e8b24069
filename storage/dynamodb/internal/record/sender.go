package record

import (
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// A Sender says how many messages that count as unread a user has sent to a chat. Last is the
// sequence of the last of them.
type Sender struct {
	User tidemark.UserID
	Sent int64
	Last tidemark.Sequence
}

// Senders are the latest senders of a chat, the latest first. They are an attribute of its counter,
// so an append costs no further write. Who has not sent for long is moved to the delivery state of
// their own, before the append that leaves them out. Senders are immutable.
type Senders []Sender

const (
	// mostSenders and mostSenderBytes bound what stays in a counter, so that its item is at most
	// 1 KB: one unit.
	mostSenders     = 12
	mostSenderBytes = 600
)

// Of returns the entry of a user.
func (s Senders) Of(user tidemark.UserID) (Sender, bool) {
	for _, one := range s {
		if one.User == user {
			return one, true
		}
	}
	return Sender{User: user}, false
}

// With returns the senders after another message of one of them.
func (s Senders) With(one Sender) Senders {
	next := make(Senders, 1, len(s)+1)
	next[0] = one
	for _, other := range s {
		if other.User != one.User {
			next = append(next, other)
		}
	}
	return next
}

// Split returns the senders that stay in the counter of a chat with a name of this length, and
// those that are too many.
func (s Senders) Split(name int) (stay, leave Senders) {
	bytes := name
	for i := range s {
		bytes += len(s[i].text()) + 1
		if i > 0 && (i == mostSenders || bytes > mostSenderBytes) {
			return s[:i:i], s[i:]
		}
	}
	return s, nil
}

func (s Sender) text() string {
	return string(s.User) + " " + strconv.FormatInt(s.Sent, 10) + " " +
		strconv.FormatUint(uint64(s.Last), 10)
}

// Text returns the senders as an attribute.
func (s Senders) Text() string {
	texts := make([]string, len(s))
	for i := range s {
		texts[i] = s[i].text()
	}
	return strings.Join(texts, ",")
}

// sendersOf reads the attribute.
func sendersOf(r *call.Reader, name string) Senders {
	text := r.Text(name)
	if text == "" {
		return nil
	}
	var s Senders
	for part := range strings.SplitSeq(text, ",") {
		user, numbers, _ := strings.Cut(part, " ")
		sent, last, _ := strings.Cut(numbers, " ")
		n, err := strconv.ParseInt(sent, 10, 64)
		at, err2 := strconv.ParseUint(last, 10, 64)
		if err != nil || err2 != nil {
			r.Err = tidemark.Errorf(tidemark.Internal, "the attribute %s of an item is %q", name,
				text)
			return nil
		}
		s = append(s, Sender{tidemark.UserID(user), n, tidemark.Sequence(at)})
	}
	return s
}

// SenderOf returns the numbers in the item of a delivery state.
func SenderOf(it call.Item) (Sender, error) {
	r := call.Reader{Item: it}
	one := Sender{
		User: tidemark.UserID(r.Text("user_id")),
		Sent: int64(r.Number("sent")),
		Last: r.Sequence("last_sent"),
	}
	return one, r.Err
}
