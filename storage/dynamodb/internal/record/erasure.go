package record

import (
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// erased are the attributes of a message's item that tidemark.Message.Erase changes.
//
//rule:erased_nowhere.attributes-in-dynamodb
var erased = append([]string{"sender_id", "client_message_id"}, revised...)

// Erasing returns the change of an item that was read to what tidemark.Message.Erase has made of
// its message. The item must still have the sender and the revision that were read.
func Erasing(m *tidemark.Message, read call.Item) call.Update {
	u := update(m, read, erased)
	u.Condition += " AND #sender_id = :sender_before"
	u.Values[":sender_before"] = read["sender_id"]
	return u
}

// update returns the change of some attributes of an item that was read to those of its message.
// One of them is the revision, which must still be the one that was read.
func update(m *tidemark.Message, read call.Item, attributes []string) call.Update {
	u := call.Update{
		Table: Messages, Key: call.Item{"chat_id": read["chat_id"], "sequence": read["sequence"]},
		Values: call.Item{}, Names: make(map[string]string, len(attributes)),
	}
	now := itemOf(m)
	var set, remove []string
	for _, name := range attributes {
		u.Names["#"+name] = name
		if value := now[name]; value != nil {
			set = append(set, "#"+name+" = :"+name)
			u.Values[":"+name] = value
		} else {
			remove = append(remove, "#"+name)
		}
	}
	u.Change = "SET " + strings.Join(set, ", ")
	if len(remove) > 0 {
		u.Change += " REMOVE " + strings.Join(remove, ", ")
	}
	u.Condition = "attribute_exists(chat_id) AND attribute_not_exists(#revision)"
	//rule:redacted_stays.revise-what-was-read-in-dynamodb
	if before := read["revision"]; before != nil {
		u.Condition = "#revision = :before"
		u.Values[":before"] = before
	}
	return u
}

// Without returns the senders without one user.
func (s Senders) Without(user tidemark.UserID) Senders {
	return slices.DeleteFunc(slices.Clone(s), func(one Sender) bool { return one.User == user })
}
