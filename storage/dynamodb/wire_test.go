package dynamodb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/test/wait"
)

// A wire carries the calls of a store. A test can intercept a certain call.
type wire struct {
	under http.RoundTripper

	mu    sync.Mutex
	traps []*trap
	// weak are the reads that did not ask for strong consistency.
	weak []string
}

// A trap intercepts the first matching call after skip others, and no further call.
type trap struct {
	operation, has string // the name of the operation, and a part of its body
	skip           int
	// before runs before the call is made.
	before func()
	// lose makes the call, and loses its answer. DynamoDB also forgets that it performed the
	// transaction. leave drops the call itself, and its caller.
	lose, leave bool
	// edit changes the items of a query's answer, or the single one of another read.
	edit func(items []any) []any
}

// token begins the identifier by which DynamoDB recognizes a repeated transaction for ten minutes.
// The wire changes that of a transaction with a lost answer, as if ten minutes were over. So the
// store must find out by itself.
const token = `"ClientRequestToken":"`

var errLost = errors.New("the connection broke")

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	sprung := w.spring(operation, string(body))
	if sprung.before != nil {
		sprung.before()
	}
	if sprung.leave {
		return nil, errLost
	}
	if at := bytes.Index(body, []byte(token)); sprung.lose && at >= 0 {
		body[at+len(token)] = 'x'
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	response, err := w.under.RoundTrip(r)
	if err != nil || !sprung.lose && sprung.edit == nil {
		return response, err
	}
	defer response.Body.Close()
	if sprung.lose {
		return nil, errLost
	}
	return edited(response, sprung.edit)
}

// spring records a call, and returns the trap that it triggers, or an empty one.
func (w *wire) spring(operation, body string) trap {
	w.mu.Lock()
	defer w.mu.Unlock()
	reads := operation == "GetItem" || operation == "BatchGetItem" || operation == "Query" ||
		operation == "Scan"
	if reads && !strings.Contains(body, `"ConsistentRead":true`) {
		w.weak = append(w.weak, operation+" "+body)
	}
	for i, one := range w.traps {
		if one.operation != operation || !strings.Contains(body, one.has) {
			continue
		}
		if one.skip > 0 {
			one.skip--
			continue
		}
		w.traps = append(w.traps[:i:i], w.traps[i+1:]...)
		return *one
	}
	return trap{}
}

// edited returns the answer to a read with other items.
func edited(response *http.Response, edit func([]any) []any) (*http.Response, error) {
	var fields map[string]any
	decoder := json.NewDecoder(response.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	if one, single := fields["Item"]; single {
		fields["Item"] = edit([]any{one})[0]
	} else {
		items, _ := fields["Items"].([]any)
		fields["Items"] = edit(items)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	response.Header.Del("X-Amz-Crc32")
	response.Header.Del("Content-Length")
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return response, nil
}

// set sets a trap. The test fails if no call triggers it.
func (w *wire) set(t *testing.T, one trap) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traps = append(w.traps, &one)
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.traps) > 0 {
			t.Errorf("no call was %s with %q", one.operation, one.has)
		}
		w.traps = nil
	})
}

// trapped opens two stores on the same tables. The calls of the first go over the wire.
func trapped(t *testing.T) (one *Store, w *wire, other *Store) {
	t.Helper()
	return trappedOn(t, newTables(t))
}

// trappedOn is trapped on tables that are there.
func trappedOn(t *testing.T, url string) (one *Store, w *wire, other *Store) {
	t.Helper()
	carrier := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(carrier.CloseIdleConnections)
	w = &wire{under: carrier}
	one, err := Open(t.Context(), Config{URL: url, Transport: w, Patience: wait.Hang})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	})
	return one, w, openTest(t, url)
}

// must demands that there is no error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send appends a message, and demands its sequence.
func send(
	t *testing.T, s *Store, chat tidemark.ChatID, sender tidemark.UserID, key string,
	want tidemark.Sequence,
) {
	t.Helper()
	got, err := storage.AppendOne(t.Context(), s, draft(chat, sender, key))
	if err != nil || got.Message.Sequence != want {
		t.Errorf("Append of %s by %s: sequence %d, error %v; want %d",
			key, sender, got.Message.Sequence, err, want)
	}
}

// draft returns a message with a key of its own.
func draft(chat tidemark.ChatID, sender tidemark.UserID, key string) tidemark.Draft {
	d := drafts(chat, sender, 1, "text of "+key)[0]
	d.ClientMessageID = key
	d.MessageID = tidemark.MessageID("m-" + string(chat) + "-" + string(sender) + "-" + key)
	return d
}

// change writes an item as no store would.
func change(t *testing.T, s *Store, u call.Update) {
	t.Helper()
	_, done, _, err := s.caller("test").Update(context.WithoutCancel(t.Context()), u)
	if err != nil || !done {
		t.Errorf("changing %v: %v, %v", u.Key, done, err)
	}
}
