// Package dynamodb is the storage backend for AWS: DynamoDB, or a server that speaks its protocol. Any number of processes may use the same tables at
// once; none of them has a part that the others depend on. README.md has the tables, what each call costs, and the limits.
//
// Every write is conditional, so that it can be made again when nobody knows whether it was performed: a counter moves from the head that was read, a
// watermark and a pending row move one way only, and an idempotency key says which message was stored under it. What one item decides is one
// UpdateItem; what several items decide together is one TransactWriteItems of at most 100. A change of more members than fit into one is prepared item by item, and takes effect with
// the one write to the chat's counter (changes.go).
package dynamodb

import (
	"context"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/appends"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/schema"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/target"
	"github.com/tidemark-im/tidemark/storage/internal/door"
	"github.com/tidemark-im/tidemark/storage/internal/health"
)

// Config says where the tables are, and who is told of what happens.
type Config struct {
	// URL is dynamodb://REGION/PREFIX?PARAMETERS (see package target).
	URL string
	// Committed, if not nil, is told of each write of messages or watermarks: how many, and how long DynamoDB took. It is called concurrently.
	Committed func(sends, acks int, took time.Duration)
	// Consumed, if not nil, is told of the request units of each answer of DynamoDB, and the method that they were spent for. It is called concurrently.
	// A write that DynamoDB refused is told as what it would have cost: a condition that fails is paid for.
	Consumed func(operation string, reads, writes float64)
	// Transport, if not nil, carries the calls in place of one of the package's own.
	Transport http.RoundTripper
}

// Store is a storage.Store in DynamoDB. It is safe for concurrent use.
type Store struct {
	tables  *call.Tables
	known   *record.Known
	appends *appends.Appender
	release func()
	// patience is callTime, but for tests that are not about time.
	patience  time.Duration
	health    health.Writes
	door      door.Door
	committed func(sends, acks int, took time.Duration)
}

var _ storage.Store = (*Store)(nil)

// Open looks whether the tables are there and are those that this program needs: see Migrate.
//
// Errors: Invalid (the URL), Unavailable (DynamoDB cannot be reached, or refuses the credentials), Conflict (the tables are missing, or of another version).
func Open(ctx context.Context, config Config) (_ *Store, err error) {
	to, err := target.Parse(config.URL)
	if err != nil {
		return nil, err
	}
	api, err := to.Client(ctx, config.Transport)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			target.Release(api)
		}
	}()
	if config.Committed == nil {
		config.Committed = func(int, int, time.Duration) {}
	}
	if config.Consumed == nil {
		config.Consumed = func(string, float64, float64) {}
	}
	s := &Store{
		known:     record.NewKnown(),
		committed: config.Committed,
		patience:  callTime,
		release:   func() { target.Release(api) },
	}
	s.tables = call.NewTables(api, to.Prefix, config.Consumed,
		func(operation string, err error) { _ = s.health.Written(operation, err) })
	s.appends = appends.New(s.caller("append").Access, s.committed)
	tables, err := schema.New(api, to) // over the store's own transport
	if err != nil {
		return nil, err
	}
	status, err := statusOf(ctx, tables)
	if err != nil {
		return nil, err
	}
	if err := status.fit(); err != nil {
		return nil, err
	}
	return s, nil
}

const (
	// callTime bounds a method of the contract. Of a batch it bounds the time in which no item is
	// done: a batch takes as long as DynamoDB needs for it, or as its caller allows.
	//rule:bounded_use.limit-time-of-call
	callTime = 5 * time.Second
	// memberTime is added for each user who becomes a member, since several items are written for
	// each of a crowd. A change of members takes effect at once or not at all, so that a part of
	// it is no progress.
	memberTime = 15 * time.Millisecond
)

// Check implements storage.Store: it reads the item that names the version of the tables, and knows how the last writes went.
func (s *Store) Check(ctx context.Context) error {
	c, ctx, leave, err := s.enter(ctx, "check", 0)
	if err != nil {
		return err
	}
	defer leave()
	if _, err = c.Get(ctx, record.Counters, record.ChatKey(schemaKey)); err != nil {
		return call.Public(err)
	}
	return s.health.Trouble(time.Now())
}

// Close implements storage.Store.
func (s *Store) Close() error {
	s.door.Close()
	//rule:confirmed_is_durable.finish-appends-before-close
	s.appends.Wait()
	s.release()
	return nil
}

// A caller is the work of one method of the contract.
type caller struct {
	record.Access
	*Store
}

func (s *Store) caller(operation string) caller {
	return caller{
		record.Access{Caller: call.Caller{Tables: s.tables, Operation: operation}, Known: s.known},
		s,
	}
}

// Append implements storage.Messages.
func (s *Store) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	_, ctx, leave, err := s.enterBatch(ctx, "append", len(drafts))
	if err != nil {
		return nil, err
	}
	defer leave()
	appended, err := s.appends.Append(ctx, drafts)
	return appended, call.Public(err)
}

// enter begins a method: leave ends it, and ctx is over when it has taken as long as it may: callTime, and more.
func (s *Store) enter(
	ctx context.Context, operation string, more time.Duration,
) (caller, context.Context, func(), error) {
	if err := s.door.Enter(ctx); err != nil {
		return caller{}, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience+more)
	return s.caller(operation), ctx, func() {
		cancel()
		s.door.Leave()
	}, nil
}

// enterBatch is enter for a method that takes n items: ctx is over when none of them was done for
// callTime.
func (s *Store) enterBatch(
	ctx context.Context, operation string, n int,
) (caller, context.Context, func(), error) {
	if err := fits(n); err != nil {
		return caller{}, nil, nil, err
	}
	if err := s.door.Enter(ctx); err != nil {
		return caller{}, nil, nil, err
	}
	ctx, cancel := call.WithPatience(ctx, s.patience)
	return s.caller(operation), ctx, func() {
		cancel()
		s.door.Leave()
	}, nil
}

// fits says why a slice is too long for one call.
func fits(n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid, "%d items in one call, at most %d are allowed",
			n, storage.MaxBatch)
	}
	return nil
}
