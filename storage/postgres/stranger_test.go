package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestMigrate_leaves_the_database_of_another_program_alone: many programs have tables with these
// names, and use the same library.
func TestMigrate_leaves_the_database_of_another_program_alone(t *testing.T) {
	for _, tc := range []struct{ name, theirs, table, words string }{
		{"a table", "CREATE TABLE chats (theirs int)", "chats", "the table chats is there already"},
		{"the same library", "CREATE TABLE schema_migrations " +
			"(version bigint PRIMARY KEY, dirty boolean NOT NULL); " +
			"INSERT INTO schema_migrations VALUES (1, false); CREATE TABLE messages (theirs int)",
			"schema_migrations", "give Tidemark another --store"},
		{"another library", "CREATE TABLE schema_migrations (version varchar PRIMARY KEY); " +
			"INSERT INTO schema_migrations VALUES ('20200101')", "schema_migrations",
			"the table schema_migrations is there already"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := service.Shared(t)
			url := server.Database(t)
			name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
			server.Exec(t, name, tc.theirs)
			tables := "SELECT string_agg(concat(table_name, '.', column_name), ' ' ORDER BY " +
				"table_name, column_name) FROM information_schema.columns WHERE table_schema = " +
				"'public'"
			before := single(t, url, tables)
			wantError(t, Migrate(t.Context(), url, Up), tidemark.Conflict,
				tc.words, "another program's")
			if err := Migrate(t.Context(), url, Down); err == nil {
				t.Error("Migrate down went through")
			}
			s, err := Open(t.Context(), Config{URL: url})
			if err == nil {
				t.Error("the database was opened", s.Close())
			}
			wantError(t, err, tidemark.Conflict)
			for _, column := range strings.Fields(before) {
				if after := single(t, url, tables); !strings.Contains(after, column) {
					t.Errorf("%s is lost: there is %s", column, after)
				}
			}
			if tc.table == "schema_migrations" {
				rows := single(t, url,
					"SELECT string_agg(m::text, ' ') FROM schema_migrations AS m")
				if rows != "(1,f)" && rows != "(20200101)" {
					t.Errorf("their migrations are now %s", rows)
				}
			}
		})
	}
}

// TestMigrate_stays_in_the_schema_of_the_tables: a new schema that comes earlier in the search path
// must not hide the messages.
func TestMigrate_stays_in_the_schema_of_the_tables(t *testing.T) {
	server := service.Shared(t)
	url := server.Database(t)
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	const chats = "SELECT string_agg(table_schema, ' ') FROM information_schema.tables WHERE " +
		"table_name = 'chats'"
	for _, step := range []struct {
		parameters, do string
		direction      Direction
		want           string // the schemas with the tables
	}{
		{"", "SELECT 1", Up, "public"},
		{"", `CREATE SCHEMA "To come"; ALTER DATABASE ` + name +
			` SET search_path = "To come", public`, Up, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, "public"},
		{"", "SELECT 1", Down, ""},
		{"&search_path=%22To%20come%22", "DROP TABLE schema_migrations", Up, "To come"},
	} {
		server.Exec(t, name, step.do)
		if err := Migrate(t.Context(), url+step.parameters, step.direction); err != nil {
			t.Fatalf("Migrate %s: %v", step.direction, err)
		}
		if got := single(t, url, "SELECT coalesce(("+chats+"), '')"); got != step.want {
			t.Fatalf("after %s, Migrate %s made the tables in %q, want %q",
				step.do, step.direction, got, step.want)
		}
	}
	wantError(t, Migrate(t.Context(), url+"&search_path=nowhere", Up), tidemark.Conflict,
		"search_path names no schema")
}

// TestOpen_texts_are_UTF8, whatever encoding a role sets. If the database itself has another
// encoding, it is refused.
func TestOpen_texts_are_UTF8(t *testing.T) {
	server := service.Shared(t)
	url := newDatabase(t, server)
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	server.Exec(t, "postgres", "ALTER DATABASE "+name+" SET client_encoding = 'WIN1252'")
	s := openTest(t, url)
	chat := storage.NewChat{
		ID:        "c",
		Type:      tidemark.Group,
		Name:      "\u0081 ☃",
		History:   tidemark.HistoryFull,
		CreatedAt: time.UnixMilli(7),
		Creator:   "anna",
		Members:   []tidemark.UserID{"anna"},
	}
	if got, _, err := s.CreateChat(t.Context(), chat); err != nil || got.Name != chat.Name {
		t.Errorf("CreateChat: %q, %v", got.Name, err)
	}
	server.Exec(t, "postgres", "DROP DATABASE IF EXISTS japanese")
	server.Exec(t, "postgres",
		"CREATE DATABASE japanese TEMPLATE template0 ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C'")
	t.Cleanup(func() { server.Exec(t, "postgres", "DROP DATABASE japanese WITH (FORCE)") })
	japanese := server.URL("japanese")
	if err := Migrate(t.Context(), japanese, Up); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{URL: japanese})
	wantError(t, err, tidemark.Conflict, "EUC_JP", "UTF8")
}

// single returns the one text that a statement returns.
func single(t *testing.T, url, statement string) (found string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.QueryRow(t.Context(), statement).Scan(&found); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return found
}
