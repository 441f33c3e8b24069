package dynamodb

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// The entries of a day are in auditShards partitions of the documents' table, so that no partition
// takes all writes. One more partition names the days. An entry is written after its day, so a
// reader that reads the days first finds all entries.

// auditShards is the number of partitions of a day. It is at most 16, and never changes.
const auditShards = 4

// auditDays is the partition with the days that have entries. It has a bar, as no kind of documents
// has (entryTables).
const auditDays = auditKind + "days"

// auditKind begins the kinds of the items of the audit log.
const auditKind = "audit|"

// auditDay returns the day of an id, which has a time.
func auditDay(id storage.AuditID) string {
	at, err := id.At()
	if err != nil {
		return ""
	}
	return at.Format(time.DateOnly)
}

// auditPart returns a partition of a day.
func auditPart(day string, shard int) string {
	return auditKind + day + "|" + strconv.Itoa(shard)
}

// auditKey returns the key of an entry.
func auditKey(id storage.AuditID) call.Item {
	digit, _ := strconv.ParseUint(string(id[max(len(id)-1, 0):]), 16, 8)
	return call.Item{
		"kind": call.Text(auditPart(auditDay(id), int(digit%auditShards))), "name": call.Text(id),
	}
}

// dayKey returns the key of the item that names a day.
func dayKey(day string) call.Item {
	return call.Item{"kind": call.Text(auditDays), "name": call.Text(day)}
}

// auditedDays are days that this process has named. It is safe for concurrent use.
type auditedDays struct {
	mu sync.Mutex
	// last is the latest one.
	last string
}

// has reports whether a day is the last one.
func (d *auditedDays) has(day string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last == day
}

// set makes a day the last one.
func (d *auditedDays) set(day string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = day
}

// RecordAudit implements storage.Audit. The first entry of a day, and of a process, takes one more
// write.
func (s *Store) RecordAudit(ctx context.Context, e storage.AuditEntry) error {
	c, ctx, leave, err := s.enter(ctx, "record_audit", 0)
	if err != nil {
		return err
	}
	defer leave()
	if day := auditDay(e.ID); !s.audited.has(day) {
		if err := c.PutAll(ctx, record.Documents, []call.Item{dayKey(day)}); err != nil {
			return call.Public(err)
		}
		s.audited.set(day)
	}
	it := auditKey(e.ID)
	for name, value := range map[string]string{
		"key_name": e.Key, "actor_id": string(e.Actor), "request_id": e.Request,
		"operation": e.Operation, "user_id": string(e.Target.User),
		"chat_id": string(e.Target.Chat), "outlet_id": e.Target.Outlet,
		"audit_state": string(e.State), "audit_code": string(e.Code),
	} {
		if value != "" {
			it[name] = call.Text(value)
		}
	}
	if e.Target.Sequence > 0 {
		it["sequence"] = call.Number(e.Target.Sequence)
	}
	if !e.EndedAt.IsZero() {
		it["ended_at"] = call.Number(e.EndedAt.UnixMilli())
	}
	//rule:audited_before_done.recorded-once-in-dynamodb
	_, _, err = c.Put(ctx, record.Documents, it, "attribute_not_exists(audit_state)", nil)
	return call.Public(err)
}

// FinishAudit implements storage.Audit.
func (s *Store) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) error {
	if !storage.AuditBegun.May(end.State) {
		return nil
	}
	if end.State == storage.AuditWithdrawn {
		return s.withdrawAudit(ctx, id)
	}
	u := call.Update{
		Table: record.Documents, Key: auditKey(id),
		Change: "SET audit_state = :state, ended_at = :at",
		//rule:audited_before_done.finished-once-in-dynamodb
		Condition: "audit_state = :begun",
		Values: call.Item{
			":state": call.Text(end.State), ":at": call.Number(end.At.UnixMilli()),
			":begun": call.Text(storage.AuditBegun),
		},
	}
	if end.Code != "" {
		u.Change += ", audit_code = :code"
		u.Values[":code"] = call.Text(end.Code)
	}
	return s.updateAudit(ctx, "finish_audit", u)
}

// withdrawAudit removes an entry that is begun.
func (s *Store) withdrawAudit(ctx context.Context, id storage.AuditID) error {
	c, ctx, leave, err := s.enter(ctx, "finish_audit", 0)
	if err != nil {
		return err
	}
	defer leave()
	_, err = c.removeIf(ctx, call.Update{
		Table: record.Documents, Key: auditKey(id),
		//rule:audited_before_done.only-begun-ones-are-withdrawn-in-dynamodb
		Condition: "audit_state = :begun",
		Values:    call.Item{":begun": call.Text(storage.AuditBegun)},
	})
	return call.Public(err)
}

// updateAudit makes changes of one entry, each in a step of its own, unless its condition does not
// hold.
func (s *Store) updateAudit(ctx context.Context, operation string, changes ...call.Update) error {
	c, ctx, leave, err := s.enter(ctx, operation, 0)
	if err != nil {
		return err
	}
	defer leave()
	for _, u := range changes {
		if _, _, _, err := c.Update(ctx, u); err != nil {
			return call.Public(err)
		}
	}
	return nil
}

// RenameAudit implements storage.Audit.
func (s *Store) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) error {
	rename := func(name string) call.Update {
		return call.Update{
			Table: record.Documents, Key: auditKey(id),
			Change: "SET " + name + " = :alias", Condition: name + " = :user",
			Values: call.Item{":alias": call.Text(alias), ":user": call.Text(user)},
		}
	}
	// The first step needs the names, so a call that ends in between can be repeated.
	request := call.Update{
		Table: record.Documents, Key: auditKey(id), Change: "REMOVE request_id",
		Condition: "contains(request_id, :user) AND (actor_id = :user OR user_id = :user)",
		Values:    call.Item{":user": call.Text(user)},
	}
	return s.updateAudit(ctx, "rename_audit", request, rename("actor_id"), rename("user_id"))
}

