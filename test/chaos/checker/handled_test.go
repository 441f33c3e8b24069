package checker

import "testing"

// TestChecker_notices_every_lie_of_the_Go_client: the entries of a device that is told only what
// others wrote. Correct ones have no complaint, and each breach has its own.
func TestChecker_notices_every_lie_of_the_Go_client(t *testing.T) {
	for name, tc := range map[string]struct {
		lie  func(p *play, d *Log)
		want Kind
	}{
		"honest": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(4))
			d.Saved("c", 6) // with bob's own message
		}, ""},
		"honest: a gap where the user was no member": {func(p *play, d *Log) {
			p.truth.Chats["c"].Members["bob"] = Membership{
				Current: true, Ranges: []Range{{1, 3}, {From: 5}},
			}
			d.Saved("c", 6)
		}, ""},
		"a message is skipped": {func(_ *play, d *Log) { d.Saved("c", 6) }, Gap},
		"a message is handled twice": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(4))
			d.Handled("c", 4, "ann", id(4))
			d.Saved("c", 6)
		}, Twice},
		"a later message comes first": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(4))
			d.Handled("c", 3, "ann", id(3))
			d.Saved("c", 6)
		}, Twice},
		"the cursor falls": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(4))
			d.Saved("c", 3)
			d.Saved("c", 6)
		}, Lost},
		"a message that nobody sent": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", "nonsense")
			d.Saved("c", 6)
		}, Foreign},
		"an own message": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(4))
			d.Handled("c", 5, "bob", id(5))
			d.Saved("c", 6)
		}, Foreign},
		"another message": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(3))
			d.Saved("c", 6)
		}, Foreign},
		"not everything": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(4))
			d.Saved("c", 4)
		}, Incomplete},
		"beyond the head": {func(_ *play, d *Log) {
			d.Handled("c", 4, "ann", id(4))
			d.Saved("c", 7)
		}, Lost},
	} {
		p := newPlay()
		p.send(4)
		for n := int64(5); n <= 6; n++ {
			p.ledger.Begin("c", "bob", id(n))
			chat := p.truth.Chats["c"]
			chat.Messages, chat.Head = append(chat.Messages, Message{n, "bob", id(n)}), n
			p.ledger.Confirm("c", "bob", id(n), n, false)
		}
		d := p.ledger.NewLog("bob/1", "bob")
		d.Others = true
		d.Attached("websocket", false)
		for n := int64(1); n <= 3; n++ {
			d.Handled("c", n, "ann", id(n))
			d.Saved("c", n)
		}
		tc.lie(p, d)
		p.ledger.Verify(p.truth, []*Log{d})
		faults, kinds := p.ledger.Faults()
		if tc.want == "" && len(kinds) > 0 || tc.want != "" && kinds[tc.want] == 0 {
			t.Errorf("%s: got %v, want %q", name, faults, tc.want)
		}
	}
}
