package memory_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/server/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRegistry(t *testing.T) {
	registrytest.Run(t, synctest.Test,
		func(*testing.T) registrytest.Registry { return memory.New() })
}

func TestForget_is_another_incarnation_without_leases_and_proofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := memory.New()
		n := registry.Node{ID: "a", Boot: "1"}
		if err := r.Join(t.Context(), n, time.Hour); err != nil {
			t.Fatal(err)
		}
		before, err := r.Epoch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lease := registry.Lease{User: "bob", Device: "phone", Node: "a", Boot: "1", Session: "s"}
		if _, err := r.Open(
			t.Context(), registry.LeaseRequest{Lease: lease, TTL: time.Hour},
		); err != nil {
			t.Fatal(err)
		}
		r.Forget()
		if after, err := r.Epoch(t.Context()); err != nil || after == before {
			t.Errorf("epoch %v, %v, want another than %v", after, err, before)
		}
		if found, err := r.Lookup(t.Context(), []tidemark.UserID{"bob"}); err != nil ||
			len(found[0]) != 0 {
			t.Errorf("leases %v, %v, want none", found, err)
		}
		if err := r.Close(t.Context(), lease, &before); err != nil {
			t.Fatal(err)
		}
		if opened, err := r.Open(
			t.Context(), registry.LeaseRequest{Lease: lease, TTL: time.Hour},
		); err != nil || opened.Proof != nil {
			t.Errorf("%+v, %v, want no proof", opened, err)
		}
	})
}

func TestMaxProofs_bounds_what_is_kept(t *testing.T) {
	r := memory.New()
	if err := r.Join(t.Context(), registry.Node{ID: "a", Boot: "1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	epoch, err := r.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proofs := 0
	for round := range 2 {
		for i := range memory.MaxProofs + 1 {
			lease := registry.Lease{
				User:    tidemark.UserID(strconv.Itoa(i)),
				Device:  "phone",
				Node:    "a",
				Boot:    "1",
				Session: "s",
			}
			opened, err := r.Open(t.Context(), registry.LeaseRequest{Lease: lease, TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if opened.Proof != nil {
				proofs++
			}
			if round == 0 {
				if err := r.Close(t.Context(), lease, &epoch); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if proofs != memory.MaxProofs {
		t.Errorf("%d proofs were kept, want %d", proofs, memory.MaxProofs)
	}
}
