package postgres

import (
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestOpen_restore_is_noticed_by_a_running_store: a dump that is restored into the same database is
// noticed at the next Open, and by a running store as soon as it connects again.
func TestOpen_restore_is_noticed_by_a_running_store(t *testing.T) {
	t.Parallel()
	server := service.Shared(t)
	url := newDatabase(t, server)
	first := openTest(t, url)
	again := openTest(t, url)
	if first.Incarnation() != again.Incarnation() {
		t.Errorf("two stores have the incarnations %s and %s", first.Incarnation(),
			again.Incarnation())
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	script := "pg_dump --format=custom --file=dump '" + url + "' && " +
		"pg_restore --clean --if-exists --exit-on-error --dbname='" + url + "' dump; " +
		"result=$?; rm dump; exit $result"
	if out, err := server.Shell(script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case <-first.Replaced():
		t.Fatal("it was noticed without a new connection")
	default:
	}
	first.readers.Reset()
	if err := first.Check(t.Context()); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("after a new connection Check returns %v, want Unavailable", err)
	}
	select {
	case <-first.Replaced():
	case <-time.After(wait.Hang):
		t.Fatal("it was not noticed")
	}
	// The connections that write are still those of before.
	name := "name"
	_, err := first.UpdateChat(t.Context(), "c", storage.ChatChange{Name: &name})
	if tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("a call after that returns %v, want Unavailable", err)
	}
	restored := openTest(t, url)
	if restored.Incarnation() == first.Incarnation() {
		t.Errorf("the restored data have the incarnation %s, as before", first.Incarnation())
	}
	if other := openTest(t, url); other.Incarnation() != restored.Incarnation() {
		t.Errorf("the next store has the incarnation %s, want %s", other.Incarnation(),
			restored.Incarnation())
	}
}
