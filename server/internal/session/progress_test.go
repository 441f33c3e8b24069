package session

import (
	"testing"

	"github.com/tidemark-im/tidemark"
)

// at returns the progress in a chat that was sent up to next-1. Its watermark was read.
func at(start, next, head, acked tidemark.Sequence) *progress {
	return &progress{
		chat:      "c",
		start:     start,
		next:      next,
		head:      head,
		acked:     acked,
		ackedRead: true,
		firstSeen: 1,
	}
}

func TestProgress_is_ready_exactly_if_there_is_something_to_send(t *testing.T) {
	for _, tt := range []struct {
		next, head tidemark.Sequence
		openEnded  bool
		want       bool
	}{
		{1, 0, false, false}, {1, 1, false, true}, {2, 1, false, false}, {2, 1, true, true},
	} {
		p := at(1, tt.next, tt.head, 0)
		p.openEnded = tt.openEnded
		if got := p.ready(); got != tt.want {
			t.Errorf("next %d, head %d, open-ended %v: ready = %v, want %v",
				tt.next, tt.head, tt.openEnded, got, tt.want)
		}
	}
}

// A notification, or the first watermark that is read, lowers the start. What is older than the
// client's cursor does not.
func TestProgress_R_MIN_the_lowest_begins(t *testing.T) {
	for _, tt := range []struct {
		name  string
		given *progress
		step  func(*progress) bool
		start tidemark.Sequence
		back  bool
	}{
		{
			"a lower notification",
			at(5, 8, 7, 4), func(p *progress) bool { return p.reach(3) }, 3, true,
		},
		{"a higher one", at(5, 8, 7, 4), func(p *progress) bool { return p.reach(6) }, 5, false},
		{
			"a lower one before anything was sent", at(5, 5, 7, 4),
			func(p *progress) bool { return p.reach(4) }, 4, true,
		},
		{"an older one than the client's position", func() *progress {
			p := at(5, 8, 7, 4)
			p.seek(6, 9)
			return p
		}(), func(p *progress) bool { return p.reach(3) }, 7, false},
		{
			"a watermark that is read for the first time",
			&progress{start: 5, next: 8, head: 7, firstSeen: 1},
			func(p *progress) bool { return p.learnAcked(2) }, 3, true,
		},
		{
			"one that is read again",
			at(5, 8, 7, 4), func(p *progress) bool { return p.learnAcked(2) }, 5, false,
		},
	} {
		p := tt.given
		if back := tt.step(p); back != tt.back || p.start != tt.start {
			t.Errorf("%s: start %d, back %v, want %d, %v",
				tt.name, p.start, back, tt.start, tt.back)
		}
	}
}

// A rewind keeps the head, and voids the page that was read before it.
func TestProgress_what_was_sent_before_a_rewind_is_not_lost(t *testing.T) {
	p := at(1, 6, 0, 0) // five messages were sent, to the end of the chat
	if p.rewind(3); p.next != 3 || p.head != 5 || p.rewinds != 1 {
		t.Errorf("got next %d, head %d, rewinds %d, want 3, 5, 1", p.next, p.head, p.rewinds)
	}
}

func TestProgress_served(t *testing.T) {
	for _, tt := range []struct {
		name               string
		wasOpenEnded, end  bool
		openEnded          bool
		through            tidemark.Sequence
		wantNext, wantHead tidemark.Sequence
		wantOpen           bool
	}{
		{"a page", false, false, false, 3, 4, 9, false},
		{"a page to the end", true, true, true, 12, 13, 12, false},
		{"a page of an open end", true, false, true, 12, 13, 12, true},
		{"an end that was opened since", false, true, true, 3, 4, 9, true},
		{"nothing", false, false, false, 0, 1, 9, false},
	} {
		p := at(1, 1, 9, 0)
		p.openEnded = tt.openEnded
		p.served(tt.through, tt.wasOpenEnded, tt.end)
		if p.next != tt.wantNext || p.head != tt.wantHead || p.openEnded != tt.wantOpen {
			t.Errorf("%s: got next %d, head %d, open-ended %v",
				tt.name, p.next, p.head, p.openEnded)
		}
	}
}

