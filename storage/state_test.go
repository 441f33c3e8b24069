package storage_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func TestMayAppend(t *testing.T) {
	for _, tc := range []struct {
		state     tidemark.ChatState
		importing bool
		want      tidemark.Code
	}{
		{tidemark.ChatLive, false, ""},
		{tidemark.ChatLive, true, tidemark.Conflict},
		{tidemark.ChatImporting, false, tidemark.Unavailable},
		{tidemark.ChatImporting, true, ""},
		{tidemark.ChatDeleted, false, tidemark.NotFound},
		{tidemark.ChatDeleted, true, tidemark.NotFound},
	} {
		err := storage.MayAppend(tc.state, &tidemark.Draft{Importing: tc.importing})
		if got := tidemark.CodeOf(err); got != tc.want {
			t.Errorf("%q, importing %v: %q, want %q", tc.state, tc.importing, got, tc.want)
		}
	}
}

func TestFinishes(t *testing.T) {
	for state, want := range map[tidemark.ChatState]struct {
		changes bool
		code    tidemark.Code
	}{
		tidemark.ChatLive:      {false, ""},
		tidemark.ChatImporting: {true, ""},
		tidemark.ChatDeleted:   {false, tidemark.Conflict},
	} {
		changes, err := storage.Finishes("c", state)
		if got := tidemark.CodeOf(err); changes != want.changes || got != want.code {
			t.Errorf("%q: %v, %q; want %v, %q", state, changes, got, want.changes, want.code)
		}
	}
}

func TestDelete(t *testing.T) {
	created, now := time.UnixMilli(1), time.UnixMilli(9)
	before := tidemark.Chat{
		ID: "c", State: tidemark.ChatImporting, Type: tidemark.Group, Name: "a name",
		History: tidemark.HistoryFull, CreatedAt: created, Head: 7, Floor: 3, Version: 4,
		Metadata: []byte(`{"a":1}`), MemberCount: 2, MembersVersion: 5, Creation: "request",
		Large: true, Policy: tidemark.Policy{KeepDays: 30},
	}
	want := tidemark.Chat{
		ID: "c", State: tidemark.ChatDeleted, DeletedAt: now, Type: tidemark.Group,
		History: tidemark.HistoryFull, CreatedAt: created, Head: 7, Floor: 8, Version: 5,
		MembersVersion: 6, Large: true,
	}
	after := storage.Delete(before, now)
	if !reflect.DeepEqual(after, want) {
		t.Errorf("got %+v, want %+v", after, want)
	}
	deleted := storage.Deleted{Head: 7, Version: 6, At: now}
	if got := storage.DeletedOf(&after); got != deleted {
		t.Errorf("got %+v, want %+v", got, deleted)
	}
}

func TestOnHold(t *testing.T) {
	for policy, want := range map[tidemark.Policy]tidemark.Code{
		{}:                         "",
		{KeepDays: 30}:             "",
		{Hold: true}:               tidemark.Conflict,
		{KeepDays: 30, Hold: true}: tidemark.Conflict,
	} {
		if got := tidemark.CodeOf(storage.OnHold("c", policy)); got != want {
			t.Errorf("%+v: %q, want %q", policy, got, want)
		}
	}
}

func TestCheckPurge(t *testing.T) {
	for _, tc := range []struct {
		state tidemark.ChatState
		limit int
		want  tidemark.Code
	}{
		{tidemark.ChatDeleted, 1, ""},
		{tidemark.ChatDeleted, storage.MaxExpired, ""},
		{tidemark.ChatDeleted, 0, tidemark.Invalid},
		{tidemark.ChatDeleted, storage.MaxExpired + 1, tidemark.Invalid},
		{tidemark.ChatLive, 1, tidemark.Conflict},
		{tidemark.ChatImporting, 1, tidemark.Conflict},
	} {
		if got := tidemark.CodeOf(storage.CheckPurge("c", tc.state, tc.limit)); got != tc.want {
			t.Errorf("%q, %d rows: %q, want %q", tc.state, tc.limit, got, tc.want)
		}
	}
}

func TestIsDeletion(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{tidemark.Errorf(tidemark.NotFound, "there is no chat"), false},
		{storage.BeingImported("c"), false},
		{storage.WasDeleted("c"), true},
	} {
		if got := storage.IsDeletion(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}
