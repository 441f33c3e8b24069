package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

var _ storage.Documents = (*Store)(nil)

// Documents implements storage.Documents with one strongly consistent query.
func (s *Store) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "documents", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	q := call.Query{
		Read:      call.Read{Table: record.Documents},
		Partition: "kind",
		Sort:      "name",
		Of:        call.Text(kind),
		Page:      limit + 1,
	}
	if after != "" {
		q.After = call.Text(after)
	}
	var found []storage.Document
	more := false
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		if more = len(found) == limit; more {
			return false, nil
		}
		r := call.Reader{Item: it}
		found = append(found, storage.Document{
			Kind: kind, Name: r.Text("name"), Version: r.Number("version"),
			Value: []byte(r.Text("document_value")),
		})
		return true, r.Err
	})
	if err != nil {
		return nil, false, call.Public(err)
	}
	return found, more, nil
}

// DocumentsOf implements storage.Documents with strongly consistent batches of reads.
func (s *Store) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "documents_of", len(keys))
	if err != nil {
		return nil, err
	}
	defer leave()
	items := make([]call.Item, len(keys))
	for i, key := range keys {
		items[i] = call.Item{"kind": call.Text(key.Kind), "name": call.Text(key.Name)}
	}
	items, err = c.GetAll(ctx, call.Read{Table: record.Documents}, items)
	if err != nil {
		return nil, call.Public(err)
	}
	values := make(map[storage.DocumentKey]storage.Document, len(items))
	for _, it := range items {
		r := call.Reader{Item: it}
		d := storage.Document{
			Kind: r.Text("kind"), Name: r.Text("name"), Version: r.Number("version"),
			Value: []byte(r.Text("document_value")),
		}
		if r.Err != nil {
			return nil, call.Public(r.Err)
		}
		values[storage.DocumentKey{Kind: d.Kind, Name: d.Name}] = d
	}
	found := make([]storage.Document, len(keys))
	for i, key := range keys {
		found[i] = values[key]
		found[i].Kind, found[i].Name = key.Kind, key.Name
	}
	return found, nil
}

// PutDocument implements storage.Documents. If an answer was lost, the next attempt finds another
// version, and the result is Conflict.
func (s *Store) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	c, ctx, leave, err := s.enter(ctx, "put_document", 0)
	if err != nil {
		return 0, err
	}
	defer leave()
	u := call.Update{
		Table:     record.Documents,
		Key:       call.Item{"kind": call.Text(d.Kind), "name": call.Text(d.Name)},
		Change:    "SET version = :next, document_value = :value",
		Condition: "attribute_not_exists(version)",
		Values: call.Item{
			":next": call.Number(d.Version + 1), ":value": call.Text(string(d.Value)),
		},
	}
	//rule:told_in_order.compare-version-of-document-in-dynamodb
	if d.Version > 0 {
		u.Condition = "version = :version"
		u.Values[":version"] = call.Number(d.Version)
	}
	var done bool
	if d.Value == nil {
		delete(u.Values, ":next")
		delete(u.Values, ":value")
		done, err = c.removeIf(ctx, u)
	} else {
		_, done, _, err = c.Update(ctx, u)
	}
	switch {
	case err != nil:
		return 0, call.Public(err)
	case !done:
		return 0, storage.Outdated(d.Kind, d.Name)
	case d.Value == nil:
		return 0, nil
	}
	return d.Version + 1, nil
}

// removeIf removes the item of an update if the condition of the update holds. A transaction of one
// action is a conditional delete.
func (c caller) removeIf(ctx context.Context, u call.Update) (done bool, err error) {
	remove := &types.Delete{
		TableName: c.Table(u.Table), Key: u.Key, ConditionExpression: aws.String(u.Condition),
	}
	if len(u.Values) > 0 {
		remove.ExpressionAttributeValues = u.Values
	}
	for again := 0; ; again++ {
		refused, _, err := c.Transact(ctx, []types.TransactWriteItem{{Delete: remove}})
		if err != nil || refused == nil || call.Failed(refused[0]) {
			return err == nil && refused == nil, err
		}
		if err := call.Yield(ctx, again); err != nil {
			return false, err
		}
	}
}
