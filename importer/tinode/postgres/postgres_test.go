package postgres

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/internal/importtest"
	"github.com/tidemark-im/tidemark/importer/tinode"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// users returns the ids of the users 1 to 4 with the key of the tests.
func users(t *testing.T) (all []string) {
	t.Helper()
	for n := range int64(4) {
		all = append(all, key(t, 1).User(n+1))
	}
	return all
}

// key returns a uid_key.
func key(t *testing.T, n byte) tinode.Key {
	t.Helper()
	k, err := tinode.ParseKey(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 16)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// database is an empty database.
type database struct {
	t   *testing.T
	url string
}

func newDatabase(t *testing.T) database {
	t.Helper()
	return database{t, service.Shared(t).Database(t)}
}

func (d database) exec(statements string) {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.url)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(d.t.Context(), statements); err != nil {
		d.t.Fatal(err)
	}
}

// pair returns the name of the topic of two users.
func pair(t *testing.T, a, b string) string {
	t.Helper()
	var raw []byte
	for _, user := range []string{a, b} {
		id, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(user, "usr"))
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, id...)
	}
	return "p2p" + base64.RawURLEncoding.EncodeToString(raw)
}

// TestRecords_of_a_database.
func TestRecords_of_a_database(t *testing.T) {
	ids := users(t)
	topic := pair(t, ids[0], ids[1])
	d := newDatabase(t)
	d.exec(schema)
	d.exec(strings.ReplaceAll(data, "PAIR", topic))
	records := Records(t.Context(), d.url, key(t, 1))
	got := importtest.Lines(t, records)
	for i := range got {
		for n, user := range ids {
			got[i] = strings.ReplaceAll(got[i], user, fmt.Sprint("u", n+1))
		}
		got[i] = strings.ReplaceAll(got[i], topic, "PAIR")
	}
	want := []string{
		`chat grpTeam group "Team" [] 2024-03-01T00:00:00Z`,
		`u1 joins as "owner"`, `u2 joins as "member"`, `u3 joins as "reader"`,
		"1 u1: hello",
		`2 u3: see this has [{"url":"https://files.example.com/a.txt","name":"a.txt",` +
			`"content_type":"text/plain","size":7}] with {"tinode":{"head":` +
			`{"mime":"text/x-drafty"},"content":{"txt":"see this","ent":[{"tp":"EX","data":` +
			`{"mime":"text/plain","name":"a.txt","ref":"https://files.example.com/a.txt",` +
			`"size":7}}]}}}`,
		`u4 joins as "reader"`,
		`3 of "" is deleted`, `4 of "" is deleted`,
		"5 u2: right with {\"tinode\":{\"head\":{\"replace\":\":5\"}}}",
		"u3 leaves",
		`6 of "u2" is edit`,
		"u3 leaves",
		"u1 has read 6", "u2 has read 3", "u3 has read 0", "u4 has read 0",
		"end",
		`chat PAIR direct "" [u1 u2] 2024-03-02T00:00:00Z`,
		"1 u1: hi", "2 u2: hi back", "u1 has read 2", "u2 has read 1", "end",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	store, report := importtest.Import(t, "tinode", records)
	if report.Chats != 2 || report.Messages != 8 || report.Stubs != 3 || report.Senders != 0 {
		t.Errorf("the report is %+v", report)
	}
	for user, want := range map[string]int64{ids[0]: 0, ids[1]: 0, ids[3]: 3} {
		unread, err := store.Unread(t.Context(), []storage.StateKey{
			{User: tidemark.UserID(user), Chat: "grpTeam"},
		})
		if err != nil || unread[0].Messages != want {
			t.Errorf("%s has %+v unread, %v; want %d", user, unread, err, want)
		}
	}
}

// TestRecords_of_many_topics come page by page, and a consumer may leave in between.
func TestRecords_of_many_topics(t *testing.T) {
	d := newDatabase(t)
	d.exec(schema)
	d.exec(`INSERT INTO kvmeta (key, value) VALUES ('version', '112');
		INSERT INTO topics (createdat, updatedat, name)
			SELECT now(), now(), 'grp' || n FROM generate_series(1, 1100) AS n;
		INSERT INTO messages (createdat, updatedat, seqid, topic, "from", content)
			SELECT now(), now(), n, 'grp1', 1, '"x"' FROM generate_series(1, 3000) AS n`)
	var chats []string
	messages := 0
	for r, err := range Records(t.Context(), d.url, key(t, 1)) {
		if err != nil {
			t.Fatal(err)
		}
		switch r := r.(type) {
		case importer.Chat:
			chats = append(chats, r.ID)
		case importer.Message:
			messages++
		}
	}
	slices.Sort(chats)
	if n := len(slices.Compact(chats)); n != 1_100 || messages != 3_000 {
		t.Errorf("got %d topics and %d messages, want 1100 and 3000", n, messages)
	}
	left := 0
	for _, err := range Records(t.Context(), d.url, key(t, 1)) {
		if left++; err != nil || left == 100 {
			break
		}
	}
	if left != 100 {
		t.Errorf("got %d records before the consumer left", left)
	}
}

// TestRecords_refuse_other_databases, and never show a password.
func TestRecords_refuse_other_databases(t *testing.T) {
	ids := users(t)
	d := newDatabase(t)
	missing := d.url
	d.exec(schema)
	d.exec(strings.ReplaceAll(data, "PAIR", pair(t, ids[0], ids[1])))
	future := newDatabase(t)
	future.exec(schema)
	future.exec(`INSERT INTO kvmeta (key, value) VALUES ('version', '200')`)
	u, err := url.Parse(missing)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("nobody", "pa55word")
	for name, tc := range map[string]struct {
		url  string
		key  tinode.Key
		code tidemark.Code
		want string
	}{
		"no database of Tinode": {
			newDatabase(t).url, key(t, 1), tidemark.Unavailable, "version",
		},
		"another schema": {future.url, key(t, 1), tidemark.Invalid, `schema "200"`},
		"another key":    {d.url, key(t, 2), tidemark.Denied, "uid_key"},
		"no URL": {
			"postgres://u:pa55word@h:port/d", key(t, 1), tidemark.Invalid, "no URL",
		},
		"a wrong password": {
			u.String(), key(t, 1), tidemark.Unavailable, "cannot be reached",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var last error
			for _, err := range Records(t.Context(), tc.url, tc.key) {
				last = err
			}
			if tidemark.CodeOf(last) != tc.code || !strings.Contains(last.Error(), tc.want) ||
				strings.Contains(last.Error(), "pa55word") {
				t.Errorf("got %v, want %s and %q", last, tc.code, tc.want)
			}
		})
	}
}
