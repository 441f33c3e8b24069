package storagetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tidemark-im/tidemark"
)

const (
	// searchTime is the time limit of the search for an order. A search usually takes milliseconds.
	searchTime = 30 * time.Second
	// shortenTime is the time limit of each search that makes a contradiction shorter.
	shortenTime = 200 * time.Millisecond
)

// check returns "" if the operations in a chat have an order that the contract allows. Otherwise it
// returns a report that explains the contradiction. decided is false if h.searchTime was too short
// to find an order or to exclude all of them.
func (h *history) check(chat tidemark.ChatID) (report string, decided bool) {
	var operations []*operation
	for _, o := range h.operations {
		if o.chat == chat {
			operations = append(operations, o)
		}
	}
	slices.SortFunc(operations, func(a, b *operation) int { return cmp.Compare(a.call, b.call) })
	first := h.first[chat]
	result, best := search(first, operations, h.searchTime)
	says := "no order of these operations gives these answers"
	switch result {
	case porcupine.Ok:
		return "", true
	case porcupine.Unknown:
		says = fmt.Sprintf("no order of these %d operations was found in %v, and not all orders "+
			"are excluded", len(operations), h.searchTime)
	default:
		operations = shorten(first, operations)
		_, best = search(first, operations, searchTime)
	}
	return says + ". " + strings.ReplaceAll(describe(first, operations, best), h.prefix, ""),
		result != porcupine.Unknown
}

// unexplained returns "" if each draft of a chat that was refused alone has a reason. Otherwise it
// returns a report. The database works, so the only reason is another write that held a lock on the
// chat: one at the same time, or one of unknown outcome.
func (h *history) unexplained(chat tidemark.ChatID) string {
	for _, o := range h.operations {
		if o.chat != chat || !o.refused {
			continue
		}
		holds := func(other *operation) bool {
			return other != o && other.chat == chat && other.writes && other.call <= o.answer &&
				other.answer >= o.call
		}
		//rule:send_idempotent.refusal-has-a-reason
		if !slices.ContainsFunc(h.operations, holds) {
			return fmt.Sprintf("a draft was refused alone, and no other write to the chat was "+
				"under way: client %d  %s → %s", o.client, o.what, o.got)
		}
	}
	return ""
}

// search reports whether there is an order, and returns the longest beginning of one. Without time
// it decides nothing.
func search(
	first room, operations []*operation, atMost time.Duration,
) (porcupine.CheckResult, []*operation) {
	if atMost <= 0 { // to porcupine that means any time
		return porcupine.Unknown, nil
	}
	all := make([]porcupine.Operation, len(operations))
	for i, o := range operations {
		all[i] = porcupine.Operation{
			ClientId: o.client,
			Input:    o,
			Call:     int64(o.call),
			Return:   int64(o.answer),
		}
	}
	result, info := porcupine.CheckOperationsVerbose(porcupine.Model{
		Init: func() any { return first },
		Step: func(state, input, _ any) (bool, any) {
			o := input.(*operation)
			after, want := o.apply(state.(room))
			return o.unknown || o.got == want, after
		},
	}, all, atMost)
	var longest []*operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = longest[:0]
				for _, o := range order {
					longest = append(longest, o.Input.(*operation))
				}
			}
		}
	}
	return result, longest
}

// shorten removes operations that a contradiction does not need: reads, and operations that began
// after all others had ended. The operations are in the order of their calls.
func shorten(first room, operations []*operation) []*operation {
	for i := len(operations) - 1; i >= 0; i-- {
		o := operations[i]
		last := !slices.ContainsFunc(operations, func(other *operation) bool {
			return other != o && other.answer >= o.call && !other.unknown
		})
		if !o.reads && !last {
			continue
		}
		without := slices.Delete(slices.Clone(operations), i, i+1)
		if result, _ := search(first, without, shortenTime); result == porcupine.Illegal {
			operations = without
		}
	}
	return operations
}

// describe lists the operations, the longest order of them, and why it cannot be continued.
func describe(first room, operations, best []*operation) string {
	var b strings.Builder
	b.WriteString("They are in the order of their calls, with the times of call and answer " +
		"in µs:\n")
	for _, o := range operations {
		answered, got := fmt.Sprint(o.answer.Microseconds()), o.got
		if o.unknown {
			answered, got = "never", "unknown"
		}
		fmt.Fprintf(&b, "  %7d to %7s  client %d  %s → %s\n",
			o.call.Microseconds(), answered, o.client, o.what, got)
	}
	fmt.Fprintf(&b, "\nThe longest order that was found:\n")
	state, done := first, map[*operation]bool{}
	for i, o := range best {
		var answer string
		state, answer = o.apply(state)
		done[o] = true
		fmt.Fprintf(&b, "  %3d.  client %d  %s → %s\n", i+1, o.client, o.what, answer)
	}
	fmt.Fprintf(&b, "\nIt leaves: %s; %s\n", state.info(), state.members())
	for who, s := range state.seats {
		fmt.Fprintf(&b, "  %s: %s, pending %s\n",
			seatNames[who], stateText(s.state()), state.pending(who))
	}
	fmt.Fprintf(&b, "  messages: %s\n\nThe next cannot be any of:\n", state.page(1, state.head))
	for _, o := range operations {
		// Only an operation that began before all others of the rest had ended can be next.
		earlier := func(other *operation) bool { return !done[other] && other.answer < o.call }
		if !done[o] && !slices.ContainsFunc(operations, earlier) {
			_, want := o.apply(state)
			fmt.Fprintf(&b, "  client %d  %s → %s, which would be answered: %s\n",
				o.client, o.what, o.got, want)
		}
	}
	return b.String()
}
