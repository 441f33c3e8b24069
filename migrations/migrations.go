// Package migrations contains the schemas of the storage backends, one folder for each.
// SQL schemas are pairs of NNNN_name.up.sql and NNNN_name.down.sql. DynamoDB's are NNNN_name.json.
// The package has no code: the backend that owns a folder runs its migrations.
//
// A migration that only adds to the schema is an expand step: older programs continue to work. A
// migration that removes something that they need is a contract step. It raises the version in
// schema_compatible, or "compatible", to the oldest program that does not need it (storage.Schema).
// In SQL that is the first statement of the migration: its lock refuses older programs until the
// migration has ended.
package migrations

import "embed"

// SQLite is the folder "sqlite". storage/sqlite runs it when it opens a database.
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Postgres is the folder "postgres". storage/postgres runs it on request only.
//
//go:embed postgres/*.sql
var Postgres embed.FS

// DynamoDB is the folder "dynamodb". storage/dynamodb runs it on request only. A file is an object:
//
//   - compatible: the oldest program that may work with the tables after the migration.
//   - tables: new tables. Each has the parameters of the call CreateTable, and the
//     TimeToLiveSpecification of the call UpdateTimeToLive. The names have no prefix.
//   - indexes: global secondary indexes to add to tables of earlier files. Each has the TableName,
//     the AttributeDefinitions that the table lacks, and in Create the index as in UpdateTable.
//   - remove: the names of tables of earlier files. Only a contract step removes tables.
//   - steps: the names of Go functions that change items (schema.Step).
//
//go:embed dynamodb/*.json
var DynamoDB embed.FS
