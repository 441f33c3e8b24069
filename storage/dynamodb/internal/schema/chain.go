package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
)

// A file is the content of a migration, dynamodb/NNNN_name.json.
type file struct {
	// Compatible is the oldest program that may work with the tables after the migration.
	Compatible uint
	// Tables are tables to create. Remove names tables of earlier files to delete.
	Tables []table
	Remove []string
	// Indexes are global secondary indexes to add to tables of earlier files.
	Indexes []index
	// Steps names the Steps to run, in this order.
	Steps []string
}

// An index is a global secondary index of a table, with the attributes of its key that the table
// does not define.
type index struct {
	TableName            string
	AttributeDefinitions []types.AttributeDefinition
	Create               types.CreateGlobalSecondaryIndexAction
}

// A Step changes items. It must be repeatable: it may run again from its beginning, even after it
// has ended, and while another process runs it. Then a table that the migration or its reversal
// removes may be gone already. name returns the full name of a table.
type Step struct {
	Up, Down func(ctx context.Context, api *dynamodb.Client, name func(string) string) error
}

// A version is the schema after the files up to one of them. Its number is that of the last file.
type version struct {
	compatible uint
	tables     []table
	// removed are the tables that the last file removes, as earlier files define them. steps are
	// those of the last file.
	removed []table
	steps   []Step
}

// readChain returns the versions of the files. Version 0 has no tables.
func readChain(files fs.FS, steps map[string]Step) (versions []version, err error) {
	names, err := fs.Glob(files, "dynamodb/*.json")
	versions = []version{{}}
	for i, name := range names {
		if !strings.HasPrefix(name, fmt.Sprintf("dynamodb/%04d_", i+1)) {
			err = fmt.Errorf("it is file %d", i+1)
		}
		var f file
		if err == nil {
			f, err = readFile(files, name)
		}
		if err == nil {
			err = f.follow(&versions, steps)
		}
		if err != nil {
			return nil, tidemark.Wrap(tidemark.Internal, err,
				"the embedded migration "+name+" cannot be used")
		}
	}
	if err != nil || len(versions) == 1 {
		return nil, tidemark.Wrap(tidemark.Internal, err, "the embedded migrations are missing")
	}
	return versions, nil
}

func readFile(files fs.FS, name string) (f file, err error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return f, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return f, decoder.Decode(&f)
}

// follow appends the version that the file makes from the latest one. It returns an error if the
// file does not fit the files before it.
func (f file) follow(versions *[]version, steps map[string]Step) error {
	number := uint(len(*versions))
	last := (*versions)[number-1]
	next := version{compatible: f.Compatible, tables: slices.Clone(last.tables)}
	switch {
	case f.Compatible < max(last.compatible, 1) || f.Compatible > number:
		return fmt.Errorf("it is compatible with %d, and the file before with %d",
			f.Compatible, last.compatible)
	case len(f.Remove) > 0 && f.Compatible == last.compatible:
		return fmt.Errorf("it removes tables, and is compatible with the same programs as before")
	}
	for _, name := range f.Remove {
		if name == Counters { // it has the version, by which older programs know what they may do
			return fmt.Errorf("it removes the table %s, which has the version", name)
		}
		i := indexOf(next.tables, name)
		if i < 0 {
			return fmt.Errorf("it removes the table %s, which no file before has", name)
		}
		next.removed = append(next.removed, next.tables[i])
		next.tables = slices.Delete(next.tables, i, i+1)
	}
	for _, added := range f.Tables {
		if indexOf(last.tables, *added.TableName) >= 0 {
			return fmt.Errorf("it adds the table %s, which a file before has", *added.TableName)
		}
		next.tables = append(next.tables, added)
	}
	for _, added := range f.Indexes {
		i := indexOf(next.tables, added.TableName)
		if i < 0 || indexOf(last.tables, added.TableName) < 0 {
			return fmt.Errorf("it adds an index to the table %s, which no file before has",
				added.TableName)
		}
		next.tables[i] = next.tables[i].with(added)
	}
	for _, name := range f.Steps {
		step, known := steps[name]
		if !known {
			return fmt.Errorf("this program does not know its step %s", name)
		}
		next.steps = append(next.steps, step)
	}
	*versions = append(*versions, next)
	return nil
}

// indexOf returns the index of the table with a name, -1 if there is none.
func indexOf(tables []table, name string) int {
	return slices.IndexFunc(tables, func(d table) bool { return aws.ToString(d.TableName) == name })
}

// every returns the tables of all versions, each of them once.
func every(versions []version) (all []table) {
	for _, v := range versions {
		for _, d := range v.tables {
			if indexOf(all, *d.TableName) < 0 {
				all = append(all, d)
			}
		}
	}
	return all
}
