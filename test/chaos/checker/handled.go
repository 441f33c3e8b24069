package checker

import "time"

// The entries of a device that uses the Go client. It is told the messages of others only, and what
// it has passed: its own messages and gaps are in neither. So the log keeps no positions, and
// Ledger.Verify finds what was passed and not handled.

// Attached notes that the device has a stream.
func (d *Log) Attached(over string, resumed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = over
	d.counts.Opens++
	if resumed {
		d.counts.Resumed++
	}
	d.connectedLocked()
}

// Handled takes a message of another user. The client may hand it over twice only if the handler
// has failed, or the device did not save it.
func (d *Log) Handled(chat string, sequence int64, sender, id string) {
	since, known := d.ledger.since(chat, sender, id, d.User)
	if !known || sender == d.User {
		d.ledger.Complain(Foreign, "%s handled %d of %s: %s of %s, which nobody else has sent",
			d.Name, sequence, chat, id, sender)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.chatLocked(chat)
	if sequence <= c.stored() {
		d.ledger.Complain(Twice, "%s handled %d of %s, and has %d", d.Name, sequence, chat,
			c.stored())
		return
	}
	c.pass(sequence - 1)
	c.digests = append(c.digests, digestOf(sender, id))
	d.counts.Messages++
	if now := time.Now(); !since.IsZero() {
		d.waits.add(d.ledger.served(since, now, d.spans), Wait{
			Device: d.Name, Over: d.over, Chat: chat, Sequence: sequence, Since: since, Now: now,
		})
	}
	d.reachLocked(chat, c.stored())
}

// Saved notes the cursor of a chat, which the client is about to acknowledge.
func (d *Log) Saved(chat string, sequence int64) {
	d.ledger.Acknowledge(chat, d.User, Boundary{Acked: sequence})
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.chatLocked(chat)
	if sequence < c.stored() {
		d.ledger.Complain(Lost, "%s has %d of %s, and the client takes that back to %d",
			d.Name, c.stored(), chat, sequence)
	}
	c.pass(sequence)
	d.reachLocked(chat, c.stored())
}

// Stored returns the cursors of all chats of the user, 0 for those of which nothing came.
func (d *Log) Stored() map[string]int64 {
	chats := d.ledger.Chats(d.User)
	d.mu.Lock()
	defer d.mu.Unlock()
	stored := make(map[string]int64, len(chats))
	for _, chat := range chats {
		stored[chat] = d.chatLocked(chat).stored()
	}
	return stored
}

// pass notes that there is nothing for the device up to a sequence.
func (c *chat) pass(to int64) {
	for c.stored() < to {
		c.digests = append(c.digests, 0)
	}
}
