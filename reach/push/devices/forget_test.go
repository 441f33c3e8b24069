package devices_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// TestRegistry_erased_nowhere: no document names the user any more, also not that of an address
// whose device was dropped. Those of others stay.
func TestRegistry_erased_nowhere(t *testing.T) {
	store := memory.New()
	f := fixture{t, devices.New(store)}
	f.put("zoe", phone("old", "address-1"))
	if err := f.Drop(t.Context(), "zoe", "old"); err != nil {
		t.Fatal(err)
	}
	f.put("zoe", phone("phone", "address-2"))
	f.put("bob", phone("phone", "address-3"))
	for range 2 { // A repetition changes nothing.
		if err := f.Forget(t.Context(), "zoe"); err != nil {
			t.Fatal(err)
		}
	}
	f.has("zoe")
	f.has("bob", "address-3")
	kinds := f.Kinds()
	for n := range kinds {
		kinds = append(kinds, fmt.Sprintf("push.places.%d", n))
	}
	for _, kind := range kinds {
		found, _, err := store.Documents(t.Context(), kind, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range found {
			if strings.Contains(d.Name+string(d.Value), "zoe") {
				t.Errorf("%s %s has %s", kind, d.Name, d.Value)
			}
		}
	}
}
