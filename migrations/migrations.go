// Package migrations holds the schemas of the SQL backends as pairs of NNNN_name.up.sql and NNNN_name.down.sql, one folder
// for each backend. It holds no code: the backend that owns a folder runs it.
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
