// Package schema runs the migrations of the DynamoDB store: files that add and remove tables, and
// name steps that change items.
//
// An item of the counters' table has the version, and the oldest program that may work with the
// tables. The version is written last, when all tables match their definitions. No chat has the
// key of this item.
package schema

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
)

// Key is the chat_id of the item with the version in the table Counters.
const (
	Key      = "|schema"
	Counters = "chat_counters"
)

// Tables are the tables of an endpoint.
type Tables struct {
	api *dynamodb.Client
	to  *endpoint.Endpoint
	// versions are the versions that this program knows, by number. Their tables have the names and
	// the protection of the endpoint.
	versions []version
}

// New returns the tables of an endpoint, which api reaches. The migrations are in the folder
// "dynamodb" of files, and steps are the data steps that they name. It makes no call.
func New(
	api *dynamodb.Client, to *endpoint.Endpoint, files fs.FS, steps map[string]Step,
) (*Tables, error) {
	versions, err := readChain(files, steps)
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		for _, tables := range [][]table{v.tables, v.removed} {
			for i := range tables {
				tables[i] = tables[i].at(to)
			}
		}
	}
	return &Tables{api: api, to: to, versions: versions}, nil
}

// needed returns the version that this program needs.
func (s *Tables) needed() uint { return uint(len(s.versions) - 1) }

// wanted returns the tables that this program needs.
func (s *Tables) wanted() []table { return s.versions[s.needed()].tables }

// newest returns the newest definition of a table. A new table has its indexes at once. An index
// that is added to a table takes AWS minutes, even if the table is empty.
func (s *Tables) newest(d table) table {
	if i := indexOf(s.wanted(), *d.TableName); i >= 0 {
		return s.wanted()[i]
	}
	return d
}

// Schema returns the schema of the tables. Its version is 0 if there are none, or if some are still
// missing. It needs only the rights to describe the tables and to read the item.
//
// Errors: Conflict (a table is another program's, or an existing one or its index has been
// deleted), Unavailable.
func (s *Tables) Schema(ctx context.Context) (storage.Schema, error) {
	found, err := s.look(ctx)
	if err == nil && found.Version == s.needed() {
		err = each(ctx, s.wanted(), s.indexed)
	}
	return found, s.explain(err)
}

// indexed returns a Conflict unless a table has its indexes. A restore may leave them out.
func (s *Tables) indexed(ctx context.Context, d table) error {
	if len(d.GlobalSecondaryIndexes) == 0 {
		return nil
	}
	is, err := s.describe(ctx, d)
	if err != nil || is == nil {
		return err
	}
	for _, wanted := range d.GlobalSecondaryIndexes {
		if found := indexIn(is, *wanted.IndexName); found == nil {
			return tidemark.Errorf(tidemark.Conflict,
				"the table %s has no index %s; run tidemark migrate up", *d.TableName,
				*wanted.IndexName)
		}
	}
	return nil
}

func (s *Tables) look(ctx context.Context) (storage.Schema, error) {
	found, err := s.read(ctx)
	if err != nil || found.Version > s.needed() { // A newer program may have other tables.
		return found, err
	}
	tables := s.versions[found.Version].tables
	if found.Version == 0 {
		tables = every(s.versions)
	}
	return found, each(ctx, tables, func(ctx context.Context, d table) error {
		is, err := s.describe(ctx, d)
		switch {
		case err != nil:
			return err
		case is != nil:
			return d.compare(is)
		// If a migration that removes tables has begun, some are gone already.
		case found.Version > 0 && !s.contracting(found):
			return tidemark.Errorf(tidemark.Conflict,
				"the table %s is missing, and the others have the version %d; restore it together "+
					"with them, or take all of them down (tidemark migrate down) and begin anew",
				*d.TableName, found.Version)
		}
		return nil
	})
}

// contracting reports whether a migration has begun that takes something away.
func (s *Tables) contracting(found storage.Schema) bool {
	return found.Version <= s.needed() &&
		found.Compatible > s.versions[found.Version].compatible
}

// read reads the item.
func (s *Tables) read(ctx context.Context) (found storage.Schema, err error) {
	found.Needed = s.needed()
	out, err := ask(ctx, s.api.GetItem, &dynamodb.GetItemInput{
		TableName:      aws.String(s.to.Table(Counters)),
		Key:            item(),
		ConsistentRead: aws.Bool(true),
	})
	switch {
	case missing(err):
		return found, nil
	case named(err, validation): // The table is probably another program's, with another key.
		return found, cmp.Or(each(ctx, every(s.versions), s.ours), err)
	case err != nil:
		return found, err
	case out.Item == nil:
		return found, nil
	}
	version, ok := numberAt(out.Item, "version")
	if ok {
		found.Version = version
		if _, there := out.Item["compatible"]; there {
			found.Compatible, ok = numberAt(out.Item, "compatible")
		}
	}
	if !ok {
		return found, tidemark.Errorf(tidemark.Conflict,
			"the item %s of the table %s has no version; give Tidemark another prefix, or "+
				"restore a backup", Key, s.to.Table(Counters))
	}
	return found, found.Whole()
}

