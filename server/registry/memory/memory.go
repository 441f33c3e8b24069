// Package memory is a registry for one process. Several nodes may share one Registry; so the tests
// of the core run two nodes side by side. It does no I/O. Its data ends with the process, so the
// first open of each user after a start reconciles.
package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// MaxProofs is how many proofs are kept. Beyond it an arbitrary one is dropped, and that user's
// next open reconciles.
const MaxProofs = 200_000

// Registry implements registry.Registry and registry.Nodes. Use New.
type Registry struct {
	mu          sync.RWMutex
	incarnation string
	crashes     uint64
	users       map[tidemark.UserID]*user
	proofs      map[tidemark.UserID]registry.Epoch
	nodes       map[tidemark.NodeID]nodeLease
	// first is the node that joined first. others says that another one, or another life of it, has
	// joined since.
	first  registry.Node
	others bool
}

// nodeLease is the lease of a node. An expired one is kept for registry.Remembered, so that the
// node's next Join raises the epoch.
type nodeLease struct {
	boot    string
	expires time.Time
	over    bool
}

// user has the leases of one user. The two slices have equal length. leases is replaced and never
// changed, because Lookup returns it.
type user struct {
	leases  []registry.Lease
	expires []time.Time
}

var (
	_ registry.Registry = (*Registry)(nil)
	_ registry.Nodes    = (*Registry)(nil)
)

// New returns an empty registry with a new incarnation.
func New() *Registry {
	return &Registry{
		incarnation: newIncarnation(),
		users:       make(map[tidemark.UserID]*user),
		proofs:      make(map[tidemark.UserID]registry.Epoch),
		nodes:       make(map[tidemark.NodeID]nodeLease),
	}
}

func newIncarnation() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Join implements registry.Nodes.
func (r *Registry) Join(_ context.Context, node registry.Node, ttl time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.expireLocked(now)
	//rule:R_EPOCH.rejoin-raises-epoch
	if _, there := r.nodes[node.ID]; there {
		r.raiseLocked()
	}
	if r.first == (registry.Node{}) {
		r.first = node
	}
	r.others = r.others || node != r.first
	r.nodes[node.ID] = nodeLease{boot: node.Boot, expires: now.Add(ttl)}
	return nil
}

// OnlyNode reports whether the node is the only one that ever joined, in this life of it.
func (r *Registry) OnlyNode(node registry.Node) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	//rule:delivered_is_eventually_consistent.latest-on-a-node-alone
	return node == r.first && !r.others
}

// Leave implements registry.Nodes.
func (r *Registry) Leave(_ context.Context, node registry.Node) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if held, there := r.nodes[node.ID]; !there || held.boot != node.Boot {
		return nil
	}
	delete(r.nodes, node.ID)
	//rule:R_EPOCH.leave-with-leases-raises-epoch
	if r.dropLocked(node.ID) > 0 {
		r.raiseLocked()
	}
	return nil
}

// Epoch implements registry.Registry.
func (r *Registry) Epoch(context.Context) (registry.Epoch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked(time.Now())
	return r.epochLocked(), nil
}

// Open implements registry.Registry.
func (r *Registry) Open(_ context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.expireLocked(now)
	lease := q.Lease
	if err := r.joinedLocked(lease.Node, lease.Boot); err != nil {
		return registry.Opened{}, err
	}
	u := r.users[lease.User]
	if u == nil {
		u = &user{}
	}
	u.expireLocked(now)
	var opened registry.Opened
	for _, held := range u.leases {
		//rule:R_LAST.same-device-same-session
		same := held.Session == lease.Session && held.Device == lease.Device
		//rule:R_LAST.see-other-leases
		opened.Others = opened.Others || !same
		if same && held != lease {
			opened.Previous = held.Holder()
		}
	}
	//rule:R_LEASEFIRST.continue-a-lease-only
	if q.Continue && opened.Previous == (registry.Node{}) {
		return registry.Opened{}, nil
	}
	r.users[lease.User] = u
	u.replaceLocked(lease, now.Add(q.TTL))
	opened.Leases = len(u.leases)
	if proof, there := r.proofs[lease.User]; there {
		opened.Proof = &proof
		//rule:R_PROOF.consume-proof
		delete(r.proofs, lease.User)
	}
	return opened, nil
}

// Close implements registry.Registry.
func (r *Registry) Close(_ context.Context, lease registry.Lease, proof *registry.Epoch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.expireLocked(now)
	if err := r.joinedLocked(lease.Node, lease.Boot); err != nil {
		return err
	}
	u := r.users[lease.User]
	//rule:R_LAST.close-held-lease-only
	if u == nil || !u.removeLocked(lease) {
		return nil
	}
	u.expireLocked(now)
	//rule:R_LAST.no-proof-beside-another-lease
	if len(u.leases) > 0 {
		return nil
	}
	delete(r.users, lease.User)
	if proof != nil {
		r.proveLocked(lease.User, *proof)
	}
	return nil
}

