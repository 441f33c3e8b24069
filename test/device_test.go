package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// device is a client as in docs/client-guide.md. It has one stream that it resumes, or replaces
// with its cursors, again and again. It keeps what it has stored of each chat, and acknowledges on
// its stream. It notes breaches of the rules.
type device struct {
	user
	over transport
	// elsewhere are the nodes that it reconnects to in turn, none if it always reconnects to the
	// same one.
	elsewhere []string

	mu       sync.Mutex // guards the fields below
	hangUp   context.CancelFunc
	session  string
	position int64
	// stored are the keys of the messages of each chat in order, without a gap: from the first one,
	// or from the one behind `from`.
	stored map[string][]string
	// from is the sequence before the first of them.
	from map[string]int64
	// lives has the incarnation from which the device has each chat, and life that of the session.
	// What a session of another life sends of a chat is discarded until a sync was answered.
	lives map[string]string
	life  string
	// pushed are the highest acknowledged boundaries of each chat and user that the stream sent.
	pushed map[string]int64
	caught bool
	opens  int
	// resumed counts the opens that went on with the session.
	resumed int
	resets  map[string]int
	// restored counts the chats that lost something foreign.
	restored int
	faults   []string
}

// transport is the transport of a device's stream.
type transport int

const (
	overWebSocket transport = iota
	overSSE
	overPoll
)

func newDevice(u user, over transport) *device {
	return &device{
		user:   u,
		over:   over,
		stored: map[string][]string{},
		from:   map[string]int64{},
		lives:  map[string]string{},
		pushed: map[string]int64{},
		resets: map[string]int{},
	}
}

// run connects until ctx ends.
func (d *device) run(ctx context.Context) {
	for ctx.Err() == nil {
		d.connect(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// connect reads one connection to its end.
func (d *device) connect(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(d.elsewhere) > 0 {
		d.url = d.elsewhere[0]
		d.elsewhere = append(d.elsewhere[1:], d.url)
	}
	d.mu.Lock()
	session, position := d.session, d.position
	d.caught = false
	d.hangUp = cancel
	d.mu.Unlock()
	switch d.over {
	case overSSE:
		d.readEvents(ctx, session, position)
	case overPoll:
		d.readPolls(ctx, session, position)
	default:
		d.readFrames(ctx, session, position)
	}
}

// cut ends the present connection.
func (d *device) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hangUp != nil {
		d.hangUp()
	}
}

func (d *device) readFrames(ctx context.Context, session string, position int64) {
	url := strings.Replace(d.url, "http://", "ws://", 1) + "/api/v1/ws?ticket=" + d.bearer()
	if session != "" {
		url += fmt.Sprintf("&session_id=%s&after_event_id=%d", session, position)
	}
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		Subprotocols: []string{"tidemark.v1"},
	})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	for {
		var f frame
		if err := wsjson.Read(ctx, conn, &f); err != nil {
			return
		}
		if d.take(ctx, f.Type, f.ID, f.Payload) {
			_ = wsjson.Write(ctx, conn, map[string]any{
				"type": "ack", "payload": map[string]any{"chats": d.acks()},
			})
		}
	}
}

func (d *device) readEvents(ctx context.Context, session string, position int64) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/api/v1/events", nil)
	if err != nil {
		panic(err) // the test's own JSON
	}
	request.Header.Set("Authorization", "Bearer "+d.bearer())
	if session != "" {
		request.Header.Set("Last-Event-ID", fmt.Sprintf("%s.%d", session, position))
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return
	}
	// The next acknowledgement includes what is stored while one is sent.
	wanted := make(chan struct{}, 1)
	var acknowledging sync.WaitGroup
	acknowledging.Go(func() {
		for range wanted {
			_, _, _ = d.try(ctx, http.MethodPost, "/acks", map[string]any{"chats": d.acks()})
		}
	})
	defer acknowledging.Wait()
	defer close(wanted)
	var kind, id, data string
	in := bufio.NewScanner(response.Body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		field, value, _ := strings.Cut(in.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data = value
		}
		if in.Text() != "" {
			continue
		}
		if kind != "" {
			var n int64
			if _, number, there := strings.Cut(id, "."); there {
				_, _ = fmt.Sscan(number, &n)
			}
			if d.take(ctx, kind, n, []byte(data)) {
				select {
				case wanted <- struct{}{}:
				default:
				}
			}
		}
		kind, id, data = "", "", ""
	}
}

