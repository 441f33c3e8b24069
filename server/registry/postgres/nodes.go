package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// member is the row of a node.
type member struct {
	id, boot, address string
	expires           int64
	// alive is false once the end of its lease was noticed.
	alive      bool
	complaints int64
}

func (m *member) node() registry.Node {
	return registry.Node{ID: tidemark.NodeID(m.id), Boot: m.boot}
}

// nodes is what a change of nodes works on, under the lock of the epoch's row.
type nodes struct {
	now   int64
	epoch registry.Epoch
	// foreign says that the tables are of other data.
	foreign bool
	members map[string]*member
	// raised says that the epoch has risen. changed and removed have the rows to write.
	raised           bool
	changed, removed map[string]struct{}
}

// raise begins a new epoch. All proofs become void.
func (n *nodes) raise() {
	//rule:R_EPOCH.count-crash-in-postgres
	n.epoch.Crashes++
	n.raised = true
}

// expire ends the leases of nodes that are over, and forgets old ones. It precedes every change.
func (n *nodes) expire() {
	for id, m := range n.members {
		switch {
		case !m.alive && n.now > m.expires+registry.Remembered.Milliseconds():
			n.remove(id)
		//rule:R_EPOCH.expire-node-lease-in-postgres
		case m.alive && n.now > m.expires:
			m.alive = false
			n.changed[id] = struct{}{}
			n.raise()
		}
	}
}

func (n *nodes) remove(id string) {
	delete(n.members, id)
	delete(n.changed, id)
	n.removed[id] = struct{}{}
}

// join takes a node's lease. again says that this life of it has joined before.
func (n *nodes) join(node registry.Node, address string, ttl time.Duration, again bool) {
	//rule:R_EPOCH.rejoin-raises-epoch-in-postgres
	if _, there := n.members[string(node.ID)]; there || again {
		n.raise()
	}
	n.members[string(node.ID)] = &member{
		id: string(node.ID), boot: node.Boot, address: address, alive: true,
		expires: n.now + ttl.Milliseconds(),
	}
	n.changed[string(node.ID)] = struct{}{}
}

// joined returns the row of a node with a lease, or nil.
func (n *nodes) joined(node registry.Node) *member {
	if m := n.members[string(node.ID)]; m != nil && m.alive && m.boot == node.Boot {
		return m
	}
	return nil
}

// refresh prolongs a node's lease, and takes the complaints of it. It returns false if the node has
// no lease.
func (n *nodes) refresh(node registry.Node, ttl time.Duration) (complained, joined bool) {
	m := n.joined(node)
	if m == nil {
		return false, false
	}
	complained = m.complaints > 0
	m.complaints, m.expires = 0, n.now+ttl.Milliseconds()
	n.changed[m.id] = struct{}{}
	return complained, true
}

// complain records that a node was not reached. One without a lease has to join again anyway.
func (n *nodes) complain(of registry.Node) {
	if m := n.joined(of); m != nil {
		m.complaints++
		n.changed[m.id] = struct{}{}
	}
}

// leave ends a node's lease.
func (n *nodes) leave(node registry.Node, dropped bool) {
	if m := n.members[string(node.ID)]; m != nil && m.boot == node.Boot {
		n.remove(m.id)
	}
	//rule:R_EPOCH.leave-with-leases-raises-epoch-in-postgres
	if dropped {
		n.raise()
	}
}

// The statements of a change of nodes.
const (
	insertEpoch = `INSERT INTO cluster_epoch (data, incarnation) VALUES ($1, $2)
ON CONFLICT DO NOTHING`
	lockEpoch = `SELECT data, incarnation, crashes FROM cluster_epoch WHERE one FOR UPDATE`
	// readTime is a statement of its own: one that locks reads the clock before it waits.
	readTime = "SELECT " + now
	// readNewest reads the incarnation of the data that the newest node of the store began.
	readNewest = `SELECT id FROM lives ORDER BY number DESC LIMIT 1`
	readNodes  = `SELECT id, boot, address, expires, alive, complaints FROM cluster_nodes`
	writeNode  = `INSERT INTO cluster_nodes (id, boot, address, expires, alive, complaints)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET boot = $2, address = $3,
expires = $4, alive = $5, complaints = $6`
	deleteNode  = `DELETE FROM cluster_nodes WHERE id = $1`
	writeEpoch  = `UPDATE cluster_epoch SET crashes = $1 WHERE one`
	beginAgain  = `UPDATE cluster_epoch SET data = $1, incarnation = $2 WHERE one`
	forgetUsers = `DELETE FROM leases`
	forgetNodes = `DELETE FROM cluster_nodes`
)

