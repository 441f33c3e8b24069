package checker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// play is the events of one chat: ann sends, and bob has one device. Each case changes them.
type play struct {
	ledger *Ledger
	bob    *Log
	truth  Truth
}

// newPlay returns correct events: three messages, all confirmed, received in order, acknowledged
// and reported.
func newPlay() *play {
	p := &play{
		ledger: NewLedger(),
		truth: Truth{
			Chats:   map[string]*Chat{},
			States:  map[Member]Boundary{},
			Pending: map[Member]int64{},
		},
	}
	p.ledger.Join("c", "ann", "bob")
	p.bob = p.ledger.NewLog("bob/0", "bob")
	p.truth.Chats["c"] = &Chat{
		Members: map[string]Membership{
			"ann": {Current: true, Ranges: []Range{{From: 1}}},
			"bob": {Current: true, Ranges: []Range{{From: 1}}},
		},
	}
	p.bob.Connect("websocket")
	p.bob.Open("s", false, 1)
	for n := range int64(3) {
		p.send(n + 1)
		p.bob.Message("c", n+1, "ann", id(n+1), 10+n)
	}
	p.ledger.Acknowledge("c", "bob", Boundary{3, 2})
	p.truth.States[Member{"c", "bob"}] = Boundary{3, 2}
	p.truth.States[Member{"c", "ann"}] = Boundary{3, 0}
	p.bob.Status("c", "bob", Boundary{3, 2}, 20)
	p.bob.Status("c", "ann", Boundary{3, 0}, 21)
	return p
}

func id(n int64) string { return string(rune('a' + n)) }

// send sends a message, stores and confirms it.
func (p *play) send(n int64) {
	p.ledger.Begin("c", "ann", id(n))
	p.store(n, id(n))
	p.ledger.Confirm("c", "ann", id(n), n, false)
}

func (p *play) store(n int64, id string) {
	c := p.truth.Chats["c"]
	c.Messages = append(c.Messages, Message{n, "ann", id})
	c.Head = n
}

// again opens another connection of bob's device, which resumes.
func (p *play) again() {
	p.bob.Disconnect()
	p.bob.Connect("sse")
	p.bob.Open("s", true, 0)
}

