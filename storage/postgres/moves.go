package postgres

import (
	"slices"

	"github.com/tidemark-im/tidemark"
)

// moves are what the accepted drafts of a statement change in the rows of chats and senders, as
// arrays for appendDrafts. A place is an index of a chat, from 1.
type moves struct {
	// One element for each chat, in the order of the keys. counts are the numbers of messages, and
	// times that of the last message.
	keys, versions, counts, times []int64
	// sent are the messages of seat 1 and 2 that count as unread, for each chat. last says which
	// message of the chat's drafts is the last of them, from 1. It is 0 if there is none.
	sent, last [2][]int64
	// One element for each draft. backs is the number of messages of its chat after it.
	places, backs []int64
	others        others
}

// others are senders without a seat.
type others struct {
	places []int64
	users  []string
	// counts are the numbers of messages that count as unread. backs is the number of messages of
	// the chat after the last of them.
	counts, backs []int64
	// latest is the latest sender of each chat, and before the one before each sender in the same
	// chat: indexes from 1. 0 is none.
	latest, before []int
}

// movesOf returns the moves of the accepted drafts.
func movesOf(drafts []tidemark.Draft, todo []int, verdicts []verdict, accepted []int) *moves {
	m := &moves{keys: make([]int64, 0, len(accepted))}
	for _, n := range accepted {
		m.keys = append(m.keys, verdicts[n].chat)
	}
	slices.Sort(m.keys)
	m.keys = slices.Compact(m.keys)
	chats := len(m.keys)
	numbers := make([]int64, 7*chats+2*len(accepted))
	column := func(n int) (part []int64) {
		part, numbers = numbers[:n:n], numbers[n:]
		return part
	}
	m.versions, m.counts, m.times = column(chats), column(chats), column(chats)
	for seat := range m.sent {
		m.sent[seat], m.last[seat] = column(chats), column(chats)
	}
	m.places, m.backs = column(len(accepted)), column(len(accepted))
	for at, n := range accepted {
		d, v := &drafts[todo[n]], &verdicts[n]
		chat, _ := slices.BinarySearch(m.keys, v.chat)
		m.places[at] = int64(chat) + 1
		m.versions[chat], m.times[chat] = v.version, d.CreatedAt.UnixMilli()
		m.counts[chat]++
		m.backs[at] = m.counts[chat] // from the first, until all are counted
		switch {
		case !d.Kind.Counts():
		case v.seat > 0:
			m.sent[v.seat-1][chat]++
			m.last[v.seat-1][chat] = m.counts[chat]
		default:
			m.others.count(chat, chats, string(d.SenderID), m.counts[chat])
		}
	}
	for at, place := range m.places {
		m.backs[at] = m.counts[place-1] - m.backs[at]
	}
	for at, place := range m.others.places {
		m.others.backs[at] = m.counts[place-1] - m.others.backs[at]
	}
	return m
}

// count counts a message of a sender. nth says which message of the chat's drafts it is. chat is an
// index, and chats the number of chats.
func (o *others) count(chat, chats int, user string, nth int64) {
	if o.latest == nil {
		o.latest = make([]int, chats)
	}
	no := o.latest[chat]
	for no > 0 && o.users[no-1] != user {
		no = o.before[no-1]
	}
	if no == 0 {
		o.places, o.users = append(o.places, int64(chat)+1), append(o.users, user)
		o.counts, o.backs = append(o.counts, 0), append(o.backs, 0)
		o.before = append(o.before, o.latest[chat])
		no = len(o.users)
		o.latest[chat] = no
	}
	o.counts[no-1]++
	o.backs[no-1] = nth // from the first, until all are counted
}

// place sets the sequences in the verdicts on the accepted drafts. keys are the chats that have
// moved, in order, and heads and rows are their heads and the versions of their pending rows.
func (m *moves) place(verdicts []verdict, accepted []int, keys, heads, rows []int64) {
	for at, n := range accepted {
		if chat, moved := slices.BinarySearch(keys, verdicts[n].chat); moved {
			verdicts[n].sequence = heads[chat] - m.backs[at]
			verdicts[n].rows = rows[chat]
		}
	}
}