// A user who rejoins gets what another device has acknowledged in the meantime.
func TestProgress_leave(t *testing.T) {
	p := at(4, 8, 9, 5)
	p.openEnded = true
	if p.leave(); p.ready() || p.next != 6 || p.start != 4 || p.rewinds != 1 {
		t.Errorf("got %+v, want next 6, start 4, and nothing to send", *p)
	}
}

func TestProgress_R_WAKESET_the_row_of_what_is_not_acknowledged(t *testing.T) {
	for _, tt := range []struct {
		p    *progress
		want tidemark.Sequence
	}{
		{at(4, 4, 9, 5), 6},
		{&progress{chat: "c", start: 4, next: 4, head: 9}, 4},
	} {
		want := tidemark.PendingDelivery{UserID: "u", ChatID: "c", FirstUndelivered: tt.want}
		if got := tt.p.pending("u"); got != want {
			t.Errorf("pending of %+v = %v, want %v", *tt.p, got, want)
		}
	}
}

// Each of these reasons alone keeps a chat.
func TestChats_forget_only_what_can_be_had_again(t *testing.T) {
	for name, keep := range map[string]func(*progress){
		"queued":             func(p *progress) { p.queued = true },
		"a row may stand":    func(p *progress) { p.mayBePending = true },
		"a grace period":     func(p *progress) { p.grace = graceOn },
		"a moved one":        func(p *progress) { p.grace = graceMoved },
		"counts for the end": func(p *progress) { p.inBacklog = true },
		"not acknowledged":   func(p *progress) { p.acked = 3 },
		"":                   func(*progress) {},
	} {
		p := at(1, 6, 5, 5)
		keep(p)
		c := chats{byID: map[tidemark.ChatID]*progress{"c": p}}
		if got, want := c.add("d", 1, 1, 1) != nil, name == ""; got != want || c.full == want {
			t.Errorf("%s: room %v, full %v, want room %v", name, got, c.full, want)
		}
	}
}

// A chat with more to send goes to the end of the list.
func TestChats_take_turns(t *testing.T) {
	var c chats
	a, b := c.add("a", 1, 1, 9), c.add("b", 1, 1, 9)
	a.head, b.head = 2, 2
	c.queue(a)
	c.queue(b)
	c.queue(a)
	a.served(1, false, false)
	if c.requeue(a); len(c.ready) != 2 || c.ready[0] != b || c.ready[1] != a {
		t.Errorf("got %d ready chats, want b and a", len(c.ready))
	}
	b.served(2, false, false)
	if c.requeue(b); len(c.ready) != 1 || c.ready[0] != a || b.queued {
		t.Errorf("got %d ready chats, want a", len(c.ready))
	}
}

// The confirmations of held messages are sent in their place, or a later message ends that.
func TestProgress_holds_the_last_messages(t *testing.T) {
	for _, tt := range []struct {
		name               string
		steps              func(*progress)
		wantLast, wantHead tidemark.Sequence
	}{
		{"the next message", func(p *progress) { p.hold(6) }, 5, 6},
		{"two of them", func(p *progress) { p.hold(6); p.hold(7) }, 5, 7},
		{"one that was known", func(p *progress) { p.hold(5) }, 5, 5},
		{"one with others before it", func(p *progress) { p.hold(8) }, 7, 8},
		{"a later message", func(p *progress) { p.hold(6); p.raise(7) }, 7, 7},
		{"the same message", func(p *progress) { p.hold(6); p.raise(6) }, 5, 6},
		{"the first is released", func(p *progress) { p.hold(6); p.hold(7); p.release(6) }, 6, 7},
		{"all are", func(p *progress) { p.hold(6); p.hold(7); p.release(7) }, 7, 7},
		{"an earlier one is", func(p *progress) { p.hold(6); p.release(5) }, 5, 6},
		{"the user leaves", func(p *progress) { p.hold(6); p.leave() }, 0, 0},
	} {
		p := at(1, 6, 5, 5)
		tt.steps(p)
		if p.last() != tt.wantLast || p.head != tt.wantHead {
			t.Errorf("%s: last %d, head %d, want %d, %d",
				tt.name, p.last(), p.head, tt.wantLast, tt.wantHead)
		}
		if held := p.last() < p.head; held && p.forgettable() {
			t.Errorf("%s: the session may forget the chat of a message that it holds", tt.name)
		}
	}
}
