package simulationtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/registry"
)

// fault is something that may go wrong. Each run has some of the faults, because one fault may hide
// the effects of another.
type fault string

const (
	storeLost    fault = "storage fails before its effect"
	storeUnknown fault = "storage fails after its effect"
	outages      fault = "storage is away for a while"
	islands      fault = "registry unreachable"
	lateReply    fault = "a reply is late"
	stalls       fault = "a call is held back"
	carriedLate  fault = "publication delayed"
	carriedTwice fault = "publication doubled"
	carriedNot   fault = "publication failed"
	carriedDoubt fault = "publication in doubt"
	busRejoins   fault = "publications lost and the node joined anew"
	forgets      fault = "registry forgets"
	foreignCrash fault = "another node dies"
	jumps        fault = "leases expire"
	crashes      fault = "a node crashes"
	restarts     fault = "a node stops cleanly"
	badAcks      fault = "bad acknowledgements"
	oldPositions fault = "resume with an old position"
	elsewhere    fault = "resume on another node"
	impatience   fault = "resume while resuming"
	vanishing    fault = "a connection vanishes"
	cuts         fault = "a connection is cut"
	comings      fault = "members come and go"
	restAcks     fault = "acknowledgements outside a session"
	closes       fault = "clean closes"
	// confirms is no fault: clients send over their connections, with own=confirm.
	confirms fault = "confirmations in place of events"
)

func faults() []fault {
	return []fault{
		storeLost, storeUnknown, outages, islands, lateReply, stalls, carriedLate, carriedTwice,
		carriedNot, carriedDoubt, busRejoins, forgets, foreignCrash,
		jumps, crashes, restarts, badAcks, oldPositions, elsewhere, impatience, vanishing, cuts,
		comings, restAcks, closes,
	}
}

// crashPoint is where a node dies: at the after-th call of a kind, before or after its effect.
type crashPoint struct {
	kind   string
	effect bool
	after  int
}

// durable returns the calls at which a node may die.
func durable() []string {
	return []string{
		"Append", "Mark", "Clear", "Advance", "Open", "Close", "Publish", "AddMembers",
		"RemoveMember", "Lookup", "Refresh",
	}
}

func isRegistry(kind string) bool {
	return slices.Contains([]string{"Epoch", "Open", "Close", "Refresh", "Lookup", "Join", "Leave"},
		kind)
}

// letGo decides about a call, and releases it.
func (w *simulation) letGo(c *call) {
	v := verdict{}
	said := ""
	note := func(what string) {
		w.count(what)
		said += " – " + what
	}
	if !w.calm && w.crash.kind == c.kind && w.enabled[crashes] {
		if w.crash.after--; w.crash.after == 0 {
			v.dieBefore, v.dieAfter = !w.crash.effect, w.crash.effect
			w.kill(c.node)
			side := "before"
			if w.crash.effect {
				side = "after"
			}
			w.count(string(crashes))
			note("crash " + side + " " + c.kind)
		}
	}
	switch {
	case v.dieBefore:
	case c.publication != nil:
		v.carry = w.carry(note)
	case isRegistry(c.kind):
		if c.node.noRegistry {
			v.lost = w.roll(2) == 0
			v.unknown = !v.lost
			note(string(islands))
		}
	case c.node.noStorage:
		v.lost = w.roll(3) > 0
		v.unknown = !v.lost
		note(string(outages))
	case w.chance(storeLost, 20):
		v.lost = true
		w.count(string(storeLost))
		note("failed before " + c.kind)
	case w.chance(storeUnknown, 15):
		v.unknown = true
		w.count(string(storeUnknown))
		note("failed after " + c.kind)
	}
	if !v.lost && w.chance(lateReply, 6) {
		v.late = true
		note(string(lateReply))
	}
	w.transcribe("%s%s", c.what, said)
	w.gate.release(c, v)
}

// carry decides how a publication is delivered.
func (w *simulation) carry(note func(string)) carriage {
	switch {
	case w.chance(carriedLate, 3):
		note(string(carriedLate))
		return carryLater
	case w.chance(carriedTwice, 5):
		note(string(carriedTwice))
		return carryTwice
	case w.chance(carriedNot, 4):
		note(string(carriedNot))
		return carryFailed
	case w.chance(carriedDoubt, 8):
		note(string(carriedDoubt))
		return carryDoubt
	default:
		return carryNow
	}
}

