// Package schema makes the tables of the DynamoDB store, and says which version they have.
//
// The version is an item of the counters' table, which is written when everything else is as it should be. No chat has its key.
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
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/target"
)

// Key is the chat_id of the item with the version in the table Counters.
const (
	Key      = "|schema"
	Counters = "chat_counters"
)

// Tables are those of a target.
type Tables struct {
	api    *dynamodb.Client
	to     *target.Target
	tables []table
	needed uint
}

// New returns the tables of a target, which api reaches. It makes no call.
func New(api *dynamodb.Client, to *target.Target) (*Tables, error) {
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

// Version returns the version of the tables, 0 if there are none, or not all of them are made yet. It needs no right but to look at the tables and read
// the item.
//
// Errors: Conflict (a table is another program's, or one is missing that was there), Unavailable.
func (s *Tables) Version(ctx context.Context) (uint, error) {
	version, err := s.look(ctx)
	return version, s.explain(err)
}

func (s *Tables) look(ctx context.Context) (uint, error) {
	version, err := s.version(ctx)
	if err != nil || version > s.needed { // a newer program may have other tables
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
				"the table %s is missing, and the others have the version %d; restore it "+
					"together with them, or take all of them down (tidemark migrate down) and begin "+
					"anew", *d.TableName, version)
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
	case named(err, validation): // the key of another program's table, most likely
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

// Up makes the tables that are missing, makes all of them what the definition and the URL say, and then writes the version. It may be repeated, by
// several processes at once, and after one that died half-way.
//
// Errors: Conflict (a table that no step makes ours; a newer version; a table that is missing and was there; items without a version), Unavailable (also if a table takes
// longer than ten minutes), Invalid (the URL asks for what this DynamoDB does not have).
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

// unused returns a Conflict if a table has items although there is no version: it is what a migration down that died has left, or what is left of tables of
// which somebody has deleted one, or another program's. DynamoDB counts the items every few hours.
func (s *Tables) unused(ctx context.Context, d table) error {
	is, err := s.describe(ctx, d)
	if err != nil || is == nil || aws.ToInt64(is.ItemCount) == 0 {
		return err
	}
	if version, err := s.version(ctx); err != nil || version > 0 { // somebody else has just made them
		return err
	}
	return tidemark.Errorf(tidemark.Conflict,
		"the table %s has items, and the tables have no version: one of them was deleted, or a "+
			"migration down was not finished, or they are another program's; "+
			"restore all of them from one backup, or take all of them down (tidemark migrate down) and begin anew, or give Tidemark another prefix", *d.TableName)
}

func number(n uint) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(n), 10)}
}

// Newer is a Conflict: the tables are of a newer program.
func Newer(version, needed uint) error {
	return tidemark.Errorf(tidemark.Conflict,
		"the tables have version %d, and this program knows versions up to %d; run a newer program",
		version, needed)
}

// Down deletes the tables, and all that is in them. The version goes first, so that what is left when it dies half-way is of no version.
//
// Errors: Invalid (there are no tables), Conflict (one is protected, or another program's; a newer version), Unavailable.
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
					"tidemark migrate up with deletion_protection=off in the URL first", *d.TableName)
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
		if _, err := ask(ctx, s.api.DeleteItem, &dynamodb.DeleteItemInput{TableName: aws.String(s.to.Table(Counters)), Key: item()}); err != nil && !missing(err) {
			return err
		}
	}
	return s.each(ctx, s.drop)
}
