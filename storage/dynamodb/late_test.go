package dynamodb

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A keeper keeps a copy of the call that prepares a member. It lets no change be settled
// completely.
type keeper struct {
	http.RoundTripper
	user string

	mu   sync.Mutex
	kept *http.Request
	body []byte
}

func (k *keeper) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	text := string(body)
	if strings.Contains(text, "REMOVE change, ") {
		return nil, io.ErrUnexpectedEOF
	}
	if strings.Contains(text, "SET next_change") && strings.Contains(text, `"`+k.user+`"`) {
		k.mu.Lock()
		k.kept, k.body = r.Clone(r.Context()), body
		k.mu.Unlock()
	}
	return k.RoundTripper.RoundTrip(r)
}

// again sends the kept call again.
func (k *keeper) again(t *testing.T) (status int) {
	t.Helper()
	if k.kept == nil {
		t.Fatal("no member was prepared")
	}
	r := k.kept.Clone(t.Context())
	r.Body = io.NopCloser(bytes.NewReader(k.body))
	answer, err := k.RoundTripper.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode
}

// A preparation that arrives after the member was removed again does not bring the member back,
// although the change took effect.
func TestAddMembers_late_preparation_brings_nobody_back(t *testing.T) {
	url := newTables(t)
	carrier := &http.Transport{}
	t.Cleanup(carrier.CloseIdleConnections)
	k := &keeper{RoundTripper: carrier, user: "u00007"}
	hindered, err := Open(t.Context(), Config{URL: url, Transport: k})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hindered.Close(); err != nil {
			t.Error(err)
		}
	})
	other := openTest(t, url)
	for _, before := range []string{"never a member", "a member once"} {
		t.Run(before, func(t *testing.T) {
			chat := tidemark.ChatID(strings.ReplaceAll(before, " ", "-"))
			createGroup(t, other, chat, "anna")
			if before == "a member once" {
				_, err := other.AddMembers(t.Context(), chat, []tidemark.UserID{"u00007"},
					tidemark.Ordinary, time.UnixMilli(2))
				if err != nil {
					t.Fatal(err)
				}
				_, err = storage.AppendOne(t.Context(), other, drafts(chat, "anna", 1, "hello")[0])
				if err != nil {
					t.Fatal(err)
				}
				_, err = other.RemoveMember(t.Context(), chat, "u00007", time.UnixMilli(3))
				if err != nil {
					t.Fatal(err)
				}
			}
			c, ctx, leave, err := hindered.enter(t.Context(), "test", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			a := &adding{
				caller: c,
				chat:   chat,
				users:  usersFrom(60, "u"),
				at:     time.UnixMilli(4),
				token:  "token-" + string(chat),
			}
			if _, err := a.many(ctx); err == nil {
				t.Fatal("the change was settled completely")
			}
			_, err = other.RemoveMember(t.Context(), chat, "u00007", time.UnixMilli(5))
			if err != nil {
				t.Fatal(err)
			}
			if status := k.again(t); status != http.StatusBadRequest {
				t.Errorf("the late call was answered %d, want it refused", status)
			}
			rosters, err := other.Rosters(t.Context(), []tidemark.ChatID{chat})
			if err != nil {
				t.Fatal(err)
			}
			if _, is := rosters[0].Member("u00007"); is || len(rosters[0].Members) != 60 {
				t.Errorf("the user is a member: %v, of %d members", is, len(rosters[0].Members))
			}
		})
	}
}
