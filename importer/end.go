package importer

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// end ends the import of the chat. Each step can be made twice.
func (m *move) end(ctx context.Context) error {
	if p := m.roll.people[nobody]; p != nil && p.stranger && p.member {
		m.roll.change(nobody, &Member{Left: true})
	}
	m.roll.dismiss("")
	if err := m.apply(ctx); err != nil {
		return err
	}
	if err := m.flush(ctx); err != nil {
		return err
	}
	if m.compared.last.sequence != 0 {
		m.compared.waiting = append(m.compared.waiting, m.compared.last)
	}
	if err := m.compareAll(ctx); err != nil {
		return err
	}
	if err := m.checkReads(); err != nil {
		return err
	}
	if m.done {
		m.i.count(func(r *Report) { r.Unchanged++ })
		return nil
	}
	//rule:import_once.source-has-all-that-is-stored
	if m.at < m.head {
		return m.wrong(m.at, tidemark.Errorf(tidemark.Conflict,
			"the source ends here, and an earlier run has stored messages up to %d", m.head))
	}
	for _, step := range []func(context.Context) error{m.roles, m.marks, m.settle, m.finish} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	m.i.count(func(r *Report) { r.Chats++ })
	return nil
}

// checkReads checks that the messages exist up to which users have read.
func (m *move) checkReads() error {
	for id, people := range m.wanted {
		return m.wrong(m.at, tidemark.BadParam(tidemark.Invalid, "message_id",
			"is %q: %s has read up to it, but no later message has this id", id, people[0].user))
	}
	for _, p := range m.roll.people {
		if p.read > m.at {
			return m.wrong(m.at, tidemark.BadParam(tidemark.InvalidSequence, "position",
				"is %d: %s has read up to it, but the chat ends before", p.read, p.user))
		}
	}
	return nil
}

// roles gives the members their roles. Until now all were ordinary members, so that nobody succeeds
// an owner, and readers could send.
func (m *move) roles(ctx context.Context) error {
	if m.direct {
		return nil
	}
	for _, p := range m.roll.sorted() {
		if !p.member || p.role == "" || p.role == tidemark.Ordinary {
			continue
		}
		if err := m.role(ctx, p, p.role); err != nil {
			return err
		}
	}
	return nil
}

func (m *move) role(ctx context.Context, p *person, role tidemark.Role) error {
	ctx, cancel := call(ctx)
	defer cancel()
	_, err := m.i.store.UpdateMember(ctx, m.id, p.user, storage.MemberChange{Role: role})
	return err
}

// raisedAtOnce is of how many users one call raises the watermarks.
const raisedAtOnce = 1_000

// marks raises the watermarks. Everything counts as acknowledged: the other system has delivered
// it. Former members are among them, in case they return.
func (m *move) marks(ctx context.Context) error {
	if m.at == 0 {
		return nil
	}
	var all []storage.Advance
	reads := int64(0)
	for _, p := range m.roll.sorted() {
		if p.joins == 0 {
			continue
		}
		if p.marked {
			reads++
		}
		all = append(all, storage.Advance{
			User: p.user, Chat: m.id, Now: m.i.cfg.Clock(),
			//rule:import_once.nothing-is-pending-after-it
			Raise: tidemark.Raise{Acked: m.at, Read: p.seen()},
		})
	}
	for some := range slices.Chunk(all, raisedAtOnce) {
		if err := m.raise(ctx, some); err != nil {
			return err
		}
	}
	m.i.count(func(r *Report) { r.Reads += reads })
	return nil
}

func (m *move) raise(ctx context.Context, some []storage.Advance) error {
	ctx, cancel := call(ctx)
	defer cancel()
	raised, err := m.i.store.Advance(ctx, some)
	if err != nil {
		return err
	}
	for i := range raised {
		if err := raised[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// settlements is how often settle tries, if somebody else settles at the same time.
const settlements = 5

// settle closes the chat's backlog, so that no outlet gets what was imported.
func (m *move) settle(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	//rule:import_once.no-news-for-outlets
	for range settlements {
		open, _, err := m.i.store.Backlogs(ctx, storage.BacklogQuery{
			Chats: []tidemark.ChatID{m.id},
		})
		if err != nil || len(open) == 0 {
			return err
		}
		if _, err = m.i.store.Settle(ctx, []storage.Settlement{{
			Backlog: open[0], To: open[0].End, NowSplit: open[0].Split,
		}}); err != nil {
			return err
		}
	}
	return tidemark.Errorf(tidemark.Unavailable,
		"the outlets of the chat %s are busy with it; run the import again", m.id)
}

// finish lets users send.
func (m *move) finish(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	return m.i.store.FinishImport(ctx, m.id, m.i.cfg.Clock())
}