// Refresh implements registry.Registry.
func (r *Registry) Refresh(
	_ context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.expireLocked(now)
	if err := r.joinedLocked(node.ID, node.Boot); err != nil {
		return registry.Refreshed{}, err
	}
	r.nodes[node.ID] = nodeLease{boot: node.Boot, expires: now.Add(nodeTTL)}
	var refreshed registry.Refreshed
	for _, lease := range leases {
		u := r.users[lease.User]
		if u != nil {
			u.expireLocked(now)
		}
		switch {
		case u != nil && u.prolongLocked(lease, now.Add(ttl)):
		case u != nil && u.movedLocked(lease):
			refreshed.Elsewhere = append(refreshed.Elsewhere, lease)
		//rule:R_ADDR.moved-device-is-not-lost
		case u != nil && u.deviceLocked(lease.Device):
			refreshed.Replaced = append(refreshed.Replaced, lease)
		default:
			//rule:R_ADDR.report-lost-lease
			refreshed.Lost = append(refreshed.Lost, lease)
		}
	}
	refreshed.Epoch = r.epochLocked()
	for _, id := range slices.Sorted(maps.Keys(r.nodes)) {
		if held := r.nodes[id]; !held.over {
			refreshed.Nodes = append(refreshed.Nodes, registry.Node{ID: id, Boot: held.boot})
		}
	}
	return refreshed, nil
}

// Lookup implements registry.Registry.
func (r *Registry) Lookup(_ context.Context, users []tidemark.UserID) ([][]registry.Lease, error) {
	now := time.Now()
	found := make([][]registry.Lease, len(users))
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i, id := range users {
		if u := r.users[id]; u != nil {
			//rule:R_NOBODY.no-expired-leases
			found[i] = u.unexpired(now)
		}
	}
	return found, nil
}

// Forget empties the registry, like a Redis that restarts without its data. It is for tests.
func (r *Registry) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	//rule:R_EPOCH.new-name-after-restart
	r.incarnation = newIncarnation()
	clear(r.users)
	clear(r.proofs)
}

func (r *Registry) epochLocked() registry.Epoch {
	return registry.Epoch{Crashes: r.crashes, Incarnation: r.incarnation}
}

func (r *Registry) joinedLocked(node tidemark.NodeID, boot string) error {
	//rule:R_EPOCH.serve-joined-nodes-only
	if held, there := r.nodes[node]; !there || held.over || held.boot != boot {
		return tidemark.Errorf(tidemark.NotFound, "node %s has no lease in the registry", node)
	}
	return nil
}

// raiseLocked begins a new epoch. All proofs become void.
func (r *Registry) raiseLocked() {
	//rule:R_EPOCH.count-crash
	r.crashes++
	clear(r.proofs)
}

func (r *Registry) expireLocked(now time.Time) {
	for id, held := range r.nodes {
		switch {
		case held.over && now.After(held.expires.Add(registry.Remembered)):
			delete(r.nodes, id)
		//rule:R_EPOCH.expire-node-lease
		case !held.over && now.After(held.expires):
			held.over = true
			r.nodes[id] = held
			r.raiseLocked()
		}
	}
}

// dropLocked drops all leases of a node's sessions, and returns how many.
func (r *Registry) dropLocked(id tidemark.NodeID) int {
	dropped := 0
	for name, u := range r.users {
		for _, lease := range u.leases {
			if lease.Node == id && u.removeLocked(lease) {
				dropped++
			}
		}
		if len(u.leases) == 0 {
			delete(r.users, name)
		}
	}
	return dropped
}

func (r *Registry) proveLocked(id tidemark.UserID, proof registry.Epoch) {
	//rule:bounded_use.limit-proofs
	if len(r.proofs) >= MaxProofs {
		for other := range r.proofs {
			delete(r.proofs, other)
			break
		}
	}
	r.proofs[id] = proof
}

func (u *user) unexpired(now time.Time) []registry.Lease {
	for i := range u.expires {
		if now.After(u.expires[i]) {
			var left []registry.Lease
			for j := range u.expires {
				if !now.After(u.expires[j]) {
					left = append(left, u.leases[j])
				}
			}
			return left
		}
	}
	return u.leases
}

func (u *user) expireLocked(now time.Time) {
	for i := len(u.leases) - 1; i >= 0; i-- {
		if now.After(u.expires[i]) {
			u.removeLocked(u.leases[i])
		}
	}
}

// replaceLocked adds a lease and drops any other of the same device.
func (u *user) replaceLocked(lease registry.Lease, expires time.Time) {
	leases := make([]registry.Lease, 0, len(u.leases)+1)
	times := make([]time.Time, 0, len(u.leases)+1)
	for i, held := range u.leases {
		//rule:R_ADDR.replace-older-lease
		if held.Device != lease.Device {
			leases, times = append(leases, held), append(times, u.expires[i])
		}
	}
	u.leases, u.expires = append(leases, lease), append(times, expires)
}

func (u *user) removeLocked(lease registry.Lease) bool {
	for i, held := range u.leases {
		if held == lease {
			leases := append([]registry.Lease(nil), u.leases[:i]...)
			u.leases = append(leases, u.leases[i+1:]...)
			u.expires = append(u.expires[:i], u.expires[i+1:]...)
			return true
		}
	}
	return false
}

// movedLocked reports whether the lease's session has a lease on another node.
func (u *user) movedLocked(lease registry.Lease) bool {
	return slices.ContainsFunc(u.leases, func(held registry.Lease) bool {
		return held.Device == lease.Device && held.Session == lease.Session && held != lease
	})
}

// deviceLocked reports whether a device has a lease.
func (u *user) deviceLocked(device tidemark.DeviceID) bool {
	return slices.ContainsFunc(u.leases,
		func(held registry.Lease) bool { return held.Device == device })
}

func (u *user) prolongLocked(lease registry.Lease, expires time.Time) bool {
	for i, held := range u.leases {
		if held == lease {
			u.expires[i] = expires
			return true
		}
	}
	return false
}