// step does one thing.
func (w *simulation) step() {
	w.now++
	w.wait()
	w.age()
	all, fresh := w.gate.waiting()
	for _, c := range fresh {
		if seldom := 8; w.chance(stalls, seldom) || w.small && w.chance(stalls, seldom/2) {
			w.count(string(stalls))
			c.hold = w.now + 5 + w.roll(60)
		}
	}
	ready := slices.DeleteFunc(all, func(c *call) bool { return c.hold > w.now })
	switch r := w.roll(100); {
	case r < 55 && len(ready) > 0:
		w.letGo(pick(w, ready))
	case r < 65 && w.deliverOne(w.roll(64)):
	case r < 88:
		w.client()
	case r < 98:
		w.sleep()
	default:
		w.trouble()
	}
}

// sleep lets some time pass.
func (w *simulation) sleep() {
	odd := time.Duration(w.roll(100_000))
	switch r := w.roll(40); {
	case r < 30:
		w.doze(time.Duration(1+w.roll(80))*time.Millisecond + odd)
	case r < 39:
		w.doze(time.Duration(100+w.roll(1500))*time.Millisecond + odd)
	default:
		w.pass(time.Duration(2+w.roll(20))*time.Second + odd)
	}
	w.transcribe("time passes")
}

// trouble makes something happen to the nodes or the registry.
func (w *simulation) trouble() {
	up := w.up()
	if len(up) == 0 || w.spawned < 4 && w.roll(8) == 0 {
		w.spawn()
		return
	}
	var enabled []fault
	for _, f := range []fault{
		islands, outages, busRejoins, forgets, foreignCrash, jumps, restarts,
	} {
		if w.enabled[f] {
			enabled = append(enabled, f)
		}
	}
	if len(enabled) == 0 {
		return
	}
	n := pick(w, up)
	switch f := pick(w, enabled); f {
	case islands:
		n.noRegistry = !n.noRegistry
		w.transcribe("%s cannot reach the registry: %v", n.id, n.noRegistry)
	case outages:
		n.noStorage = !n.noStorage
		w.transcribe("%s cannot reach the storage: %v", n.id, n.noStorage)
	case busRejoins:
		w.losePublications(n)
	case forgets:
		w.count(string(f))
		w.transcribe("the registry forgets")
		w.reg.Forget()
	case foreignCrash:
		w.count(string(f))
		w.transcribe("another node dies")
		for range 2 {
			_ = w.reg.Join(context.Background(), registry.Node{ID: "ghost", Boot: "x"}, time.Second)
		}
	case jumps:
		if w.roll(3) == 0 {
			w.count(string(f))
			w.transcribe("nothing moves until all leases have expired")
			w.doze(leaseTTL + time.Duration(w.roll(5_000_000_000)))
		}
	case restarts:
		if w.spawned < 6 {
			w.count(string(f))
			w.halt(n)
		}
	}
}

// mildFaults are the faults after which the registry has all its data. Proofs stay valid, and no
// session reconciles.
func mildFaults() []fault {
	return []fault{
		storeLost, storeUnknown, outages, lateReply, stalls, carriedLate, carriedTwice, carriedNot,
		carriedDoubt, restarts, cuts, comings, restAcks, closes,
	}
}

// smallFaults are the faults of a small run, in which few users open and close sessions at few
// nodes. Little else happens there that could repair a loss.
func smallFaults() []fault {
	return []fault{
		lateReply, stalls, carriedLate, carriedNot, restarts, comings, restAcks, storeUnknown,
	}
}

// spawn starts a node with a new name.
func (w *simulation) spawn() {
	id := tidemark.NodeID([]string{"a", "b", "c"}[w.roll(3)])
	for _, n := range w.nodes {
		if n.id == id && !n.dead.Load() && !n.stopped {
			return
		}
	}
	w.spawned++
	w.boot(id)
}

// losePublications drops the publications to a node, and lets the node join again, as the contract
// of the bus demands.
func (w *simulation) losePublications(n *node) {
	w.mu.Lock()
	before := len(w.inFlight)
	w.inFlight = slices.DeleteFunc(w.inFlight, func(p *publication) bool { return p.to == n.name })
	lost := before - len(w.inFlight)
	w.mu.Unlock()
	if lost == 0 {
		return
	}
	w.count(string(busRejoins))
	w.transcribe("%d publications to %s are lost, and it joins anew", lost, n.id)
	if err := w.reg.Join(context.Background(), n.name, w.ttl()); err != nil {
		w.failf("Join: %v", err)
	}
}