// TestChecker_notices_every_lie shows that the checker finds each breach. Correct events have no
// complaint, also with resumptions, lost sessions and unknown outcomes. Each breach has its own
// complaint.
func TestChecker_notices_every_lie(t *testing.T) {
	for name, tc := range map[string]struct {
		lie  func(p *play)
		want Kind // "" if no complaint is expected
	}{
		"honest": {func(*play) {}, ""},
		"honest: resumed, with some of it again": {func(p *play) {
			p.again()
			p.bob.Message("c", 2, "ann", id(2), 30)
			p.bob.Message("c", 3, "ann", id(3), 31)
		}, ""},
		"honest: another session, which starts too late until it has the cursors": {func(p *play) {
			p.bob.Disconnect()
			p.bob.Connect("sse")
			p.bob.Open("other", false, 1)
			p.bob.Reset("unknown_session", "", 2)
			for n := int64(4); n <= 6; n++ {
				p.send(n)
			}
			p.bob.Message("c", 6, "ann", id(6), 3)
			p.bob.Cursors()
			p.bob.Given("other")
			for n := int64(4); n <= 6; n++ {
				p.bob.Message("c", n, "ann", id(n), n)
			}
		}, ""},
		"honest: a send without an answer, found by the next one": {func(p *play) {
			p.ledger.Begin("c", "ann", id(4))
			p.ledger.Unanswered("c", "ann", id(4))
			p.store(4, id(4))
			p.ledger.Confirm("c", "ann", id(4), 4, true)
			p.bob.Message("c", 4, "ann", id(4), 30)
		}, ""},
		"honest: a send without an answer is not stored": {func(p *play) {
			p.ledger.Begin("c", "ann", id(4))
			p.ledger.Abandon("c", "ann", id(4))
		}, ""},
		"honest: a gap where the user was no member": {func(p *play) {
			p.send(4)
			p.send(5)
			p.truth.Chats["c"].Members["bob"] = Membership{
				Current: true,
				Ranges:  []Range{{1, 3}, {From: 5}},
			}
			p.bob.Gap("c", 4, 4, 30)
			p.bob.Message("c", 5, "ann", id(5), 31)
		}, ""},
		"honest: a connection begins too late when something went wrong, and goes " +
			"back": {func(p *play) {
			p.ledger.Disturb()
			p.send(4)
			p.send(5)
			p.again()
			p.bob.Message("c", 5, "ann", id(5), 30)
			p.bob.Cursors()
			p.bob.Message("c", 4, "ann", id(4), 31)
			p.bob.Message("c", 5, "ann", id(5), 32)
		}, ""},
		"honest: a connection begins too late, as a notification is late, and goes " +
			"back": {func(p *play) {
			p.send(4)
			p.send(5)
			p.again()
			p.bob.Message("c", 5, "ann", id(5), 30)
			p.bob.Message("c", 4, "ann", id(4), 31)
			p.bob.Message("c", 5, "ann", id(5), 32)
		}, ""},
		"honest: a stream goes back when the machine stood still": {func(p *play) {
			p.bob.Message("c", 2, "ann", id(2), 30)
			p.bob.Message("c", 3, "ann", id(3), 31)
			p.ledger.Excuse()
			p.ledger.Disturb()
		}, ""},
		"honest: an author's own message is acknowledged by itself": {func(p *play) {
			p.bob.Status("c", "ann", Boundary{3, 0}, 30)
		}, ""},
		"honest: an author has read their own message": {func(p *play) {
			p.bob.Status("c", "ann", Boundary{3, 3}, 30)
			p.truth.States[Member{"c", "ann"}] = Boundary{3, 3}
		}, ""},

		"a confirmed send is not stored": {func(p *play) {
			p.ledger.Begin("c", "ann", "x")
			p.ledger.Confirm("c", "ann", "x", 4, false)
		}, Lost},
		"a confirmed send is stored at another sequence": {func(p *play) {
			p.ledger.Begin("c", "ann", "x")
			p.ledger.Confirm("c", "ann", "x", 3, false)
		}, Lost},
		"the end of a chat is lost after it was delivered": {
			func(p *play) { c := p.truth.Chats["c"]; c.Messages, c.Head = c.Messages[:2], 2 }, Lost,
		},
		"the server says that a device is ahead": {
			func(p *play) { p.bob.Reset("ahead", "c", 30) }, Lost,
		},
		"a send is stored twice": {func(p *play) {
			p.store(4, id(3))
			p.bob.Message("c", 4, "ann", id(3), 30)
		}, Twice},
		"a send is confirmed twice, at two sequences": {
			func(p *play) { p.ledger.Confirm("c", "ann", id(3), 2, true) }, Twice,
		},
		"a first send is called a duplicate": {func(p *play) {
			p.ledger.Begin("c", "ann", "x")
			p.store(4, "x")
			p.ledger.Confirm("c", "ann", "x", 4, true)
		}, Twice},
		"a sequence is missing in the database": {func(p *play) {
			c := p.truth.Chats["c"]
			c.Messages = append(c.Messages[:1], c.Messages[2:]...)
		}, Gap},
		"the head is beyond the messages": {
			func(p *play) { p.truth.Chats["c"].Head = 4 }, Gap,
		},
		"a stream leaves a message out": {
			func(p *play) { p.send(4); p.send(5); p.bob.Message("c", 5, "ann", id(5), 30) }, Gap,
		},
		"a resumed stream leaves a message out": {func(p *play) {
			p.send(4)
			p.send(5)
			p.again()
			p.bob.Message("c", 5, "ann", id(5), 30)
		}, Gap},
		"a connection begins too late, and goes back to what the device has": {func(p *play) {
			p.send(4)
			p.send(5)
			p.again()
			p.bob.Message("c", 5, "ann", id(5), 30)
			p.bob.Message("c", 3, "ann", id(3), 31)
			p.ledger.Disturb()
			p.bob.Message("c", 4, "ann", id(4), 32)
			p.bob.Message("c", 5, "ann", id(5), 33)
		}, Gap},
		"a connection begins too late, and never goes back": {func(p *play) {
			p.ledger.Disturb()
			p.send(4)
			p.send(5)
			p.again()
			p.bob.Message("c", 5, "ann", id(5), 30)
		}, Incomplete},
		"a stream leaves a message out when something went wrong": {func(p *play) {
			p.ledger.Disturb()
			p.send(4)
			p.send(5)
			p.bob.Message("c", 5, "ann", id(5), 30)
		}, Gap},
		"a stream calls a gap what the user may see": {
			func(p *play) { p.send(4); p.bob.Gap("c", 4, 4, 30) }, Gap,
		},
		"a gap has no end": {
			func(p *play) { p.bob.Gap("c", 4, 3, 30) }, Gap,
		},
		"a stream goes back by itself": {
			func(p *play) { p.bob.Message("c", 2, "ann", id(2), 30) }, Order,
		},
		"a stream goes back before the first fault": {func(p *play) {
			p.bob.Message("c", 2, "ann", id(2), 30)
			p.bob.Message("c", 3, "ann", id(3), 31)
			p.ledger.Disturb()
		}, Order},
		"a stream sends a message twice": {
			func(p *play) { p.bob.Message("c", 3, "ann", id(3), 30) }, Order,
		},
		"events have one number": {
			func(p *play) { p.send(4); p.bob.Message("c", 4, "ann", id(4), 21) }, Order,
		},
		"a resumed session is another one": {func(p *play) {
			p.bob.Disconnect()
			p.bob.Connect("sse")
			p.bob.Open("other", true, 0)
		}, Order},
		"a tick goes back": {
			func(p *play) { p.bob.Status("c", "bob", Boundary{2, 2}, 30) }, Back,
		},
		"a blue tick goes back": {
			func(p *play) { p.bob.Status("c", "bob", Boundary{3, 1}, 30) }, Back,
		},
		"a tick goes back when the stream is resumed": {
			func(p *play) { p.again(); p.bob.Status("c", "bob", Boundary{2, 2}, 30) }, Back,
		},
		"a watermark is lost": {
			func(p *play) { p.truth.States[Member{"c", "bob"}] = Boundary{2, 2} }, Back,
		},
		"a read mark is lost": {
			func(p *play) { delete(p.truth.States, Member{"c", "bob"}) }, Back,
		},
		"a watermark is beyond the head": {
			func(p *play) { p.truth.States[Member{"c", "bob"}] = Boundary{4, 2} }, Beyond,
		},
		"a watermark is beyond what was acknowledged": {func(p *play) {
			p.send(4)
			p.bob.Message("c", 4, "ann", id(4), 30)
			p.truth.States[Member{"c", "bob"}] = Boundary{4, 2}
		}, Beyond},
		"a tick is beyond what was acknowledged": {func(p *play) {
			p.send(4)
			p.bob.Message("c", 4, "ann", id(4), 30)
			p.bob.Status("c", "bob", Boundary{4, 2}, 31)
			p.ledger.Acknowledge("c", "bob", Boundary{4, 2}) // bob acknowledges it only now
			p.truth.States[Member{"c", "bob"}] = Boundary{4, 2}
		}, Beyond},
		"delivered is reported as read": {func(p *play) {
			p.bob.Status("c", "bob", Boundary{3, 3}, 30)
			p.ledger.Acknowledge("c", "bob", Boundary{3, 3})
			p.truth.States[Member{"c", "bob"}] = Boundary{3, 3}
		}, Beyond},
		"a reply reads what came after it": {func(p *play) {
			p.ledger.Begin("c", "bob", id(4))
			p.store(4, id(4))
			p.truth.Chats["c"].Messages[3].Sender = "bob"
			p.ledger.Confirm("c", "bob", id(4), 4, false)
			p.bob.Message("c", 4, "bob", id(4), 30)
			p.send(5)
			p.bob.Message("c", 5, "ann", id(5), 31)
			p.ledger.Acknowledge("c", "bob", Boundary{5, 2})
			p.bob.Status("c", "bob", Boundary{5, 5}, 32)
			p.truth.States[Member{"c", "bob"}] = Boundary{5, 5}
		}, Beyond},
		"a message that nobody has sent": {
			func(p *play) { p.store(4, "x"); p.bob.Message("c", 4, "ann", "x", 30) }, Foreign,
		},
		"a message is another one than stored": {
			func(p *play) { p.send(4); p.bob.Message("c", 4, "ann", id(3), 30) }, Foreign,
		},
		"a message is another one when it comes again": {
			func(p *play) { p.again(); p.bob.Message("c", 3, "ann", id(2), 30) }, Foreign,
		},
		"a message from before the user was a member": {func(p *play) {
			p.truth.Chats["c"].Members["bob"] = Membership{
				Current: true,
				Ranges:  []Range{{From: 2}},
			}
		}, Foreign},
		"a message from after the user was removed": {func(p *play) {
			p.truth.Chats["c"].Members["bob"] = Membership{Ranges: []Range{{1, 2}}}
		}, Foreign},
		"a message never comes": {func(p *play) { p.send(4) }, Incomplete},
		"a message is in no stream, and was never confirmed": {func(p *play) {
			p.ledger.Begin("c", "ann", id(4))
			p.ledger.Abandon("c", "ann", id(4))
			p.store(4, id(4))
		}, Incomplete},
		"a chat never comes": {func(p *play) {
			p.truth.Chats["d"] = &Chat{
				Head:     1,
				Messages: []Message{{1, "ann", "x"}},
				Members:  map[string]Membership{"bob": {Current: true, Ranges: []Range{{From: 1}}}},
			}
			p.ledger.Begin("d", "ann", "x")
		}, Incomplete},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay()
			tc.lie(p)
			p.ledger.Verify(p.truth, []*Log{p.bob})
			faults, counts := p.ledger.Faults()
			switch {
			case tc.want == "" && len(faults) > 0:
				t.Errorf("the checker complains of %v", faults)
			case tc.want != "" && counts[tc.want] == 0:
				t.Errorf("the checker complains of %v, and not of %q", faults, tc.want)
			}
		})
	}
}