// readPolls polls until a poll returns no events. The answer, not an event, reports the end of a
// session.
func (d *device) readPolls(ctx context.Context, session string, position int64) {
	for {
		path := "/poll?wait_seconds=5"
		if session != "" {
			path += fmt.Sprintf("&session_id=%s&after_event_id=%d", session, position)
		}
		status, body, _ := d.try(ctx, http.MethodGet, path, nil)
		var answer struct {
			Session string `json:"session_id"`
			Events  []frame
		}
		if status == http.StatusGone {
			d.mu.Lock()
			d.session, d.position = "", 0
			d.resets["gone"]++
			d.mu.Unlock()
			return
		}
		if status != http.StatusOK || json.Unmarshal(body, &answer) != nil {
			return
		}
		anew := session == ""
		stored := false
		for _, f := range answer.Events {
			stored = d.take(ctx, f.Type, f.ID, f.Payload) || stored
		}
		if stored {
			_, _, _ = d.try(ctx, http.MethodPost, "/acks", map[string]any{"chats": d.acks()})
		}
		d.mu.Lock()
		session, position = d.session, d.position
		d.mu.Unlock()
		if cursors := d.cursors(); anew && len(cursors) > 0 {
			if !d.sync(ctx, session) {
				d.mu.Lock()
				d.session, d.position = "", 0
				d.mu.Unlock()
				return
			}
		}
	}
}

// take takes an event, and reports whether there is a new message to acknowledge.
func (d *device) take(ctx context.Context, kind string, id int64, payload []byte) (stored bool) {
	d.mu.Lock()
	if id != 0 {
		d.position = id
	}
	switch kind {
	case "session":
		var o open
		if json.Unmarshal(payload, &o) == nil {
			d.opens++
			if o.Resumed {
				d.resumed++
			} else {
				d.position = id
			}
			d.session, d.life = o.Session, o.Incarnation
		}
	case "reset":
		var r struct{ Reason string }
		_ = json.Unmarshal(payload, &r)
		d.resets[r.Reason]++
		session := d.session
		d.mu.Unlock()
		if r.Reason != "ahead" {
			d.sync(ctx, session)
		}
		d.mu.Lock()
	case "message":
		var m message
		if json.Unmarshal(payload, &m) == nil {
			stored = d.storeLocked(m)
		}
	case "status_update":
		var s state
		if json.Unmarshal(payload, &s) == nil && s.UserID != "" {
			key := s.ChatID + "/" + s.UserID
			d.pushed[key] = max(d.pushed[key], s.Acked)
		}
	case "caught_up":
		d.caught = true
	}
	d.mu.Unlock()
	return stored
}