// with changes the nodes in one transaction, and returns what they are then.
func (r *Registry) with(ctx context.Context, do func(*nodes)) (*nodes, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.cfg.CallTime)
	defer cancel()
	n := &nodes{
		members: map[string]*member{}, changed: map[string]struct{}{},
		removed: map[string]struct{}{},
	}
	unused := unusedName()
	err := r.transaction(ctx, func(b *pgx.Batch) {
		b.Queue(insertEpoch, string(r.cfg.Data), unused)
		b.Queue(lockEpoch)
		b.Queue(readTime)
		b.Queue(readNewest)
		b.Queue(readNodes)
	}, func(read pgx.BatchResults, b *pgx.Batch) error {
		if err := n.read(read, r.cfg.Data); err != nil {
			return err
		}
		//rule:restore_is_noticed.leases-and-proofs-are-of-one-life-in-postgres
		if n.foreign {
			clear(n.members)
			n.epoch.Incarnation = unused
			b.Queue(forgetUsers)
			b.Queue(forgetNodes)
			b.Queue(beginAgain, string(r.cfg.Data), unused)
		}
		n.expire()
		do(n)
		n.write(b)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.addresses)
	for _, m := range n.members {
		if m.alive {
			r.addresses[m.node()] = m.address
		}
	}
	return n, nil
}

// unusedName returns a name that no incarnation has had.
func unusedName() string {
	var b [8]byte
	//rule:R_EPOCH.random-incarnation-in-postgres
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// read reads the results of insertEpoch, lockEpoch, readTime, readNewest and readNodes.
func (n *nodes) read(read pgx.BatchResults, data tidemark.Incarnation) error {
	if _, err := read.Exec(); err != nil {
		return err
	}
	var of string
	if err := read.QueryRow().Scan(&of, &n.epoch.Incarnation, &n.epoch.Crashes); err != nil {
		return err
	}
	if err := read.QueryRow().Scan(&n.now); err != nil {
		return err
	}
	var newest string
	if err := read.QueryRow().Scan(&newest); err != nil {
		return err
	}
	n.foreign = of != string(data)
	// Two incarnations must not remove each other's leases in turn.
	//rule:restore_is_noticed.newest-incarnation-wipes-in-postgres
	if n.foreign && newest != string(data) {
		return tidemark.Errorf(tidemark.Unavailable,
			"the data in the database have a newer incarnation than this node; restart it")
	}
	rows, err := read.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		m := &member{}
		err := rows.Scan(&m.id, &m.boot, &m.address, &m.expires, &m.alive, &m.complaints)
		if err != nil {
			return err
		}
		n.members[m.id] = m
	}
	return rows.Err()
}

