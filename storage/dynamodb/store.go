// Package dynamodb stores everything in DynamoDB, or in a server with the same protocol. Any number
// of processes may use the same tables at once, and no process depends on another. README.md has
// the tables, the cost of each call, and the limits.
//
// Every write is conditional, so it can be repeated when its outcome is unknown. A counter moves
// from the head that was read. A watermark and a pending row move one way only. An idempotency key
// says which message was stored under it.
//
// A decision about one item is one UpdateItem. A decision about several items is one
// TransactWriteItems of at most 100 items. A change of more members than that is prepared item by
// item. It takes effect with one write to the chat's counter (changes.go).
package dynamodb

import (
	"context"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/appends"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/schema"
	"github.com/tidemark-im/tidemark/storage/internal/health"
	"github.com/tidemark-im/tidemark/storage/internal/inflight"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// Config names the tables and the callbacks of the store.
type Config struct {
	// URL is dynamodb://REGION/PREFIX?PARAMETERS (see package endpoint).
	URL string
	// Committed, if not nil, is called after each write of messages or watermarks. It gets their
	// numbers and the duration of the write. Calls are concurrent.
	Committed func(sends, acks int, took time.Duration)
	// Consumed, if not nil, is called with the request units of each answer and the method that
	// used them. Calls are concurrent. For a refused write it gets the cost of the write, since
	// DynamoDB charges for failed conditions.
	Consumed func(operation string, reads, writes float64)
	// Transport, if not nil, carries the calls instead of the package's own transport.
	Transport http.RoundTripper
	// Patience bounds a call, each of its attempts, and the wait of a message for its turn. They
	// are 5 s or less by default. Tests that are not about time set more, for slow machines.
	Patience time.Duration
}

// Store implements storage.Store on DynamoDB. It is safe for concurrent use.
type Store struct {
	tables  *call.Tables
	known   *record.Known
	appends *appends.Appender
	release func()
	// lives are the lives of the data, of which the last is the present one. They do not change.
	lives []lives.Life
	// patience is callTime by default.
	patience  time.Duration
	audited   auditedDays
	health    health.Writes
	calls     inflight.Gate
	committed func(sends, acks int, took time.Duration)
}

var _ storage.Store = (*Store)(nil)

// Open checks that the tables exist and have a schema that this program can use (see Migrate).
//
// Errors:
//   - Invalid: the URL.
//   - Unavailable: DynamoDB cannot be reached, or refuses the credentials.
//   - Conflict: the tables are missing, or this program cannot use their schema.
func Open(ctx context.Context, config Config) (_ *Store, err error) {
	to, err := endpoint.Parse(config.URL)
	if err != nil {
		return nil, err
	}
	api, err := to.Client(ctx, config.Transport)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			endpoint.Release(api)
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
		release:   func() { endpoint.Release(api) },
	}
	s.tables = call.NewTables(api, to.Prefix, config.Consumed,
		func(operation string, err error) { _ = s.health.Written(operation, err) })
	s.appends = appends.New(s.caller("append").Access, s.committed)
	if more := config.Patience; more > 0 {
		s.patience, s.appends.Patience, s.tables.Attempt = more, more, more
	}
	// This uses the store's own transport.
	tables, err := schema.New(api, to, migrations.DynamoDB, nil)
	if err != nil {
		return nil, err
	}
	found, err := tables.Schema(ctx)
	if err != nil {
		return nil, err
	}
	if err := found.Fit(); err != nil {
		return nil, err
	}
	if s.lives, err = tables.Lives(ctx); err != nil {
		return nil, err
	}
	s.appends.Life = s.life().Number
	return s, nil
}

const (
	// callTime is the time limit of a method. For a batch, it limits the time in which no item is
	// completed. A batch takes as long as DynamoDB needs, or as its caller allows.
	//rule:bounded_use.limit-time-of-call
	callTime = 5 * time.Second
	// memberTime is added to the limit for each new member, since a large change writes several
	// items for each. A change of members takes effect as a whole or not at all. So completed items
	// are no progress.
	memberTime = 15 * time.Millisecond
)

// Check implements storage.Store. It reads the item with the version of the tables, and considers
// the results of the latest writes.
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
	s.calls.Close()
	//rule:confirmed_is_durable.finish-appends-before-close
	s.appends.Wait()
	s.release()
	return nil
}

// A caller executes one method of storage.Store.
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

// Sent implements storage.Messages.
func (s *Store) Sent(
	ctx context.Context, key storage.SendKey,
) (appended storage.Appended, found bool, err error) {
	c, ctx, leave, err := s.enter(ctx, "sent", 0)
	if err != nil {
		return storage.Appended{}, false, err
	}
	defer leave()
	appended, found, err = appends.Sent(ctx, c.Access, key)
	return appended, found, call.Public(err)
}

// enter begins a method. leave ends it. ctx ends after callTime plus more.
func (s *Store) enter(
	ctx context.Context, operation string, more time.Duration,
) (caller, context.Context, func(), error) {
	if err := s.calls.Enter(ctx); err != nil {
		return caller{}, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience+more)
	return s.caller(operation), ctx, func() {
		cancel()
		s.calls.Leave()
	}, nil
}

// enterBatch begins a method with n items. ctx ends when no item was completed for callTime.
func (s *Store) enterBatch(
	ctx context.Context, operation string, n int,
) (caller, context.Context, func(), error) {
	if err := fits(n); err != nil {
		return caller{}, nil, nil, err
	}
	if err := s.calls.Enter(ctx); err != nil {
		return caller{}, nil, nil, err
	}
	ctx, cancel := call.WithPatience(ctx, s.patience)
	return s.caller(operation), ctx, func() {
		cancel()
		s.calls.Leave()
	}, nil
}

// fits returns an Invalid error if a slice argument is too long.
func fits(n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid, "%d items in one call, at most %d are allowed",
			n, storage.MaxBatch)
	}
	return nil
}
