// Package postgres is a registry for several nodes that share a Postgres database, without Redis.
// Its tables are unlogged: they cost no WAL and no wait for the disk. They are empty after a crash
// and on a promoted standby, and that is a new incarnation. In a restored dump they are as they
// were (without pg_dump --no-unlogged-table-data). Its data have a new incarnation, which is not
// the one in the table of the epoch, so the first node removes all leases and nodes.
//
// A user's leases and their proof are one row. Open, Close and the prolonging of leases lock the
// rows of their users, decide in this process (user.go), and write the rows back. So each is one
// atomic step. Changes of nodes lock the row of the epoch (nodes.go). All times are those of the
// database's clock. Calls of one process share statements (package batch).
//
// The nodes of this registry reach each other by their addresses, which are in its table of nodes.
// A node that cannot reach another one complains of it here (Complain).
package postgres

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// Connections is how many connections a Registry uses at most.
	Connections = 4
	// ProofTTL is how long a proof of a clean close is kept. The next open of a user who stays away
	// longer reconciles.
	ProofTTL = 72 * time.Hour
	// maxUsers is about how many users or calls share one statement.
	maxUsers = 512
	// callTime bounds a shared statement or step. A change of nodes may take twice as long.
	callTime = time.Second
	// pauseAfterFailure is how long calls are refused at once after a statement that failed.
	// Without it each caller would wait for another timeout.
	pauseAfterFailure = 200 * time.Millisecond
)

// Config configures a Registry. All fields but CallTime are required.
type Config struct {
	// Pool has connections to the database of the store, and to no other one. The caller closes it.
	Pool *pgxpool.Pool
	// Data is the incarnation of the data in that database. What the nodes of another incarnation
	// have left there does not count.
	Data tidemark.Incarnation
	// Address is where other nodes reach the nodes that join through this Registry.
	Address string
	// Complained is called with each heartbeat of a node. It says whether other nodes complained of
	// it since the one before. It must not block.
	Complained func(node registry.Node, complained bool)
	// CallTime takes the place of a second as the bound of a shared statement or step, and twice of
	// it that of a change of nodes. 0 is a second. Tests set more, for a machine that is busy.
	CallTime time.Duration
}

// Registry implements registry.Registry and registry.Nodes. Call New, then Start, and Stop after
// the last call. It is safe for concurrent use.
type Registry struct {
	cfg     Config
	lookups *batch.Batcher[tidemark.UserID, []registry.Lease]
	steps   *batch.Batcher[step, result]
	epochs  *batch.Batcher[struct{}, registry.Epoch]

	mu sync.Mutex
	// lives has the lives of the nodes that joined through this Registry and did not leave.
	lives map[registry.Node]struct{}
	// complaints has the nodes that the next heartbeat complains of.
	complaints map[registry.Node]struct{}
	// doubt says that a heartbeat took complaints of its node, and its outcome is unknown.
	doubt bool
	// addresses has those of the lives of nodes that are known. They do not change.
	addresses map[registry.Node]string
	// swept is the last user whose row the last heartbeat looked at, to remove it.
	swept string
}

var (
	_ registry.Registry = (*Registry)(nil)
	_ registry.Nodes    = (*Registry)(nil)
)

// New returns a registry.
func New(cfg Config) *Registry {
	cfg.CallTime = cmp.Or(cfg.CallTime, callTime)
	r := &Registry{
		cfg:        cfg,
		lives:      make(map[registry.Node]struct{}),
		complaints: make(map[registry.Node]struct{}),
		addresses:  make(map[registry.Node]string),
	}
	// One worker each: a statement of many users costs little more than one of a few.
	r.lookups = newBatcher(cfg, r.lookup)
	r.steps = newBatcher(cfg, r.change)
	r.epochs = newBatcher(cfg, r.readEpoch)
	return r
}

// newBatcher returns a Batcher of statements. It ends with Abort.
func newBatcher[Q, A any](
	cfg Config, run func(context.Context, []Q) ([]A, error),
) *batch.Batcher[Q, A] {
	batches := batch.Config{Name: "the database", Most: maxUsers, Pause: pauseAfterFailure}
	return batch.New(batches, func(ctx context.Context, collect func() []Q) ([]A, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.CallTime)
		defer cancel()
		return run(ctx, collect())
	})
}

// Start starts the goroutines that run the statements.
func (r *Registry) Start() {
	r.lookups.Start()
	r.steps.Start()
	r.epochs.Start()
}

// Stop stops the goroutines and waits for them. Calls under way get Unavailable.
func (r *Registry) Stop() {
	r.lookups.Abort()
	r.steps.Abort()
	r.epochs.Abort()
}

// errUnreached returns the error of a call that the database did not answer.
func errUnreached(err error) error {
	var said *tidemark.Error
	if err == nil || errors.As(err, &said) {
		return err
	}
	return tidemark.Wrap(tidemark.Unavailable, err,
		"the registry in the database cannot be reached")
}

// now is the time of the database in milliseconds, when it is read.
const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

// transaction runs a transaction of two round trips: it locks and reads rows, and then writes what
// it decided. lock queues the statements that lock and read. scan gets their results in order, and
// queues the statements that write. If scan fails, nothing is changed.
func (r *Registry) transaction(
	ctx context.Context, lock func(*pgx.Batch), scan func(pgx.BatchResults, *pgx.Batch) error,
) error {
	return errUnreached(r.cfg.Pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		var reads, writes pgx.Batch
		reads.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
		// A node that is stopped here must not keep its locks for longer. A pooler has no setting
		// of the connection.
		reads.Queue("SET LOCAL idle_in_transaction_session_timeout = '1s'")
		lock(&reads)
		results := c.SendBatch(ctx, &reads)
		_, err := results.Exec()
		if err == nil {
			_, err = results.Exec()
		}
		if err == nil {
			err = scan(results, &writes)
		}
		if e := results.Close(); err == nil {
			err = e
		}
		if err != nil {
			_, _ = c.Exec(ctx, "ROLLBACK") // else the pool closes the connection
			return err
		}
		writes.Queue("COMMIT")
		return c.SendBatch(ctx, &writes).Close()
	}))
}

// noLease returns the error of a call of a node without a lease.
func noLease(node tidemark.NodeID) error {
	return tidemark.Errorf(tidemark.NotFound, "node %s has no lease in the registry", node)
}
