// Package schema creates the tables of the DynamoDB store, and reads and writes their version.
//
// The version is an item of the counters' table. It is written last, when all tables match their
// definitions. No chat has its key.
package schema

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
)

// Key is the chat_id of the item with the version in the table Counters.
const (
	Key      = "|schema"
	Counters = "chat_counters"
)

// Tables are the tables of an endpoint.
type Tables struct {
	api    *dynamodb.Client
	to     *endpoint.Endpoint
	tables []table
	needed uint
}

// New returns the tables of an endpoint, which api reaches. It makes no call.
func New(api *dynamodb.Client, to *endpoint.Endpoint) (*Tables, error) {
	found, needed, err := definitions()
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i] = found[i].at(to)
	}
	return &Tables{api: api, to: to, tables: found, needed: needed}, nil
}

// Needed returns the version that this program needs.
func (s *Tables) Needed() uint { return s.needed }

// Version returns the version of the tables, 0 if there are none, or if some are still missing. It
// needs only the rights to describe the tables and to read the item.
//
// Errors: Conflict (a table is another program's, or an existing one has been deleted),
// Unavailable.
func (s *Tables) Version(ctx context.Context) (uint, error) {
	version, err := s.look(ctx)
	return version, s.explain(err)
}

func (s *Tables) look(ctx context.Context) (uint, error) {
	version, err := s.version(ctx)
	if err != nil || version > s.needed { // A newer program may have other tables.
		return version, err
	}
	return version, s.each(ctx, func(ctx context.Context, d table) error {
		is, err := s.describe(ctx, d)
		switch {
		case err != nil:
			return err
		case is != nil:
			return d.compare(is)
		case version > 0:
			return tidemark.Errorf(tidemark.Conflict,
				"the table %s is missing, and the others have the version %d; restore it together "+
					"with them, or take all of them down (tidemark migrate down) and begin anew",
				*d.TableName, version)
		}
		return nil
	})
}

// version reads the item.
func (s *Tables) version(ctx context.Context) (uint, error) {
	out, err := ask(ctx, s.api.GetItem, &dynamodb.GetItemInput{
		TableName:      aws.String(s.to.Table(Counters)),
		Key:            item(),
		ConsistentRead: aws.Bool(true),
	})
	switch {
	case missing(err):
		return 0, nil
	case named(err, validation): // The table is probably another program's, with another key.
		return 0, cmp.Or(s.each(ctx, s.ours), err)
	case err != nil:
		return 0, err
	case out.Item == nil:
		return 0, nil
	}
	said, _ := out.Item["version"].(*types.AttributeValueMemberN)
	if said != nil {
		if version, err := strconv.ParseUint(said.Value, 10, 32); err == nil && version > 0 {
			return uint(version), nil
		}
	}
	return 0, tidemark.Errorf(tidemark.Conflict,
		"the item %s of the table %s has no version; give Tidemark another prefix, or restore a "+
			"backup", Key, s.to.Table(Counters))
}

// ours returns a Conflict if a table is another program's.
func (s *Tables) ours(ctx context.Context, d table) error {
	is, err := s.describe(ctx, d)
	if err != nil || is == nil {
		return err
	}
	return d.compare(is)
}

func item() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"chat_id": &types.AttributeValueMemberS{Value: Key}}
}

// Up creates the tables that are missing, makes all of them match the definition and the URL, and
// then writes the version. It may be repeated, by several processes at once, and after one that
// died half-way.
//
// Errors:
//   - Invalid: the URL asks for something this DynamoDB does not have.
//   - Conflict: no step can make a table match; the version is newer; an existing table has been
//     deleted; there are items but no version.
//   - Unavailable: also if a table takes longer than ten minutes.
func (s *Tables) Up(ctx context.Context) error { return s.explain(s.up(ctx)) }

func (s *Tables) up(ctx context.Context) error {
	version, err := s.look(ctx)
	switch {
	case err != nil:
		return err
	case version > s.needed:
		return Newer(version, s.needed)
	}
	if version == 0 {
		if err := s.each(ctx, s.unused); err != nil {
			return err
		}
	}
	if err := s.each(ctx, s.settle); err != nil || version == s.needed {
		return err
	}
	_, err = ask(ctx, s.api.PutItem, &dynamodb.PutItemInput{
		TableName: aws.String(s.to.Table(Counters)),
		Item: map[string]types.AttributeValue{
			"chat_id": &types.AttributeValueMemberS{Value: Key}, "version": number(s.needed),
		},
		ConditionExpression:       aws.String("attribute_not_exists(version) OR version <= :ours"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":ours": number(s.needed)},
	})
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		return tidemark.Wrap(tidemark.Conflict, err,
			"another program has just made the tables newer; run a newer program")
	}
	return err
}

// unused returns a Conflict if a table has items although there is no version. The cause is a
// migration down that died, a table that was deleted, or another program. DynamoDB updates the
// number of items every few hours.
func (s *Tables) unused(ctx context.Context, d table) error {
	is, err := s.describe(ctx, d)
	if err != nil || is == nil || aws.ToInt64(is.ItemCount) == 0 {
		return err
	}
	// A version means that another process has just created the tables.
	if version, err := s.version(ctx); err != nil || version > 0 {
		return err
	}
	return tidemark.Errorf(tidemark.Conflict,
		"the table %s has items, and the tables have no version: one of them was deleted, or a "+
			"migration down was not finished, or they are another program's; "+
			"restore all of them from one backup, or take all of them down "+
			"(tidemark migrate down) and begin anew, or give Tidemark another prefix",
		*d.TableName)
}

func number(n uint) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(n), 10)}
}

// Newer returns a Conflict: the tables are of a newer program.
func Newer(version, needed uint) error {
	return tidemark.Errorf(tidemark.Conflict,
		"the tables have version %d, and this program knows versions up to %d; run a newer program",
		version, needed)
}

// Down deletes the tables and everything in them. It deletes the version first. So tables that are
// left after a crash have no version.
//
// Errors: Invalid (there are no tables), Conflict (one is protected, or another program's; a newer
// version), Unavailable.
func (s *Tables) Down(ctx context.Context) error { return s.explain(s.down(ctx)) }

func (s *Tables) down(ctx context.Context) error {
	version, err := s.version(ctx)
	switch {
	case err != nil:
		return err
	case version > s.needed:
		return Newer(version, s.needed)
	}
	var found atomic.Int32
	err = s.each(ctx, func(ctx context.Context, d table) error {
		is, err := s.describe(ctx, d)
		switch {
		case err != nil || is == nil:
			return err
		case aws.ToBool(is.DeletionProtectionEnabled):
			return tidemark.Errorf(tidemark.Conflict,
				"the table %s is protected against deletion; if all of them are to go, run "+
					"tidemark migrate up with deletion_protection=off in the URL first",
				*d.TableName)
		}
		found.Add(1)
		return d.compare(is)
	})
	switch {
	case err != nil:
		return err
	case found.Load() == 0:
		return tidemark.Errorf(tidemark.Invalid, "there is no schema to take down")
	}
	if version > 0 {
		_, err := ask(ctx, s.api.DeleteItem, &dynamodb.DeleteItemInput{
			TableName: aws.String(s.to.Table(Counters)),
			Key:       item(),
		})
		if err != nil && !missing(err) {
			return err
		}
	}
	return s.each(ctx, s.drop)
}
