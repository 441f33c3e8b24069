// Package postgres measures what a row of a batched insert costs in a Postgres.
package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/bench/internal/measure"
	"github.com/tidemark-im/tidemark/bench/internal/yardstick"
)

const (
	rowsPerInsert   = 64
	insertsPerRound = 4
	rounds          = 16
	// patience bounds connecting, and each statement.
	patience = 5 * time.Second
)

// Rows measures the CPU time in µs of one row of a prepared 64-row insert by unnest, for about
// within. It is that of this process, which should do nothing else, and of the backend.
//
// The table is a regular one with a primary key, in a schema of its own. Each statement is a
// transaction of its own, whose commit is flushed. A temporary table would write no log, which is a
// good part of the cost of a message. The schema is dropped in the end; only a killed process
// leaves one, called tidemark_yardstick_….
//
// The backend must be a process of this machine, because only then its CPU time can be read.
func Rows(ctx context.Context, url string, within time.Duration) yardstick.Figure {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The text of err may have a part of the password.
		return yardstick.Without(errors.New("--postgres is no URL of a Postgres"))
	}
	setup, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(setup, config)
	if err != nil {
		return yardstick.Without(err)
	}
	defer closeConn(ctx, conn)
	backend, err := backendOf(conn)
	if err != nil {
		return yardstick.Without(err)
	}
	schema := "tidemark_yardstick_" + strings.ToLower(rand.Text()[:12])
	figure := yardstick.Figure{}
	if _, err = conn.Exec(setup, `CREATE SCHEMA `+schema+`; CREATE TABLE `+schema+`.messages (
		chat_id text NOT NULL, sequence bigint NOT NULL, sender_id text NOT NULL,
		content text NOT NULL, PRIMARY KEY (chat_id, sequence))`); err == nil {
		figure = insert(ctx, conn, schema, backend, within)
		drop, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, err = conn.Exec(drop, `DROP SCHEMA `+schema+` CASCADE`)
	}
	if err != nil {
		return yardstick.Without(err)
	}
	return figure
}

// insert measures the inserts.
func insert(
	ctx context.Context, conn *pgx.Conn, schema string, backend int, within time.Duration,
) yardstick.Figure {
	ctx, cancel := context.WithTimeout(ctx, within+patience)
	defer cancel()
	const name = "yardstick"
	_, err := conn.Prepare(ctx, name, `INSERT INTO `+schema+`.messages
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[])`)
	if err != nil {
		return yardstick.Without(err)
	}
	var chats, senders, contents [rowsPerInsert]string
	var sequences [rowsPerInsert]int64
	for i := range chats {
		chats[i] = fmt.Sprintf("bench-yardstick-chat-%d", i)
		senders[i] = fmt.Sprintf("bench-yardstick-user-%d", i)
		contents[i] = strings.Repeat("x", 200)
	}
	return yardstick.Rounds(rounds, time.Now().Add(within), func() (float64, error) {
		before, err := cpu(backend)
		if err != nil {
			return 0, err
		}
		for range insertsPerRound {
			for i := range sequences {
				sequences[i]++
			}
			_, err := conn.Exec(ctx, name, chats[:], sequences[:], senders[:], contents[:])
			if err != nil {
				return 0, err
			}
		}
		after, err := cpu(backend)
		const rows = rowsPerInsert * insertsPerRound
		return float64((after - before).Nanoseconds()) / 1e3 / rows, err
	})
}

// cpu returns the CPU time of this process and of the backend.
func cpu(backend int) (time.Duration, error) {
	clock, err := measure.CPUClock(backend)
	return clock + measure.OwnCPU(), err
}

// backendOf returns the process id of the connection's backend. It fails unless that is a process
// of this machine, which the title of the process shows.
func backendOf(conn *pgx.Conn) (int, error) {
	pid := int(conn.PgConn().PID())
	title, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	client := "[local]"
	if address, ok := conn.PgConn().Conn().LocalAddr().(*net.TCPAddr); ok {
		client = fmt.Sprintf("(%d)", address.Port)
	}
	if err != nil || !strings.HasPrefix(string(title), "postgres") ||
		!strings.Contains(string(title), client) {
		return 0, errors.New("the backend is no process of this machine, " +
			"so its CPU time cannot be read")
	}
	return pid, nil
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_ = conn.Close(ctx) // the server also sees the end of the connection
}