// auditEntry returns the entry of an item.
func auditEntry(it call.Item) (storage.AuditEntry, error) {
	r := call.Reader{Item: it}
	return storage.AuditEntry{
		ID: storage.AuditID(r.Text("name")), Key: r.Text("key_name"),
		Actor: tidemark.UserID(r.Text("actor_id")), Request: r.Text("request_id"),
		Operation: r.Text("operation"), Target: storage.AuditTarget{
			User: tidemark.UserID(r.Text("user_id")), Chat: tidemark.ChatID(r.Text("chat_id")),
			Sequence: r.Sequence("sequence"), Outlet: r.Text("outlet_id"),
		},
		State:   storage.AuditState(r.Text("audit_state")),
		Code:    tidemark.Code(r.Text("audit_code")),
		EndedAt: r.Time("ended_at"),
	}, r.Err
}

// Bounds of days and of ids: no day and no id is below the first one, or above the second one.
const auditFirst, auditLast = "0", "g"

// days goes through the days that have entries, from the one of an id to the one of another.
func (c caller) days(
	ctx context.Context, from, below storage.AuditID, backwards bool,
	do func(day string) (more bool, err error),
) error {
	bound := [2]string{auditFirst, auditLast}
	if from != "" {
		bound[0] = auditDay(from)
	}
	if below != "" {
		bound[1] = auditDay(below)
	}
	return c.Each(ctx, call.Query{
		Read: call.Read{Table: record.Documents}, Partition: "kind", Sort: "name",
		Of: call.Text(auditDays), Backwards: backwards,
		Range: [2]types.AttributeValue{call.Text(bound[0]), call.Text(bound[1])},
	}, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		day := r.Text("name")
		if r.Err != nil {
			return false, r.Err
		}
		return do(day)
	})
}

// entries returns the last n entries of a day in a range, the greatest id first.
func (c caller) entries(
	ctx context.Context, day string, p storage.AuditPage, n int,
) ([]storage.AuditEntry, error) {
	bound := [2]string{auditFirst, auditLast}
	if p.From != "" {
		bound[0] = string(p.From)
	}
	if p.Below != "" {
		bound[1] = string(p.Below)
	}
	var parts [auditShards][]storage.AuditEntry
	err := call.Together(ctx, auditShards, func(ctx context.Context, i int) error {
		return c.Each(ctx, call.Query{
			Read: call.Read{Table: record.Documents}, Partition: "kind", Sort: "name",
			Of: call.Text(auditPart(day, i)), Backwards: true, Page: n + 1,
			Range: [2]types.AttributeValue{call.Text(bound[0]), call.Text(bound[1])},
		}, func(it call.Item) (bool, error) {
			e, err := auditEntry(it)
			if err == nil && e.ID != p.Below {
				parts[i] = append(parts[i], e)
			}
			return len(parts[i]) < n, err
		})
	})
	found := slices.Concat(parts[:]...)
	slices.SortFunc(found, func(a, b storage.AuditEntry) int { return cmp.Compare(b.ID, a.ID) })
	return found[:min(n, len(found))], err
}

// ListAudit implements storage.Audit. It queries each day that it reads, and no other one.
func (s *Store) ListAudit(
	ctx context.Context, p storage.AuditPage,
) ([]storage.AuditEntry, bool, error) {
	if err := p.Check(); err != nil {
		return nil, false, err
	}
	if p.Below != "" && p.From >= p.Below {
		return nil, false, nil // DynamoDB refuses a range that ends before it begins.
	}
	c, ctx, leave, err := s.enter(ctx, "list_audit", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	var found []storage.AuditEntry
	err = c.days(ctx, p.From, p.Below, true, func(day string) (bool, error) {
		some, err := c.entries(ctx, day, p, p.Limit+1-len(found))
		found = append(found, some...)
		return len(found) <= p.Limit, err
	})
	if err != nil {
		return nil, false, call.Public(err)
	}
	if len(found) > p.Limit {
		return found[:p.Limit], true, nil
	}
	return found, false, nil
}

// TrimAudit implements storage.Audit. A day is removed when its entries are, and it is over.
func (s *Store) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (removed int, done bool, err error) {
	if err := storage.CheckAudit(limit); err != nil {
		return 0, false, err
	}
	c, ctx, leave, err := s.enter(ctx, "trim_audit", 0)
	if err != nil {
		return 0, false, err
	}
	defer leave()
	done = true
	err = c.days(ctx, "", below, false, func(day string) (bool, error) {
		for done {
			some, err := c.entries(ctx, day, storage.AuditPage{Below: below}, limit-removed)
			if err != nil {
				return false, err
			}
			keys := make([]call.Item, len(some))
			for i, e := range some {
				keys[i] = auditKey(e.ID)
			}
			if err := c.RemoveAll(ctx, record.Documents, keys); err != nil {
				return false, err
			}
			removed += len(some)
			if done = removed < limit; len(some) == 0 {
				break
			}
		}
		if !done || day >= auditDay(below) {
			return done, nil
		}
		return true, c.RemoveAll(ctx, record.Documents, []call.Item{dayKey(day)})
	})
	if err != nil {
		return 0, false, call.Public(err)
	}
	return removed, done, nil
}
