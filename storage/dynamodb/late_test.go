package dynamodb

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A keeper keeps a copy of the first call with some texts. It lets no change of members be settled
// completely.
type keeper struct {
	http.RoundTripper
	texts []string

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
	lacks := func(part string) bool { return !strings.Contains(text, part) }
	if !slices.ContainsFunc(k.texts, lacks) {
		k.mu.Lock()
		k.kept, k.body = r.Clone(r.Context()), body
		k.mu.Unlock()
	}
	return k.RoundTripper.RoundTrip(r)
}

// again sends the kept call again, as if DynamoDB had forgotten it.
func (k *keeper) again(t *testing.T) (status int) {
	t.Helper()
	if k.kept == nil {
		t.Fatal("there was no such call")
	}
	if at := bytes.Index(k.body, []byte(token)); at >= 0 {
		k.body[at+len(token)] = 'x'
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

// hindered opens two stores on the same tables. The calls of the first go through a keeper. It is
// not patient, since a change of members ends only with its time.
func hindered(t *testing.T, texts ...string) (one *Store, k *keeper, other *Store) {
	t.Helper()
	url := newTables(t)
	carrier := &http.Transport{}
	t.Cleanup(carrier.CloseIdleConnections)
	k = &keeper{RoundTripper: carrier, texts: texts}
	one, err := Open(t.Context(), Config{URL: url, Transport: k})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	})
	return one, k, openTest(t, url)
}

// A transaction of an edit that arrives again after a redaction changes nothing.
func TestAppend_redacted_stays_after_a_late_edit(t *testing.T) {
	for _, before := range []bool{false, true} {
		one, k, other := hindered(t, "TransactItems", "canary")
		createGroup(t, other, "c", "anna")
		send(t, other, "c", "anna", "first", 1)
		next := tidemark.Sequence(2)
		if before {
			relate(t, other, edit("c", "anna", "earlier", 1), next)
			next++
		}
		relate(t, one, edit("c", "anna", "canary", 1), next)
		relate(t, other, redact("c", "anna", "k", 1), next+1)
		if status := k.again(t); status != http.StatusBadRequest {
			t.Errorf("the late call was answered %d, want it refused", status)
		}
		if got := messageOf(t, other, "c", 1); !got.Redacted() || got.Content != "" {
			t.Errorf("the redacted message says %q", says(&got))
		}
		send(t, other, "c", "anna", "last", next+2)
	}
}

// A preparation that arrives after the member was removed again does not bring the member back,
// although the change took effect.
func TestAddMembers_late_preparation_brings_nobody_back(t *testing.T) {
	hindered, k, other := hindered(t, "SET next_change", `"u00007"`)
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