// write queues the statements that write what changed.
func (n *nodes) write(b *pgx.Batch) {
	if n.raised {
		b.Queue(writeEpoch, n.epoch.Crashes)
	}
	for _, id := range slices.Sorted(maps.Keys(n.removed)) {
		if n.members[id] == nil {
			b.Queue(deleteNode, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.changed)) {
		m := n.members[id]
		b.Queue(writeNode, m.id, m.boot, m.address, m.expires, m.alive, m.complaints)
	}
}

// Join implements registry.Nodes.
func (r *Registry) Join(ctx context.Context, node registry.Node, ttl time.Duration) error {
	if err := valid(&registry.Lease{Node: node.ID, Boot: node.Boot}); err != nil {
		return err
	}
	r.mu.Lock()
	// A database that has lost its tables cannot know it.
	_, again := r.lives[node]
	r.mu.Unlock()
	_, err := r.with(ctx, func(n *nodes) { n.join(node, r.cfg.Address, ttl, again) })
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives[node] = struct{}{}
	r.doubt = false // all nodes reconcile anyway
	return nil
}

const readLeft = `SELECT user_id, leases FROM leases WHERE strpos(leases, $1) > 0`

// Leave implements registry.Nodes. It reads the whole table of leases once.
func (r *Registry) Leave(ctx context.Context, node registry.Node) error {
	dropped, err := r.drop(ctx, node)
	if err != nil {
		return err
	}
	complaints := r.takeComplaints()
	_, err = r.with(ctx, func(n *nodes) {
		for _, of := range complaints {
			n.complain(of)
		}
		n.leave(node, dropped > 0)
	})
	if err != nil {
		r.complainAgain(complaints)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lives, node)
	return nil
}

// drop releases the leases that a life of a node still has, and leaves no proofs. It returns how
// many there were.
func (r *Registry) drop(ctx context.Context, node registry.Node) (dropped int, err error) {
	rows, err := r.cfg.Pool.Query(ctx, readLeft, holder(node))
	if err != nil {
		return 0, errUnreached(err)
	}
	var steps []step
	for rows.Next() {
		var id, text string
		if err := rows.Scan(&id, &text); err != nil {
			rows.Close()
			return 0, errUnreached(err)
		}
		for _, h := range readLeases(tidemark.UserID(id), text, 0) {
			if h.Holder() == node {
				steps = append(steps, step{act: drops, lease: h.Lease})
			}
		}
	}
	if err := rows.Err(); err != nil {
		return 0, errUnreached(err)
	}
	for part := range slices.Chunk(steps, maxUsers) {
		results, err := r.change(ctx, part)
		if err != nil {
			return dropped, err
		}
		for i := range results {
			if results[i].closed {
				dropped++
			}
		}
	}
	return dropped, nil
}

// Epoch implements registry.Registry.
func (r *Registry) Epoch(ctx context.Context) (registry.Epoch, error) {
	return r.epochs.DoOne(ctx, struct{}{})
}

// readPresent reads the epoch, and whether it has to rise first.
const readPresent = `SELECT e.data, e.incarnation, e.crashes, EXISTS (SELECT FROM cluster_nodes
	WHERE alive AND expires < ` + now + `) FROM cluster_epoch AS e WHERE one`

// readEpoch reads the epoch for calls that share it. It changes the nodes only if something is due.
func (r *Registry) readEpoch(ctx context.Context, calls []struct{}) ([]registry.Epoch, error) {
	var epoch registry.Epoch
	var data string
	var due bool
	err := r.cfg.Pool.QueryRow(ctx, readPresent).
		Scan(&data, &epoch.Incarnation, &epoch.Crashes, &due)
	if err != nil && err != pgx.ErrNoRows { //nolint:errorlint // pgx returns it as it is
		return nil, errUnreached(err)
	}
	if err != nil || due || data != string(r.cfg.Data) {
		n, err := r.with(ctx, func(*nodes) {})
		if err != nil {
			return nil, err
		}
		epoch = n.epoch
	}
	return slices.Repeat([]registry.Epoch{epoch}, len(calls)), nil
}

// Refresh implements registry.Registry. It takes two round trips for the node, two for each
// maxUsers leases, and one that removes rows which are over. If some leases were not prolonged, it
// still prolongs the node's lease, and returns Unavailable.
func (r *Registry) Refresh(
	ctx context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	began := time.Now()
	n, err := r.heartbeat(ctx, node, nodeTTL)
	if err != nil {
		return registry.Refreshed{}, err
	}
	// The epoch and the nodes are those before the leases: what changes meanwhile is new to the
	// next heartbeat.
	refreshed := registry.Refreshed{Epoch: n.epoch}
	for _, m := range n.members {
		if m.alive {
			refreshed.Nodes = append(refreshed.Nodes, m.node())
		}
	}
	slices.SortFunc(refreshed.Nodes,
		func(a, b registry.Node) int { return cmp.Compare(a.ID, b.ID) })
	for part := range slices.Chunk(leases, maxUsers) {
		// Many leases or a slow database may take longer than the node's lease lasts.
		//rule:R_EPOCH.prolong-node-lease-during-a-long-refresh
		if time.Since(began) >= nodeTTL/3 {
			began = time.Now()
			if _, err := r.heartbeat(ctx, node, nodeTTL); err != nil {
				return registry.Refreshed{}, err
			}
		}
		if err := r.prolong(ctx, part, ttl, &refreshed); err != nil {
			return registry.Refreshed{}, err
		}
	}
	r.sweep(ctx)
	return refreshed, nil
}

// heartbeat prolongs the node's lease, writes the complaints, and takes those of the node.
func (r *Registry) heartbeat(
	ctx context.Context, node registry.Node, ttl time.Duration,
) (*nodes, error) {
	complaints := r.takeComplaints()
	var complained, joined bool
	n, err := r.with(ctx, func(n *nodes) {
		complained, joined = n.refresh(node, ttl)
		for _, of := range complaints {
			//rule:R_EPOCH.complain-of-unreached-nodes
			n.complain(of)
		}
	})
	switch {
	case err != nil:
		r.complainAgain(complaints)
		r.doubtful(r.doubtful(false) || complained)
		return nil, err
	case !joined:
		return nil, noLease(node.ID)
	}
	r.cfg.Complained(node, r.doubtful(false) || complained)
	return n, nil
}