// sync sends the cursors to the session until the server takes or refuses them. A chat that is not
// refused is of the session's incarnation from then on. One that was restored loses what is foreign
// first, and its new cursor is sent. It returns false if the server has not answered 200.
func (d *device) sync(ctx context.Context, session string) (done bool) {
	for ctx.Err() == nil {
		cursors := d.cursors()
		status, body, _ := d.try(ctx, http.MethodPost, "/sync", map[string]any{
			"session_id": session, "chats": cursors,
		})
		if status == http.StatusOK {
			if !d.accepted(cursors, body) {
				return true
			}
			continue
		}
		if status != 0 && status != http.StatusTooManyRequests && status < 500 {
			return false
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return false
}

// accepted takes the answer to cursors, and reports whether something was dropped.
func (d *device) accepted(cursors []cursor, body []byte) (dropped bool) {
	var answer struct {
		Chats []struct {
			ChatID string `json:"chat_id"`
			Reset  *struct {
				Reason  string
				Through int64
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	refused := map[string]bool{}
	for _, c := range answer.Chats {
		refused[c.ChatID] = true
		if c.Reset == nil || c.Reset.Reason != "restored" {
			continue
		}
		dropped = true
		d.restored++
		keep := max(c.Reset.Through-d.from[c.ChatID], 0)
		if keep == 0 {
			d.from[c.ChatID] = min(d.from[c.ChatID], c.Reset.Through)
		}
		d.stored[c.ChatID] = d.stored[c.ChatID][:keep]
		for key, acked := range d.pushed {
			if strings.HasPrefix(key, c.ChatID+"/") {
				d.pushed[key] = min(acked, c.Reset.Through)
			}
		}
		d.lives[c.ChatID] = d.life
	}
	for _, c := range cursors {
		if !refused[c.ChatID] {
			d.lives[c.ChatID] = d.life
		}
	}
	return dropped
}

// storeLocked stores the next message of a chat. A message that it already has must be the same. A
// message that arrives too early, before the session knows the cursors, arrives again.
func (d *device) storeLocked(m message) bool {
	messages, known := d.stored[m.ChatID]
	if !known {
		d.from[m.ChatID], d.lives[m.ChatID] = m.Sequence-1, d.life
	}
	if d.lives[m.ChatID] != d.life {
		return false
	}
	switch i := m.Sequence - 1 - d.from[m.ChatID]; {
	case i < 0 || i > int64(len(messages)):
		return false
	case i < int64(len(messages)):
		if messages[i] != m.ClientMessageID {
			d.faults = append(d.faults,
				fmt.Sprintf("%s: message %d of %s was %s, and is %s", d.name, m.Sequence, m.ChatID,
					messages[i], m.ClientMessageID))
		}
		return false
	}
	d.stored[m.ChatID] = append(messages, m.ClientMessageID)
	return true
}

type cursor struct {
	ChatID string `json:"chat_id"`
	Acked  int64  `json:"last_acked_sequence"`
	Life   string `json:"incarnation,omitempty"`
}

// cursors returns what the device has stored.
func (d *device) cursors() []cursor {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []cursor{}
	for chat := range d.stored {
		all = append(all,
			cursor{chat, d.from[chat] + int64(len(d.stored[chat])), d.lives[chat]})
	}
	return all
}

// acks returns the cursors of what the device has from the present incarnation.
func (d *device) acks() []cursor {
	d.mu.Lock()
	life := d.life
	d.mu.Unlock()
	present := slices.DeleteFunc(d.cursors(), func(c cursor) bool { return c.Life != life })
	for i := range present {
		present[i].Life = "" // an acknowledgement has none
	}
	return present
}

// how describes how the device is connected.
func (d *device) how() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	kind := map[transport]string{
		overWebSocket: "WebSocket", overSSE: "Server-Sent Events", overPoll: "long-poll",
	}[d.over]
	return fmt.Sprintf("%s, opened %d times, moving: %v, session %q at %d, caught up: %v, "+
		"resets: %v",
		kind, d.opens, len(d.elsewhere) > 0, d.session, d.position, d.caught, d.resets)
}

// caughtUp reports whether the present connection sent `caught_up`.
func (d *device) caughtUp() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.caught
}

// heads returns how far the device has stored each chat.
func (d *device) heads() map[string]int64 {
	heads := map[string]int64{}
	for _, c := range d.cursors() {
		heads[c.ChatID] = c.Acked
	}
	return heads
}

// observed returns the boundaries that the stream sent, and breaches of the rules.
func (d *device) observed() (pushed map[string]int64, faults []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.pushed), d.faults
}

// try makes one request; status 0 means that there was no answer.
func (u user) try(
	ctx context.Context, method, path string, body any,
) (status int, answer []byte, err error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, u.url+"/api/v1"+path,
		bytes.NewReader(sent))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+u.bearer())
	request.Header.Set("Content-Type", "application/json")
	client := u.client
	if client == nil {
		client = &http.Client{Timeout: deadline}
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil, errors.Join(errors.New("the answer was cut off"), err)
	}
	return response.StatusCode, answer, nil
}

// chat returns the keys of what the device has stored of a chat.
func (d *device) chat(id string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.stored[id])
}

// losses returns how often a restore took something from a chat.
func (d *device) losses() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.restored
}
