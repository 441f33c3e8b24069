package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestServe_core_flags_take_effect: the resume window, the sessions of a user, the fan-out of
// statuses and the grace period are what the flags say.
func TestServe_core_flags_take_effect(t *testing.T) {
	cleanEnvironment(t)
	url := startServer(t, "--dev", "--store", "memory:", "--public-metrics",
		"--resume-window", "7s", "--sessions-per-user", "1", "--status-fanout", "2",
		"--grace", "1s")
	api := url + "/api/v1"
	must(t, 201, "dev:ann", "POST", api+"/chats",
		`{"type":"group","chat_id":"two","member_ids":["bob"]}`)
	must(t, 201, "dev:ann", "POST", api+"/chats",
		`{"type":"group","chat_id":"three","member_ids":["bob","cid"]}`)
	ann := dial(t, url, "dev:ann", "")
	defer ann.CloseNow()
	if got := read(t, ann, `"session"`); !strings.Contains(got, `"resume_seconds":7`) {
		t.Errorf("--resume-window 7s: got %s", got)
	}
	bob := dial(t, url, "dev:bob", "")
	defer bob.CloseNow()
	read(t, bob, `"caught_up"`)
	must(t, 429, "dev:bob", "GET", api+"/poll?wait_seconds=0", "")

	// Chats of two members have an update for each of them, those of three have one for all.
	for _, tt := range []struct {
		chat, scope string
		readers     []string
	}{{"two", "member", []string{"dev:bob"}}, {"three", "chat", []string{"dev:bob", "dev:cid"}}} {
		must(t, 201, "dev:ann", "POST", api+"/chats/"+tt.chat+"/messages",
			`{"client_message_id":"m1","content":"hello"}`)
		for _, user := range tt.readers {
			must(t, 200, user, "PATCH", api+"/chats/"+tt.chat+"/delivery-state",
				`{"last_acked_sequence":1}`)
		}
		read(t, ann, `"chat_id":"`+tt.chat+`","scope":"`+tt.scope+`"`)
	}

	// Bob does not acknowledge what the stream brings, so a pending row says so after the grace.
	must(t, 201, "dev:ann", "POST", api+"/chats/two/messages",
		`{"client_message_id":"m2","content":"hello"}`)
	poll(t, func() error {
		got := must(t, 200, "dev:bob", "GET", api+"/pending", "")
		if !strings.Contains(got, "two") {
			return fmt.Errorf("--grace 1s: no pending row in %s", got)
		}
		return nil
	})
}

// TestServe_commit_batch_bounds_what_shares_a_commit: with 1, each message has its own.
func TestServe_commit_batch_bounds_what_shares_a_commit(t *testing.T) {
	cleanEnvironment(t)
	url := startServer(t, "--dev", "--store", "sqlite:"+filepath.Join(t.TempDir(), "a.db"),
		"--public-metrics", "--commit-batch", "1")
	api := url + "/api/v1"
	must(t, 201, "dev:ann", "POST", api+"/chats", `{"type":"group","chat_id":"c","member_ids":[]}`)
	var sending sync.WaitGroup
	for n := range 32 {
		sending.Go(func() {
			body := fmt.Sprintf(`{"client_message_id":"m%d","content":"hello"}`, n)
			status, _, answer := call(t, "dev:ann", "POST", api+"/chats/c/messages", body)
			if status != http.StatusCreated {
				t.Errorf("a send: %d %s", status, answer)
			}
		})
	}
	sending.Wait()
	values, _, _ := series(t, url+"/metrics")
	commits, sends := values["tidemark_commit_sends_count"], values["tidemark_commit_sends_sum"]
	if sends != 32 || commits != sends {
		t.Errorf("%v messages shared %v commits; want each in a commit of its own", sends, commits)
	}
}

// TestServe_ack_batch_bounds_a_call_of_the_storage: acknowledgements of many chats that are written
// together take a call each with 1.
func TestServe_ack_batch_bounds_a_call_of_the_storage(t *testing.T) {
	cleanEnvironment(t)
	const chats = 10
	advances := func(batch string) float64 {
		url := startServer(t, "--dev", "--store", "memory:", "--public-metrics",
			"--ack-batch", batch, "--ack-interval", "1s")
		api := url + "/api/v1"
		for n := range chats {
			must(t, 201, "dev:ann", "POST", api+"/chats",
				fmt.Sprintf(`{"type":"group","chat_id":"c%d","member_ids":["bob"]}`, n))
			must(t, 201, "dev:ann", "POST", fmt.Sprintf("%s/chats/c%d/messages", api, n),
				`{"client_message_id":"m","content":"hello","seen_sequence":0}`)
		}
		bob := dial(t, url, "dev:bob", "")
		defer bob.CloseNow()
		read(t, bob, `"caught_up"`)
		count := func() float64 {
			values, _, _ := series(t, url+"/metrics")
			return values[`tidemark_storage_seconds_count{operation="advance"}`]
		}
		before := count()
		for n := range chats {
			say(t, bob, fmt.Sprintf(`{"type":"ack","payload":{"chat_id":"c%d",`+
				`"last_acked_sequence":1}}`, n))
		}
		poll(t, func() error {
			for n := range chats {
				got := must(t, 200, "dev:bob", "GET",
					fmt.Sprintf("%s/chats/c%d/delivery-state", api, n), "")
				if !strings.Contains(got, `"last_acked_sequence":1`) {
					return fmt.Errorf("not acknowledged: %s", got)
				}
			}
			return nil
		})
		return count() - before
	}
	if n := advances("1"); n < chats {
		t.Errorf("with 1: %v calls for %d chats", n, chats)
	}
	if n := advances("1000"); n >= chats {
		t.Errorf("with 1000: %v calls for %d chats", n, chats)
	}
}
