package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestDrain_clients_go_on_elsewhere checks that clients of a node that stops resume on another
// node. The stopping node sends them there, over all transports. Meanwhile it answers calls, opens
// no stream, and gives its sessions to the other node.
func TestDrain_clients_go_on_elsewhere(t *testing.T) {
	clients := 30 // at a hundred a second
	if n, err := strconv.Atoi(os.Getenv("TIDEMARK_DRAIN_CLIENTS")); err == nil {
		clients = n
	}
	cleanEnvironment(t)
	args := []string{
		"--dev", "--migrate", "--store", postgres.Shared(t).Database(t), "--redis",
		redis.Database(t),
	}
	stays := startServer(t, append(args, "--node", "stays")...) + "/api/v1"
	ctx, stop := context.WithCancel(t.Context())
	var log logBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx,
			append([]string{"serve", "--listen", "127.0.0.1:0", "--node", "goes"}, args...),
			streams{out: &bytes.Buffer{}, err: &log})
	}()
	var goes string
	poll(t, func() error {
		found := listening.FindStringSubmatch(log.String())
		if found == nil {
			return fmt.Errorf("no address in the log: %s", log.String())
		}
		goes = found[1] + "/api/v1"
		return nil
	})
	poll(t, func() error {
		values, _, _ := series(t, strings.TrimSuffix(goes, "/api/v1")+"/metrics")
		if values["tidemark_nodes"] != 2 {
			return fmt.Errorf("it knows of %v nodes", values["tidemark_nodes"])
		}
		return nil
	})
	members := []string{"poll", "ws"}
	for i := range clients {
		members = append(members, fmt.Sprint("sse", i))
	}
	list, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	must(t, http.StatusCreated, "dev:ann", "POST", goes+"/chats",
		fmt.Sprintf(`{"type":"group","chat_id":"team","member_ids":%s}`, list))

	var moving sync.WaitGroup
	ready := make(chan struct{}, clients+2)
	for i := range clients {
		first, code := listen(t, fmt.Sprintf("%s/events?ticket=dev:sse%d", goes, i), "")
		if code != http.StatusOK {
			t.Fatalf("a stream: %d", code)
		}
		moving.Go(func() { moveSSE(t, first, stays, fmt.Sprint("sse", i), ready) })
	}
	moving.Go(func() { movePoll(t, goes, stays, ready) })
	moving.Go(func() { moveWebSocket(t, goes, stays, ready) })
	for range clients + 2 {
		select {
		case <-ready:
		case <-time.After(wait.Hang):
			t.Fatal("not all clients are connected")
		}
	}

	began := time.Now()
	stop()
	early := 0 // ann's streams before the node began to stop; their sessions stay
	poll(t, func() error {
		_, code := listen(t, goes+"/events?ticket=dev:ann", "")
		if code != http.StatusServiceUnavailable {
			early++
			return fmt.Errorf("a stream that is opened on a node that stops: %d", code)
		}
		return nil
	})
	code, body := answerOf(t, "ann", "POST", goes+"/chats/team/messages",
		`{"client_message_id":"m1","content":"while it goes"}`)
	if code != http.StatusCreated {
		t.Errorf("a send to a node that stops: %d %s", code, body)
	}
	moving.Wait()
	t.Logf("%d clients have gone on elsewhere after %v", clients+2, time.Since(began))
	select {
	case code := <-ended:
		left := -1
		found := regexp.MustCompile(`sessions_left=(\d+)`).FindStringSubmatch(log.String())
		if found != nil {
			left, _ = strconv.Atoi(found[1])
		}
		if code != exitOK || left < 0 || left > early {
			t.Errorf("serve ended with %d and %d sessions, want %d and 0 to %d:\n%s",
				code, left, exitOK, early, log.String())
		}
	case <-time.After(2 * drainWithin):
		t.Fatal("serve did not end")
	}
}

// moveSSE reads a stream to its end, and resumes its session on another node.
// It gets the message that was sent meanwhile on one of the two nodes.
func moveSSE(t *testing.T, first <-chan event, elsewhere, user string, ready chan<- struct{}) {
	last, awaited := "", "message"
	for e := range first {
		if e.id != "" {
			last = e.id
		}
		switch e.kind {
		case "caught_up":
			ready <- struct{}{}
		case "message":
			awaited = "session"
		}
	}
	<-time.After(400 * time.Millisecond) // the time to come back is at most half a second
	events, code := listen(t, elsewhere+"/events?ticket=dev:"+user, last)
	if code != http.StatusOK {
		t.Errorf("%s: elsewhere: %d", user, code)
		return
	}
	came := awaitUntil(events, awaited, wait.Hang)
	if len(came) == 0 || came[0].kind != "session" ||
		!strings.Contains(came[0].data, `"resumed":true`) || came[len(came)-1].kind != awaited {
		t.Errorf("%s: elsewhere it gets %v, want %s", user, came, awaited)
	}
}

