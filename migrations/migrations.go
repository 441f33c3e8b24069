// Package migrations contains the schemas of the storage backends, one folder for each.
// SQL schemas are pairs of NNNN_name.up.sql and NNNN_name.down.sql. DynamoDB's are tables in
// NNNN_name.json. The package has no code: the backend that owns a folder runs its migrations.
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

// DynamoDB is the folder "dynamodb". storage/dynamodb creates its tables on request only.
// A file is a list of tables. Each has the parameters of the call CreateTable, and the
// TimeToLiveSpecification of the call UpdateTimeToLive. The names have no prefix.
//
//go:embed dynamodb/*.json
var DynamoDB embed.FS
