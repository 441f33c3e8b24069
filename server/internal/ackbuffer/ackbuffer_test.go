package ackbuffer_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/ackbuffer"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/storage"
)

var (
	bob   = storage.StateKey{User: "bob", Chat: "c"}
	start = time.UnixMilli(1_000)
)

// bobAt returns a Buffer on a node that knows bob's watermark.
func bobAt(acked tidemark.Sequence) *ackbuffer.Buffer {
	known := watermark.New(8)
	known.Raise(tidemark.DeliveryState{UserID: bob.User, ChatID: bob.Chat, Acked: acked})
	return ackbuffer.New(known)
}

func rows(firsts ...tidemark.Sequence) []tidemark.PendingDelivery {
	var rows []tidemark.PendingDelivery
	for _, first := range firsts {
		rows = append(rows, tidemark.PendingDelivery{
			UserID: bob.User, ChatID: bob.Chat, FirstUndelivered: first,
		})
	}
	return rows
}

// raises takes what waits, and returns the raises.
func raises(t *testing.T, b *ackbuffer.Buffer) []tidemark.Raise {
	t.Helper()
	items, rows := b.Take(start)
	if len(rows) > 0 {
		t.Errorf("Take returned the rows %v, want none", rows)
	}
	var raises []tidemark.Raise
	for _, it := range items {
		raises = append(raises, it.Advance.Raise)
	}
	return raises
}

func TestTake_folds_what_waits_into_one_raise(t *testing.T) {
	for _, tc := range []struct {
		name string
		add  func(b *ackbuffer.Buffer)
		want []tidemark.Raise
	}{
		{"nothing", func(*ackbuffer.Buffer) {}, nil},
		{"the highest of each watermark", func(b *ackbuffer.Buffer) {
			b.Add(bob, "s", 5, 0)
			b.Add(bob, "s", 7, 2)
			b.Add(bob, "t", 6, 3)
		}, []tidemark.Raise{{Acked: 7, Read: 3}}},
		{"a message that joins the acknowledgement", func(b *ackbuffer.Buffer) {
			b.Add(bob, "s", 7, 0)
			b.Authored(bob.User, bob.Chat, 8, tidemark.SeenThrough(7))
		}, []tidemark.Raise{{Acked: 8, Read: 8}}},
		{"a message alone counts from its place", func(b *ackbuffer.Buffer) {
			b.Authored(bob.User, bob.Chat, 9, tidemark.SeenThrough(3))
		}, []tidemark.Raise{{Acked: 9, Read: 3, AckedFrom: 9}}},
		{"messages in a row are one run", func(b *ackbuffer.Buffer) {
			b.Authored(bob.User, bob.Chat, 5, tidemark.SeenThrough(3))
			b.Authored(bob.User, bob.Chat, 6, tidemark.SeenThrough(4))
		}, []tidemark.Raise{{Acked: 6, Read: 6, AckedFrom: 5}}},
		{"a message that declines reading", func(b *ackbuffer.Buffer) {
			b.Authored(bob.User, bob.Chat, 5, tidemark.SeenThrough(0))
		}, []tidemark.Raise{{Acked: 5, AckedFrom: 5}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := bobAt(4)
			tc.add(b)
			if got := raises(t, b); !slices.Equal(got, tc.want) {
				t.Errorf("the raises are %+v, want %+v", got, tc.want)
			}
			if again := raises(t, b); again != nil {
				t.Errorf("the next Take has %+v, want nothing", again)
			}
		})
	}
}