// awaitUntil returns the events up to the first of a kind, or those that came within a time.
func awaitUntil(events <-chan event, kind string, within time.Duration) (all []event) {
	late := time.After(within)
	for {
		select {
		case e, more := <-events:
			if !more {
				return all
			}
			if all = append(all, e); e.kind == kind {
				return all
			}
		case <-late:
			return all
		}
	}
}

// movePoll polls until a node says that it stops, and resumes the session on another node.
func movePoll(t *testing.T, here, elsewhere string, ready chan<- struct{}) {
	var session string
	after := 0
	ask := func(url, wait string) (status int, header http.Header, kinds string) {
		query := fmt.Sprintf("/poll?wait_seconds=%s&ticket=dev:poll", wait)
		if session != "" {
			query += fmt.Sprintf("&session_id=%s&after_event_id=%d", session, after)
		}
		response, err := http.Get(url + query)
		if err != nil {
			t.Errorf("a poll: %v", err)
			return 0, nil, ""
		}
		defer response.Body.Close()
		var answer struct {
			Session string `json:"session_id"`
			Events  []struct {
				ID   int
				Type string
			}
		}
		err = json.NewDecoder(response.Body).Decode(&answer)
		if err == nil && response.StatusCode == http.StatusOK {
			session = answer.Session
		}
		for _, e := range answer.Events {
			after, kinds = max(after, e.ID), kinds+e.Type+" "
		}
		return response.StatusCode, response.Header, kinds
	}
	for _, _, kinds := ask(here, "0"); !strings.Contains(kinds, "caught_up"); {
		_, _, more := ask(here, "5")
		kinds += more
	}
	ready <- struct{}{}
	for {
		status, header, _ := ask(here, "50")
		if status == http.StatusServiceUnavailable || header.Get("Retry-After") != "" {
			if header.Get("Retry-After") == "" {
				t.Errorf("a poll of a node that stops is answered %d without Retry-After", status)
			}
			break
		}
		if status != http.StatusOK {
			t.Errorf("a poll of a node that stops: %d", status)
			return
		}
	}
	was := session
	if status, _, _ := ask(elsewhere, "0"); status != http.StatusOK || session != was {
		t.Errorf("a poll elsewhere with the session: %d, session %s, before %s",
			status, session, was)
	}
}

// moveWebSocket reads until the node closes the connection, and resumes on another node.
func moveWebSocket(t *testing.T, here, elsewhere string, ready chan<- struct{}) {
	type frame struct {
		ID      int
		Type    string
		Payload struct {
			Session string `json:"session_id"`
			Resumed bool
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dial := func(url, query string) *websocket.Conn {
		c, _, err := websocket.Dial(ctx,
			strings.Replace(url, "http", "ws", 1)+"/ws?ticket=dev:ws"+query, nil)
		if err != nil {
			t.Errorf("a WebSocket: %v", err)
		}
		return c
	}
	c := dial(here, "")
	if c == nil {
		return
	}
	var session string
	last := 0
	for {
		_, text, err := c.Read(ctx)
		if err != nil {
			code := websocket.CloseStatus(err)
			if code != 1012 || !strings.Contains(err.Error(), "retry-after=0.") {
				t.Errorf("a WebSocket of a node that stops ends with %v", err)
			}
			break
		}
		var f frame
		if err := json.Unmarshal(text, &f); err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		last = max(last, f.ID)
		switch f.Type {
		case "session":
			session = f.Payload.Session
		case "caught_up":
			ready <- struct{}{}
		}
	}
	c = dial(elsewhere, fmt.Sprintf("&session_id=%s&after_event_id=%d", session, last))
	if c == nil {
		return
	}
	defer c.CloseNow()
	_, text, err := c.Read(ctx)
	if bytes.Contains(text, []byte(`"hello"`)) {
		_, text, err = c.Read(ctx)
	}
	var f frame
	if err != nil || json.Unmarshal(text, &f) != nil || f.Type != "session" || !f.Payload.Resumed ||
		f.Payload.Session != session {
		t.Errorf("elsewhere a WebSocket gets %s, %v", text, err)
	}
}
