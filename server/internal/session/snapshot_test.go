package session

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// TestSnapshot_wire_form_is_fixed: during a rolling upgrade, nodes of two versions exchange
// snapshots. A field may be added. None may get another name or meaning.
func TestSnapshot_wire_form_is_fixed(t *testing.T) {
	want, err := os.ReadFile("testdata/snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	change := &snapshotControl{
		Kind: tidemark.EventReset, Payload: json.RawMessage(`{"chat_id":"a"}`), Chat: "a",
	}
	snapshot := &Snapshot{
		User: "bob", Session: "s1", Device: "phone", LastID: 9, Base: 2,
		Runs: []snapshotRun{
			{Event: 3, Count: 2, Kind: runMessages, Chat: "a", Sequence: 4},
			{Event: 5, Kind: runGap, Chat: "a", Sequence: 6, To: 7},
			{Event: 6, Kind: runStatus, Chat: "a"},
			{Event: 7, Kind: runCaughtUp},
			{Event: 8, Kind: runControl, Control: change},
			{Event: 9, Kind: runOwn, Chat: "a"},
		},
		Chats: []snapshotProgress{{
			Chat: "a", Next: 8, Start: 3, Head: 9, Acked: 2, OpenEnded: true, FirstSeen: 11,
			AckedRead: true, MayBePending: true, GraceOn: true, GraceMoved: true,
		}},
		Epoch:   registry.Epoch{Crashes: 4, Incarnation: "i"},
		Certain: time.Unix(1_700_000_000, 0).UTC(), Complete: true,
		Refresh:  []tidemark.ChatID{"b"},
		Controls: []snapshotControl{*change},
		Aggregates: map[tidemark.ChatID]tidemark.Boundary{
			"c": {Acked: 5, Read: 4},
		},
		CaughtUp: true, AwaitingCursors: true, WantsStatuses: true, ListRecent: true,
		ListOwn: true, Own: []tidemark.ChatID{"d"}, Looks: looking,
	}
	for _, v := range []any{*snapshot, snapshot.Chats[0], *change} {
		for i, value := 0, reflect.ValueOf(v); i < value.NumField(); i++ {
			if value.Field(i).IsZero() {
				t.Errorf("%T.%s is not in this test", v, value.Type().Field(i).Name)
			}
		}
	}
	text, err := json.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("another node would read it differently (-testdata/snapshot.json +now):\n%s", diff)
	}
	read, err := ReadSnapshot(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(snapshot, read, cmp.Transformer("JSON", func(m json.RawMessage) string {
		var compact bytes.Buffer
		if err := json.Compact(&compact, m); err != nil {
			t.Error(err)
		}
		return compact.String()
	})); diff != "" {
		t.Errorf("read is something else (-want +got):\n%s", diff)
	}
}

func TestReadSnapshot_refuses_what_is_none(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "{}", `{"User":"bob"}`, `{"Session":"s1"}`} {
		if got, err := ReadSnapshot([]byte(text)); err == nil {
			t.Errorf("ReadSnapshot(%q) = %+v, want an error", text, got)
		}
	}
}
