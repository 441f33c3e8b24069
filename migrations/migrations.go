// Package migrations holds the schemas of the backends, one folder for each: those of SQL as pairs of NNNN_name.up.sql and NNNN_name.down.sql, those of
// DynamoDB as tables in NNNN_name.json. It holds no code: the backend that owns a folder runs it.
package migrations

import "embed"

// SQLite is the folder "sqlite", which storage/sqlite runs when it opens a database.
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Postgres is the folder "postgres", which storage/postgres runs when it is told to.
//
//go:embed postgres/*.sql
var Postgres embed.FS

// DynamoDB is the folder "dynamodb", which storage/dynamodb makes when it is told to. A file is a list of tables, each in the words of the call
// CreateTable, and with the TimeToLiveSpecification that the call UpdateTimeToLive takes. Names are without the prefix.
//
//go:embed dynamodb/*.json
var DynamoDB embed.FS
