// Package registry is the contract of who is connected where. It holds hints with a time limit, never facts about
// messages: if it loses everything it knows, nothing is lost but time.
//
// A lease is the claim "this device of this user is at this session until then". A node that opens a session takes a lease; a
// sender looks up the leases of the members and hands the message to their nodes. When the last lease of a user is
// released cleanly, it leaves a proof: his pending rows name every chat that he is behind in. Without that proof the next open compares
// (delivery.md §4).
//
// registry/memory serves one process, registry/redis many; registrytest is the suite that every registry passes.
package registry

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Lease is the claim of one session to receive what is sent to one device. All of it is compared when it
// is refreshed or released, so that a lease of an earlier process, or of an earlier session of the device, is never taken for this one.
type Lease struct {
	User    tidemark.UserID
	Device  tidemark.DeviceID
	Node    tidemark.NodeID
	Boot    string
	Session tidemark.SessionID
}

// Holder is the node that has the session.
func (l Lease) Holder() Node { return Node{ID: l.Node, Boot: l.Boot} }

// Epoch names a stretch of time in which no node died and the registry forgot nothing. Equal values mean the same stretch.
type Epoch struct {
	// Crashes is raised when a node ends without a clean leave, and when one regains a registry that it could not reach.
	Crashes uint64
	// Incarnation names the life of the registry's data: an emptied or failed-over one has another.
	Incarnation string
}

// LeaseRequest asks for a lease.
type LeaseRequest struct {
	Lease Lease
	TTL   time.Duration
	// Continue takes the lease only in place of an unexpired one of the same session and device that
	// another node holds. If there is none nothing changes, and Opened is zero.
	Continue bool
}

// Opened is what an open found in its atomic step.
type Opened struct {
	// Proof is the user's proof of a clean close, which the open consumed; nil if there was none.
	Proof *Epoch
	// Others reports whether the user had another lease, be it an older one of the same device. One of the same session is not another one.
	Others bool
	// Previous is the node whose lease of the same session was replaced, if that had not run out: the
	// session moves, and was never without a lease. It is zero if there was none.
	Previous Node
	// Leases is how many leases the user has now, this one included.
	Leases int
}

// Refreshed is what a refresh found.
type Refreshed struct {
	// Lost are those of the leases that the registry no longer has. The node opens them again.
	Lost []Lease
	// Replaced are those whose device has a lease of another session: a newer one, or, in a registry that has forgotten, one that has ended. The node ends them.
	Replaced []Lease
	// Elsewhere are those whose session has its lease on another node. It is on its way there, and will be asked for; or the registry could not be asked when it
	// came here, or has forgotten that it did (a replica that is stale): then the node opens them again.
	Elsewhere []Lease
	// Epoch is the present one. If it differs from the one before, the node compares heads for all its sessions.
	Epoch Epoch
	// Nodes are those that have a lease, this one included.
	Nodes []Node
}

// Registry is the leases of users. Every method is one atomic step, safe for concurrent use, and returns Unavailable if the registry
// cannot be reached. Open, Close and Refresh return NotFound if the node that calls has no lease (any more): it has to Join again.
type Registry interface {
	// Epoch returns the present epoch. An open reads it before Open.
	Epoch(ctx context.Context) (Epoch, error)
	// Open takes a lease, replacing an older one of the same user and device. It sees whether there
	// was any other, and consumes the proof.
	Open(ctx context.Context, r LeaseRequest) (Opened, error)
	// Close releases the lease if it is still this one. If it was the user's last lease and proof is not nil, the proof is left; one that names another than the
	// present epoch may be thrown away. If the lease is no longer this one nothing happens.
	Close(ctx context.Context, lease Lease, proof *Epoch) error
	// Refresh prolongs the node's own lease by nodeTTL, and those of its sessions that are still these ones by ttl.
	Refresh(ctx context.Context, node Node, nodeTTL time.Duration, leases []Lease,
		ttl time.Duration) (Refreshed, error)
	// Lookup returns the unexpired leases of each user, in the order of the argument. The result must not be changed.
	Lookup(ctx context.Context, users []tidemark.UserID) ([][]Lease, error)
}

// Node names one life of a server process.
type Node struct {
	ID   tidemark.NodeID
	Boot string
}

// Remembered is how long a registry remembers a node whose lease ran out.
const Remembered = 7 * 24 * time.Hour

// Nodes is the membership of the server processes themselves.
type Nodes interface {
	// Join takes the node's lease for ttl. It raises Epoch.Crashes if an earlier life of the node, or this one, had a lease that it did not Leave, also if that had
	// run out, and had raised then: until it joins again the node may have stored what it could tell nobody. That is remembered for Remembered.
	Join(ctx context.Context, node Node, ttl time.Duration) error
	// Leave ends the node's lease without raising the epoch. Leases of sessions that it still has are dropped, and raise it.
	Leave(ctx context.Context, node Node) error
}