// outgoing is a message that a user sends again until it is confirmed or given up.
type outgoing struct {
	chat    tidemark.ChatID
	user    tidemark.UserID
	id      string
	content string
	// kind and target are those of a relation. Otherwise kind is empty.
	kind     tidemark.Kind
	target   tidemark.Sequence
	sequence tidemark.Sequence
	tries    int
	busyAt   *node
}

func (l *outgoing) key() string { return fmt.Sprintf("%s %s %s", l.chat, l.user, l.id) }

// client makes a user do something.
func (w *simulation) client() {
	switch r := w.roll(24); {
	case r < 3 && w.enabled[comings]:
		w.members()
	case r < 6 && w.enabled[restAcks]:
		w.acknowledge()
	case r < 10:
		w.write()
	default:
		w.turn(pick(w, w.devices))
	}
}

// write sends a message, or an earlier one again. The outcome of the earlier one is unknown;
// sometimes it was confirmed.
func (w *simulation) write() {
	up := w.up()
	if len(up) == 0 {
		return
	}
	var l *outgoing
	if len(w.outbox) > 0 && (len(w.outbox) >= w.most || w.roll(3) > 0) {
		l = pick(w, w.outbox)
		if l.busyAt != nil && !l.busyAt.dead.Load() || l.sequence > 0 && w.roll(4) > 0 ||
			l.tries > 6 {
			return
		}
		w.count("sent again")
	} else {
		if len(w.outbox) >= w.most {
			return
		}
		l = &outgoing{
			chat:    pick(w, w.chats),
			user:    pick(w, w.users[:3]),
			id:      fmt.Sprintf("m%d", len(w.outbox)),
			content: fmt.Sprintf("message %d", len(w.outbox)),
		}
		if w.trace == nil && w.roll(3) == 0 {
			w.relate(l)
		}
		w.outbox = append(w.outbox, l)
	}
	l.tries++
	n := pick(w, up)
	l.busyAt = n
	r := tidemark.Draft{ChatID: l.chat, ClientMessageID: l.id, Content: l.content, Kind: l.kind}
	if l.kind.Relates() {
		r.Relation = &tidemark.Relation{Sequence: l.target}
	}
	if w.roll(6) == 0 {
		r.Seen = tidemark.SeenThrough(tidemark.Sequence(w.roll(int(w.head(l.chat)) + 1)))
	}
	w.trace.asks(string(l.user), frame{
		"type": "send", "chat": l.chat, "id": l.id, "content": l.content,
		"seen": traceSeen(r.Seen),
	})
	send := func(ctx context.Context) (server.Sent, error) { return n.server.Send(ctx, l.user, r) }
	if d := w.sender(l.user); d != nil {
		n, send = d.at, d.confirmed(r)
		l.busyAt = n
	}
	w.act(n, fmt.Sprintf("%s at %s", l.key(), n.id), func(ctx context.Context) func() {
		sent, err := send(ctx)
		return func() {
			w.trace.answer(string(l.user), frame{"sequence": sent.Message.Sequence}, err)
			l.busyAt = nil
			w.transcribe("%s: %d %v", l.key(), sent.Message.Sequence, tidemark.CodeOf(err))
			floor := w.truth.floor(l.chat) // A key below it is forgotten.
			switch code := tidemark.CodeOf(err); {
			case err == nil && l.sequence >= floor && l.sequence != sent.Message.Sequence:
				w.failf("send_idempotent: %s was confirmed as %d and as %d",
					l.key(), l.sequence, sent.Message.Sequence)
			case err == nil:
				l.sequence = sent.Message.Sequence
				w.count("confirmed")
			case code == tidemark.Unavailable:
				w.count("unknown outcome")
			case code == tidemark.NotMember && l.sequence < floor:
			case code == tidemark.NotFound && l.target > 0 && l.target < floor &&
				!w.truth.deleted[l.chat]:
				w.count("relation to what has expired")
			case code == tidemark.Conflict && l.kind == tidemark.KindEdit && l.sequence < floor:
				w.count("edit of what was redacted")
			default:
				w.failf("%s: %v", l.key(), err)
			}
		}
	})
}

// relate makes a message edit or redact an earlier one of its sender, if there is one.
func (w *simulation) relate(l *outgoing) {
	var own []tidemark.Sequence
	for key := range w.truth.texts {
		if m := w.truth.at[key]; key.Chat == l.chat && m.SenderID == l.user {
			own = append(own, key.Sequence)
		}
	}
	if len(own) == 0 {
		return
	}
	slices.Sort(own)
	l.target, l.kind = pick(w, own), tidemark.KindEdit
	if w.roll(2) == 0 {
		l.kind, l.content = tidemark.KindRedact, ""
	}
	w.count(string(l.kind))
}

