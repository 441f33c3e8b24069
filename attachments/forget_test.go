package attachments_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestRemove_erased_nowhere: the files of a user go with their bytes. Those of others stay, also if
// the user has named them.
func TestRemove_erased_nowhere(t *testing.T) {
	w := start(t)
	own, other := w.upload("alice"), w.upload("carol")
	text := json.RawMessage(fmt.Sprintf(`[{"s3_ref":%q},{"s3_ref":%q}]`, own, other))
	for range 2 { // A repetition changes nothing.
		w.ok(w.Remove(t.Context(), "alice", text))
		w.ok(w.Forget(t.Context(), "alice"))
	}
	if w.kept(own) || !w.kept(other) {
		t.Errorf("own: %t, of another: %t; want only that of another", w.kept(own), w.kept(other))
	}
	w.ok(w.Remove(t.Context(), "alice", json.RawMessage(`[{"url":"x"}]`)))
}
