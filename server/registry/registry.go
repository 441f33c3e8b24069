// Package registry is the contract for leases: which session is connected at which node. Leases
// expire. They are hints and not facts about messages; a registry that loses all its data costs
// only time.
//
// A node that opens a session takes a lease for it. A sender looks up the leases of the members,
// and publishes the message to their nodes. When a user's last lease is released cleanly, it leaves
// a proof that the user's pending rows name every chat with unacknowledged messages. Without the
// proof, the next open reconciles (delivery.md §4).
//
// registry/memory serves one process. registry/redis and registry/postgres serve several nodes.
// registrytest is the suite that every registry passes.
package registry

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Lease says that a session receives what is sent to a device. All fields are compared when it is
// refreshed or released. A lease of an earlier process, or of an earlier session of the device, is
// therefore a different one.
type Lease struct {
	User    tidemark.UserID
	Device  tidemark.DeviceID
	Node    tidemark.NodeID
	Boot    string
	Session tidemark.SessionID
}

// Holder returns the node that has the session.
func (l Lease) Holder() Node { return Node{ID: l.Node, Boot: l.Boot} }

// Epoch names a period in which no node died and the registry lost no data. Two equal values name
// the same period.
type Epoch struct {
	// Crashes rises when a node ends without Leave, and when a node that could not reach the
	// registry joins again.
	Crashes uint64
	// Incarnation names one life of the registry's data. It changes when the data is lost or a
	// failover happens.
	Incarnation string
}

// LeaseRequest describes the lease that Open takes.
type LeaseRequest struct {
	Lease Lease
	TTL   time.Duration
	// Continue replaces only an unexpired lease of the same session and device that another node
	// holds. If there is none, Open changes nothing and returns a zero Opened.
	Continue bool
}

// Opened is the result of Open.
type Opened struct {
	// Proof is the user's proof of a clean close, which Open consumed, or nil.
	Proof *Epoch
	// Others reports whether the user had a lease of another session, possibly of the same device.
	Others bool
	// Previous is the node whose unexpired lease of the same session was replaced, or zero. If it
	// is set, the session has held a lease without a gap.
	Previous Node
	// Leases is the number of the user's leases, including this one.
	Leases int
}

// Refreshed is the result of Refresh.
type Refreshed struct {
	// Lost has the leases that the registry no longer has. The node opens them again.
	Lost []Lease
	// Replaced has the leases whose device has a lease of another session. That session is newer,
	// or, after the registry lost data, may have ended. The node ends the sessions of these leases.
	Replaced []Lease
	// Elsewhere has the leases whose session has a lease on another node. Usually the session is
	// moving there, and the other node sends a Request. Otherwise the session came from that node,
	// but the registry did not answer then or has lost the change. The node then opens the lease
	// again.
	Elsewhere []Lease
	// Epoch is the present epoch. If it has changed, all sessions of the node reconcile.
	Epoch Epoch
	// Nodes has the nodes with a lease, including this one.
	Nodes []Node
}

// Registry holds the leases of users. Every method is one atomic step and safe for concurrent use.
//
// Errors: Unavailable if the registry does not answer. Open, Close and Refresh return NotFound if
// the calling node has no lease; it has to Join again.
type Registry interface {
	// Epoch returns the present epoch. Callers read it before Open.
	Epoch(ctx context.Context) (Epoch, error)
	// Open takes a lease, and replaces an older one of the same user and device. It reports other
	// leases and consumes the proof.
	Open(ctx context.Context, r LeaseRequest) (Opened, error)
	// Close releases the lease, if it is unchanged. If it was the user's last one and proof is not
	// nil, Close leaves the proof. A proof of another epoch may be dropped.
	Close(ctx context.Context, lease Lease, proof *Epoch) error
	// Refresh prolongs the node's lease by nodeTTL, and by ttl those of leases that are unchanged.
	Refresh(ctx context.Context, node Node, nodeTTL time.Duration, leases []Lease,
		ttl time.Duration) (Refreshed, error)
	// Lookup returns the unexpired leases of each user, in the order of users. The caller must not
	// change them.
	Lookup(ctx context.Context, users []tidemark.UserID) ([][]Lease, error)
}

// Node names one life of a server process.
type Node struct {
	ID   tidemark.NodeID
	Boot string
}

// Remembered is how long a registry remembers a node whose lease expired.
const Remembered = 7 * 24 * time.Hour

// Nodes holds the leases of the server processes.
type Nodes interface {
	// Join takes the node's lease for ttl. It raises Epoch.Crashes if the node had a lease before
	// without calling Leave, in this or an earlier life. It does so also if that lease has expired,
	// which raised Crashes already: after the expiry the node may have stored messages that it
	// could not publish. A registry remembers this for Remembered.
	Join(ctx context.Context, node Node, ttl time.Duration) error
	// Leave ends the node's lease without raising the epoch. If leases of its sessions are left,
	// Leave drops them and raises the epoch.
	Leave(ctx context.Context, node Node) error
}
