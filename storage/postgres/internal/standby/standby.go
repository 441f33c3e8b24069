// Package standby notices commits that no synchronous standby has confirmed.
package standby

import (
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
)

// alone is the key in a connection's custom data. It is set if a commit on the connection exists on
// one server only.
const alone = "tidemark: alone"

// Notice handles the warnings of the database (pgconn.Config.OnNotice). If an operator cancels a
// commit that waits for a standby, the commit succeeds. Only a warning says that it may be lost
// with this server. The warning's text depends on the language; the source file it names does not.
func Notice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.File == "syncrep.c" && n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[alone] = true
	}
}

// Confirmed returns an Unavailable error if a commit on the connection exists on one server only.
// It also resets that state.
func Confirmed(conn *pgconn.PgConn) error {
	if conn.CustomData()[alone] == nil {
		return nil
	}
	delete(conn.CustomData(), alone)
	return tidemark.Errorf(tidemark.Unavailable,
		"somebody ended the wait for a synchronous standby, so the write may be on one server "+
			"only; try again")
}
