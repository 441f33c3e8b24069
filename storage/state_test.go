package storage_test

import (
	"testing"

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