// numberAt returns a number above 0 of an item.
func numberAt(item map[string]types.AttributeValue, attribute string) (uint, bool) {
	said, ok := item[attribute].(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(said.Value, 10, 32)
	return uint(n), err == nil && n > 0
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

// Up runs the migrations that the tables lack, one after the other. It creates the tables that are
// missing, and makes all of them match their definitions and the URL. It runs the data steps, and
// writes the version last. It may be repeated, by several processes at once, and after one that
// died half-way. It does nothing if a newer program made the schema, and this program can use it.
//
// Errors:
//   - Invalid: the URL asks for something this DynamoDB does not have.
//   - Conflict: no step can make a table match; the schema is of a newer program; an existing table
//     has been deleted; there are items but no version.
//   - Unavailable: also if a table takes longer than ten minutes.
func (s *Tables) Up(ctx context.Context) error { return s.explain(s.up(ctx)) }

func (s *Tables) up(ctx context.Context) error {
	for {
		found, err := s.look(ctx)
		switch {
		case err != nil:
			return err
		case s.overtaken(found, s.needed()) && found.Compatible <= s.needed():
			return nil // A newer program's migration has begun, which may remove tables.
		case found.Version == s.needed() && found.Compatible <= s.needed():
			err := each(ctx, s.wanted(), s.settlesFor(s.needed()))
			if !errors.Is(err, errOvertaken) {
				return err
			}
			continue
		case !found.Upgradable():
			return found.Fit()
		}
		if found.Version == 0 {
			if err := each(ctx, s.versions[1].tables, s.unused); err != nil {
				return err
			}
		}
		written, err := s.raise(ctx, found)
		if err != nil || written && found.Version+1 == s.needed() {
			return err
		}
	}
}

// errOvertaken says that a later migration has begun meanwhile, which may remove tables.
var errOvertaken = errors.New("a later migration has begun")

// overtaken reports whether a later migration than that to a version has begun.
func (s *Tables) overtaken(found storage.Schema, version uint) bool {
	return found.Version > version ||
		found.Version == version && found.Compatible > s.versions[version].compatible
}

// settlesFor is settle for the tables of a version. It creates no table after a later migration has
// begun: two processes would create and remove it again and again. It returns errOvertaken then.
func (s *Tables) settlesFor(version uint) func(context.Context, table) error {
	return func(ctx context.Context, d table) error {
		return s.settles(ctx, d, func() error {
			found, err := s.read(ctx)
			//rule:schema_fits.create-nothing-that-is-removed
			if err == nil && s.overtaken(found, version) {
				err = errOvertaken
			}
			return err
		})
	}
}

// raise runs one migration. It returns false if another process has changed the version meanwhile.
func (s *Tables) raise(ctx context.Context, from storage.Schema) (written bool, err error) {
	to := from.Version + 1
	next := s.versions[to]
	// If the migration breaks older programs, they are refused before it begins.
	//rule:schema_fits.refuse-before-contract
	if from.Version > 0 && next.compatible > from.Compatible {
		written, err = s.write(ctx, from.Version, from.Version, next.compatible)
		if err != nil || !written {
			return written, err
		}
	}
	//rule:schema_fits.stamp-is-written-last
	if err := s.prepare(ctx, to); err != nil {
		if errors.Is(err, errOvertaken) {
			err = nil
		}
		return false, err
	}
	return s.write(ctx, from.Version, to, next.compatible)
}

// prepare makes the tables and items match a version. It returns errOvertaken if a later migration
// has begun.
func (s *Tables) prepare(ctx context.Context, to uint) error {
	next := s.versions[to]
	if err := each(ctx, next.tables, s.settlesFor(to)); err != nil {
		return err
	}
	for _, step := range next.steps {
		if err := step.Up(ctx, s.api, s.to.Table); err != nil {
			return err
		}
	}
	return each(ctx, next.removed, s.drop)
}

// write replaces the version and the oldest compatible program. It returns false if the stored
// version is no longer before.
func (s *Tables) write(ctx context.Context, before, version, compatible uint) (bool, error) {
	put := &dynamodb.PutItemInput{
		TableName: aws.String(s.to.Table(Counters)),
		Item: map[string]types.AttributeValue{
			"chat_id": &types.AttributeValueMemberS{Value: Key},
			"version": number(version), "compatible": number(compatible),
		},
		ConditionExpression: aws.String("attribute_not_exists(version)"),
	}
	if before > 0 {
		//rule:schema_fits.write-over-the-version-that-was-read
		put.ConditionExpression = aws.String("version = :before")
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":before": number(before)}
	}
	_, err := ask(ctx, s.api.PutItem, put)
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		return false, nil
	}
	return err == nil, err
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
	if found, err := s.read(ctx); err != nil || found.Version > 0 {
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

// Down reverts the latest migration. Reverting the first one deletes all tables and everything in
// them. It may be repeated after one that died half-way.
//
// Errors: Invalid (there are no tables), Conflict (one is protected, or another program's; the
// schema is of a newer program), Unavailable.
func (s *Tables) Down(ctx context.Context) error { return s.explain(s.down(ctx)) }

func (s *Tables) down(ctx context.Context) error {
	found, err := s.read(ctx)
	switch {
	case err != nil:
		return err
	case found.Compatible > s.needed():
		return found.Fit()
	case found.Version > s.needed():
		return found.Reversible()
	}
	last := found.Version
	if last < s.needed() && s.contracting(found) {
		last++
	}
	if last > 1 {
		return s.lower(ctx, found.Version, last)
	}
	tables := every(s.versions)
	switch n, err := s.deletable(ctx, tables); {
	case err != nil:
		return err
	case n == 0:
		return tidemark.Errorf(tidemark.Invalid, "there is no schema to take down")
	}
	// The version is deleted first. So if a crash leaves tables, they have no version.
	if found.Version > 0 {
		_, err := ask(ctx, s.api.DeleteItem, &dynamodb.DeleteItemInput{
			TableName: aws.String(s.to.Table(Counters)),
			Key:       item(),
		})
		if err != nil && !missing(err) {
			return err
		}
	}
	return each(ctx, tables, s.drop)
}

// lower reverts the migration that made the version last, or died on the way to it. written is the
// version in the item.
func (s *Tables) lower(ctx context.Context, written, last uint) error {
	before := s.versions[last-1]
	// Migrations that died may have left tables of later versions.
	gone := slices.DeleteFunc(every(s.versions), func(d table) bool {
		return indexOf(before.tables, *d.TableName) >= 0
	})
	if _, err := s.deletable(ctx, gone); err != nil {
		return err
	}
	if err := each(ctx, s.versions[last].removed, s.settle); err != nil {
		return err
	}
	for _, step := range slices.Backward(s.versions[last].steps) {
		if err := step.Down(ctx, s.api, s.to.Table); err != nil {
			return err
		}
	}
	if err := s.dropIndexes(ctx, before.tables, s.versions[last].tables); err != nil {
		return err
	}
	if err := each(ctx, gone, s.drop); err != nil {
		return err
	}
	ok, err := s.write(ctx, written, last-1, before.compatible)
	if err == nil && !ok {
		err = tidemark.Errorf(tidemark.Conflict,
			"another migration has just changed the version; see tidemark migrate status")
	}
	return err
}

// dropIndexes deletes the indexes that the later definitions have and the earlier ones have not.
func (s *Tables) dropIndexes(ctx context.Context, earlier, later []table) error {
	return each(ctx, later, func(ctx context.Context, d table) error {
		i := indexOf(earlier, *d.TableName)
		if i < 0 {
			return nil
		}
		for _, gone := range d.GlobalSecondaryIndexes[len(earlier[i].GlobalSecondaryIndexes):] {
			if err := s.dropIndex(ctx, d, gone.IndexName); err != nil {
				return err
			}
		}
		return nil
	})
}

// deletable returns how many of the tables exist. It returns a Conflict if one is protected, or
// another program's.
func (s *Tables) deletable(ctx context.Context, tables []table) (n int, err error) {
	var found atomic.Int32
	err = each(ctx, tables, func(ctx context.Context, d table) error {
		is, err := s.describe(ctx, d)
		switch {
		case err != nil || is == nil:
			return err
		case aws.ToBool(is.DeletionProtectionEnabled):
			return tidemark.Errorf(tidemark.Conflict,
				"the table %s is protected against deletion; if it is to go, run "+
					"tidemark migrate up with deletion_protection=off in the URL first",
				*d.TableName)
		}
		found.Add(1)
		return d.compare(is)
	})
	return int(found.Load()), err
}