// A message behind a hole is not added to the acknowledgement before the hole: that would count the
// messages in the hole as delivered.
func TestTake_a_run_behind_a_hole_waits_for_the_next_batch(t *testing.T) {
	b := bobAt(4)
	b.Add(bob, "s", 5, 0)
	b.Authored(bob.User, bob.Chat, 8, tidemark.SeenThrough(1))
	if got, want := raises(t, b), []tidemark.Raise{{Acked: 5}}; !slices.Equal(got, want) {
		t.Errorf("the first batch has %+v, want %+v", got, want)
	}
	want := []tidemark.Raise{{Acked: 8, Read: 1, AckedFrom: 8}}
	if got := raises(t, b); !slices.Equal(got, want) {
		t.Errorf("the second batch has %+v, want %+v", got, want)
	}
}

// Together they would read what the first one declined, or not read what the second one implies.
func TestTake_a_run_that_declines_reading_stays_apart(t *testing.T) {
	b := bobAt(4)
	b.Authored(bob.User, bob.Chat, 5, tidemark.SeenThrough(0))
	b.Authored(bob.User, bob.Chat, 6, tidemark.Seen{})
	if got, want := raises(t, b), []tidemark.Raise{{Acked: 5, AckedFrom: 5}}; !slices.Equal(
		got, want) {
		t.Errorf("the first batch has %+v, want %+v", got, want)
	}
	want := []tidemark.Raise{{Acked: 6, Read: 6, AckedFrom: 6, ReadWithinAcked: true}}
	if got := raises(t, b); !slices.Equal(got, want) {
		t.Errorf("the second batch has %+v, want %+v", got, want)
	}
	// Beside one that says what was read, both say something. They are one raise, and not one run.
	b = bobAt(4)
	b.Authored(bob.User, bob.Chat, 5, tidemark.SeenThrough(0))
	b.Authored(bob.User, bob.Chat, 6, tidemark.SeenThrough(4))
	want = []tidemark.Raise{{Acked: 6, AckedFrom: 5, Read: 4}}
	if got := raises(t, b); !slices.Equal(got, want) {
		t.Errorf("with one that says what was read, it has %+v, want %+v", got, want)
	}
}

// A message is covered while everything before it is known to be acknowledged, waits, or is being
// written.
func TestAuthored_is_covered_without_a_hole(t *testing.T) {
	b := bobAt(4)
	for _, tc := range []struct {
		what     string
		sequence tidemark.Sequence
		covered  bool
	}{
		{"follows the watermark", 5, true},
		{"follows a message that waits", 6, true},
		{"is behind a hole", 9, false},
	} {
		if got := b.Authored(bob.User, bob.Chat, tc.sequence, tidemark.Seen{}); got != tc.covered {
			t.Errorf("a message that %s: covered is %v, want %v", tc.what, got, tc.covered)
		}
	}
	b.Take(start)
	if !b.Authored(bob.User, bob.Chat, 7, tidemark.Seen{}) {
		t.Error("a message that follows one which is being written is not covered")
	}
	b.Written()
	if b.Authored(bob.User, bob.Chat, 8, tidemark.Seen{}) {
		t.Error("a message is covered by a write that has ended without raising the watermark")
	}
}

// TestRun_that_does_not_join_is_retried_once follows that column of the table above the type run.
func TestRun_that_does_not_join_is_retried_once(t *testing.T) {
	take := func(t *testing.T, b *ackbuffer.Buffer) ackbuffer.Item {
		t.Helper()
		items, _ := b.Take(start)
		b.Written()
		if len(items) != 1 || !items[0].ByAuthor() {
			t.Fatalf("got the items %+v, want one of the author", items)
		}
		return items[0]
	}
	for _, covered := range []bool{true, false} {
		acked, want := tidemark.Sequence(4), rows(5)
		if !covered {
			acked, want = 3, nil
		}
		b := bobAt(acked)
		if got := b.Authored(bob.User, bob.Chat, 5, tidemark.Seen{}); got != covered {
			t.Fatalf("covered is %v, want %v", got, covered)
		}
		again := start.Add(time.Second)
		if got := b.Failed(take(t, b), again); got != nil {
			t.Errorf("covered %v: the first failure gives the rows %v, want a retry", covered, got)
		}
		if next, _ := b.Requeue(start); !next.Equal(again) {
			t.Errorf("covered %v: the retry is due at %v, want %v", covered, next, again)
		}
		if items, _ := b.Take(start); len(items) > 0 {
			t.Errorf("covered %v: %+v before the retry is due", covered, items)
		}
		b.Requeue(again)
		if got := b.Failed(take(t, b), again); !slices.Equal(got, want) {
			t.Errorf("covered %v: the second failure gives the rows %v, want %v",
				covered, got, want)
		}
		if next, _ := b.Requeue(again); !next.IsZero() {
			t.Errorf("covered %v: a third attempt is due at %v", covered, next)
		}
	}
}

