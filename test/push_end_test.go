package test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/storage"
	store "github.com/tidemark-im/tidemark/storage/postgres"
	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestPush_ends_as_the_guide_says: while the flags are missing, news wait for the outlet push, in
// one row for each chat. Deleting it removes it with what waits, and nothing of it comes back when
// there are flags again.
func TestPush_ends_as_the_guide_says(t *testing.T) {
	t.Parallel() // It waits more than it works.
	fakes, p := startProviders(t), newProcess(t)
	key, file := apiKey(t, p.binary, "--scope", "admin")
	p.url, p.env = postgres.Shared(t).Database(t), fakes.env
	without := []string{"--dev", "--api-keys-file", file, "--worker-timeout", "3s"}
	with := append(without[:len(without):len(without)], fakes.flags...)
	p.flags = with
	p.start()
	operator, alice, bob := user{name: "operator", url: "http://" + p.address, token: key},
		as(p.address, "alice"), as(p.address, "bob")
	var push outletOf
	active := func() {
		t.Helper()
		eventually(t, "the outlet push is active", func() bool {
			var all struct{ Outlets []outletOf }
			operator.call(t, http.MethodGet, "/admin/outlets", nil, &all)
			return len(all.Outlets) == 1 && all.Outlets[0].State == "active"
		}, func() string { return "it is not" })
		operator.call(t, http.MethodGet, "/admin/outlets/push", nil, &push)
	}
	active()
	chat := alice.direct(t, "bob")
	fakes.register(t, bob)
	s, err := store.Open(t.Context(), store.Config{URL: p.url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // It has written nothing.
	waiting := func() int {
		q := storage.BacklogQuery{Outlet: "push", Limit: 10}
		for shard := range storage.Shards {
			q.Shards = append(q.Shards, shard)
		}
		found, _, err := s.Backlogs(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	again := func(flags []string) {
		p.stop()
		p.flags = flags
		p.start()
	}

	again(without)
	for n := range 3 {
		alice.send(t, chat, fmt.Sprint("without flags ", n))
	}
	eventually(t, "a row waits for the outlet", func() bool { return waiting() == 1 },
		func() string { return fmt.Sprint(waiting(), " rows wait") })
	operator.call(t, http.MethodGet, "/admin/outlets/push", nil, &push)
	if push.State != "active" || push.Waiting != 1 {
		t.Errorf("without flags the outlet is %+v", push)
	}
	status, _, err := operator.try(t.Context(), http.MethodPost, "/admin/outlets",
		map[string]string{"type": "webhook", "outlet_id": "push", "url": "http://127.0.0.1:1/"})
	if status != http.StatusBadRequest || err != nil {
		t.Errorf("a webhook with the id push was answered %d, %v", status, err)
	}

	operator.call(t, http.MethodDelete, "/admin/outlets/push", nil, nil)
	status, _, err = operator.try(t.Context(), http.MethodGet, "/admin/outlets/push", nil)
	if status != http.StatusNotFound || err != nil {
		t.Errorf("the deleted outlet was answered %d, %v", status, err)
	}
	eventually(t, "nothing is left of the outlet", func() bool {
		list, _, err := s.Documents(t.Context(), "outlets", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return waiting() == 0 && len(list) == 1 && string(list[0].Value) == `{"outlets":[]}`
	}, func() string { return fmt.Sprint(waiting(), " rows wait") })
	alice.send(t, chat, "without an outlet")

	// Messages from before are not notified. The guide says the same of the first start.
	again(with)
	active()
	<-time.After(5 * time.Second) // A banner comes after 3 s.
	if push.Waiting != 0 || len(fakes.web.Received())+len(fakes.fcm.Received()) > 0 {
		t.Errorf("what was sent without an outlet is notified, or waits: %+v", push)
	}
	last := alice.send(t, chat, "with flags again")
	fakes.next(t, last.Sequence, time.Now().Add(-time.Minute))
}
