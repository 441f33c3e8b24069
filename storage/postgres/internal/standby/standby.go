// Package standby notices commits that no synchronous standby has.
package standby

import (
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
)

// alone is where a connection keeps that a commit on it stands on one server alone.
const alone = "tidemark: alone"

// Notice takes in what the database says beside its answers (pgconn.Config.OnNotice). If somebody cancels a commit that waits for a standby, it
// succeeds, and only a warning says that it may be lost with this server. Its text may be in any language; the file that it comes from is always the
// same.
func Notice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.File == "syncrep.c" && n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[alone] = true
	}
}

// Confirmed returns an Unavailable error if a commit on the connection stands on one server alone, and forgets it.
func Confirmed(conn *pgconn.PgConn) error {
	if conn.CustomData()[alone] == nil {
		return nil
	}
	delete(conn.CustomData(), alone)
	return tidemark.Errorf(tidemark.Unavailable,
		"somebody ended the wait for a synchronous standby; what was written may be lost with "+
			"the server")
}