func TestRefold_falls_back_to_what_the_head_allows(t *testing.T) {
	b := bobAt(4)
	b.Add(bob, "s", 6, 0)
	b.Add(bob, "s", 1_000, 0)
	b.Add(bob, "s", 5, 900)
	refused, _ := b.Take(start)
	items, _ := b.Refold(refused, []tidemark.Sequence{8}, start)
	if len(items) != 1 || items[0].Advance.Raise != (tidemark.Raise{Acked: 6}) ||
		items[0].Refoldable() {
		t.Errorf("got %+v, want one raise to 6 that is final", items)
	}
	if items, _ = b.Refold(refused, []tidemark.Sequence{0}, start); len(items) > 0 {
		t.Errorf("of a chat without messages, got %+v", items)
	}
}

// Close returns the rows of covered runs, wherever these are. Afterwards nothing is covered, so
// senders mark rows.
func TestClose_gives_back_what_it_covered(t *testing.T) {
	b := bobAt(4)
	b.Authored(bob.User, bob.Chat, 5, tidemark.Seen{})
	items, _ := b.Take(start)
	b.Failed(items[0], start)
	b.Written()
	b.Add(bob, "s", 5, 0)
	b.Authored(bob.User, bob.Chat, 6, tidemark.Seen{})
	if got, want := b.Close(), rows(5, 6); !reflect.DeepEqual(got, want) {
		t.Errorf("Close gives the rows %v, want %v", got, want)
	}
	if b.Authored(bob.User, bob.Chat, 7, tidemark.Seen{}) || b.Add(bob, "s", 7, 0) {
		t.Error("a closed Buffer accepts raises")
	}
	if got := b.Close(); got != nil {
		t.Errorf("a second Close gives the rows %v", got)
	}
}

// TestTake_own_state_reaches_devices_but_not_the_one_that_read: the session with the highest read
// knows it.
func TestTake_own_state_reaches_devices_but_not_the_one_that_read(t *testing.T) {
	for _, tc := range []struct {
		name string
		add  func(b *ackbuffer.Buffer)
		want tidemark.SessionID
	}{
		{"one", func(b *ackbuffer.Buffer) { b.Add(bob, "phone", 5, 3) }, "phone"},
		{"the later one is higher", func(b *ackbuffer.Buffer) {
			b.Add(bob, "phone", 5, 3)
			b.Add(bob, "laptop", 5, 4)
		}, "laptop"},
		{"the earlier one is higher", func(b *ackbuffer.Buffer) {
			b.Add(bob, "phone", 5, 4)
			b.Add(bob, "laptop", 6, 3)
		}, "phone"},
		{"only acknowledged", func(b *ackbuffer.Buffer) { b.Add(bob, "phone", 5, 0) }, ""},
		{"a reply read more", func(b *ackbuffer.Buffer) {
			b.Add(bob, "phone", 7, 3)
			b.Authored(bob.User, bob.Chat, 8, tidemark.SeenThrough(7))
		}, ""},
	} {
		b := bobAt(4)
		tc.add(b)
		if items, _ := b.Take(start); len(items) != 1 || items[0].Reader != tc.want {
			t.Errorf("%s: got %+v, want one raise, read by %q", tc.name, items, tc.want)
		}
	}
}