func TestTruth_Behind_names_who_has_no_row(t *testing.T) {
	p := newPlay()
	p.send(4)
	behind, unmarked := p.truth.Behind()
	if len(behind) != 1 || len(unmarked) != 1 || behind[0] != (Member{"c", "bob"}) {
		t.Errorf("got %v and %v, want bob in both: ann wrote what she is behind by",
			behind, unmarked)
	}
	p.truth.Pending[Member{"c", "bob"}] = 4
	if behind, unmarked := p.truth.Behind(); len(behind) != 1 || len(unmarked) != 0 {
		t.Errorf("with a row: got %v and %v", behind, unmarked)
	}
	p.truth.Pending[Member{"c", "bob"}] = 5
	if _, unmarked := p.truth.Behind(); len(unmarked) != 1 {
		t.Errorf("with a row that begins too late: got %v", unmarked)
	}
}

// TestWaits_only_what_could_be_served: waiting time counts while the device is connected, except in
// an outage.
func TestWaits_only_what_could_be_served(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlay()
		p.send(4)
		time.Sleep(time.Second)
		p.bob.Disconnect()
		time.Sleep(10 * time.Second) // disconnected
		p.again()
		time.Sleep(time.Second)
		bright := p.ledger.Outages.Begin(2 * time.Second)
		time.Sleep(5 * time.Second)
		bright()
		time.Sleep(3 * time.Second)
		p.bob.Message("c", 4, "ann", id(4), 30)
		waits := p.bob.Waits()
		if got, want := waits.Worst.Took, 3*time.Second; got != want || waits.Count() != 4 {
			t.Errorf("got %v of %d, want %v of 4", got, waits.Count(), want)
		}
		if got := waits.String(); !strings.HasPrefix(got, "4: half within 1ms") {
			t.Errorf("got %q", got)
		}
	})
}

// TestAwait_is_whole_once: a goal is reached once, when the device has every message confirmed
// before Await. Messages confirmed later do not count.
func TestAwait_is_whole_once(t *testing.T) {
	p := newPlay()
	reached := 0
	p.bob.Await(func(time.Duration) { reached++ })
	if reached != 1 {
		t.Fatalf("one who has everything: reached %d times", reached)
	}
	p.send(4)
	p.send(5)
	p.bob.Await(func(time.Duration) { reached++ })
	p.send(6)
	p.bob.Message("c", 4, "ann", id(4), 30)
	if reached != 1 {
		t.Errorf("one who lacks a message: reached %d times", reached)
	}
	p.bob.Message("c", 5, "ann", id(5), 31)
	p.bob.Message("c", 6, "ann", id(6), 32)
	if reached != 2 {
		t.Errorf("one who has got it: reached %d times", reached)
	}
}