// sender returns the device over whose connection a user sends, or nil.
func (w *simulation) sender(user tidemark.UserID) *device {
	for _, d := range w.devices {
		if w.enabled[confirms] && d.user == user && d.conn != nil && !d.at.dead.Load() &&
			(d.idle || w.roll(3) == 0) {
			return d
		}
	}
	return nil
}

// members makes a user join or leave. Alice owns every chat.
func (w *simulation) members() {
	up := w.up()
	chat, user := pick(w, w.chats), pick(w, w.users[1:])
	if len(up) == 0 || chat == "ab" || w.truth.deleted[chat] {
		return
	}
	n := pick(w, up)
	w.count(string(comings))
	if w.truth.member(user, chat) {
		w.trace.asks("alice", frame{"type": "remove", "chat": chat, "user": user})
		w.act(n, fmt.Sprintf("%s leaves %s at %s", user, chat, n.id),
			func(ctx context.Context) func() {
				err := n.server.RemoveMember(ctx, server.Caller{User: "alice"}, chat, user)
				return func() {
					w.trace.answer("alice", frame{}, err)
					w.expect(err, w.orGone(chat, tidemark.Unavailable, tidemark.NotMember)...)
				}
			})
		return
	}
	w.trace.asks("alice", frame{"type": "add", "chat": chat, "user": user})
	w.act(n, fmt.Sprintf("%s joins %s at %s", user, chat, n.id), func(ctx context.Context) func() {
		_, err := n.server.AddMembers(ctx, server.Caller{User: "alice"}, chat,
			[]tidemark.UserID{user}, "")
		return func() {
			w.trace.answer("alice", frame{}, err)
			w.expect(err, w.orGone(chat, tidemark.Unavailable)...)
		}
	})
}

// orGone returns codes, and for a chat that is deleted also that of a member who is none any more.
func (w *simulation) orGone(chat tidemark.ChatID, codes ...tidemark.Code) []tidemark.Code {
	if w.truth.deleted[chat] {
		codes = append(codes, tidemark.NotMember)
	}
	return codes
}

// expect fails the run unless err is nil or has one of the codes.
func (w *simulation) expect(err error, codes ...tidemark.Code) {
	w.transcribe("→ %v", tidemark.CodeOf(err))
	if err != nil && !slices.Contains(codes, tidemark.CodeOf(err)) {
		w.failf("unexpected: %v", err)
	}
}

// acknowledge raises a user's watermarks outside a session, to any sequence.
func (w *simulation) acknowledge() {
	up := w.up()
	if len(up) == 0 {
		return
	}
	n, user, chat := pick(w, up), pick(w, w.users), pick(w, w.chats)
	head := w.head(chat)
	ack := server.Ack{Chat: chat, Acked: tidemark.Sequence(w.roll(int(head) + 1))}
	if w.roll(3) == 0 {
		ack.Read = tidemark.Sequence(w.roll(int(head) + 1))
	}
	if w.chance(badAcks, 3) {
		ack.Acked = head + 1 + tidemark.Sequence(w.roll(3))
		w.count(string(badAcks))
	}
	w.count(string(restAcks))
	w.trace.asks(string(user), frame{
		"type": "acknowledge", "chat": chat, "acked": ack.Acked, "read": ack.Read,
	})
	w.act(n, fmt.Sprintf("%s acknowledges %s %d/%d at %s", user, chat, ack.Acked, ack.Read, n.id),
		func(ctx context.Context) func() {
			results, err := n.server.Acknowledge(ctx, user, []server.Ack{ack})
			return func() {
				w.expect(err, tidemark.Unavailable)
				if err != nil {
					return
				}
				state := results[0].State
				w.trace.answer(string(user), frame{"acked": state.Acked, "read": state.Read},
					results[0].Err)
				w.expect(results[0].Err, w.orGone(chat, tidemark.NotMember, tidemark.Invalid,
					tidemark.InvalidSequence)...)
				if st := results[0].State; results[0].Err == nil &&
					(st.Acked < ack.Acked || st.Read < ack.Read || st.Acked > w.head(chat)) {
					w.failf("ack_cumulative: %s acknowledged %d/%d of %s and is told %d/%d",
						user, ack.Acked, ack.Read, chat, st.Acked, st.Read)
				}
			}
		})
}
