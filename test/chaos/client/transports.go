package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// request builds a request of the device's user. A stream's request records the local address of
// its connection.
func (d *Device) request(
	ctx context.Context, path string, query url.Values,
) (*http.Request, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { d.at(info.Conn.LocalAddr().String()) },
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		d.Base+"/api/v1"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer dev:"+d.Log.User)
	return r, nil
}

// query returns the device's place and name as parameters.
func (d *Device) query() url.Values {
	q := url.Values{}
	if d.Name != "" {
		q.Set("device_id", d.Name)
	}
	if session, position := d.Log.Place(); session != "" {
		q.Set("session_id", session)
		q.Set("after_event_id", strconv.FormatInt(position, 10))
	}
	return q
}

func (d *Device) readSocket(ctx context.Context, heard func()) error {
	r, err := d.request(ctx, "/ws", d.query())
	if err != nil {
		return err
	}
	//nolint:bodyclose // the library closes it
	conn, _, err := websocket.Dial(r.Context(), r.URL.String(), &websocket.DialOptions{
		HTTPClient:     d.http,
		HTTPHeader:     r.Header,
		Subprotocols:   []string{"tidemark.v1"},
		OnPingReceived: func(context.Context, []byte) bool { heard(); return true },
	})
	if err != nil {
		return errors.New("websocket: no connection")
	}
	conn.SetReadLimit(1 << 20)
	d.hold(conn)
	leaves := d.Leaves > 0 && d.Random.IntN(2) == 0
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		if leaves && errors.Is(context.Cause(ctx), errMoved) {
			_ = conn.Close(websocket.StatusNormalClosure, "")
		}
		_ = conn.CloseNow()
	})
	defer func() {
		d.hold(nil)
		if stop() {
			_ = conn.CloseNow()
			return
		}
		<-ended
		if leaves && errors.Is(context.Cause(ctx), errMoved) {
			d.Log.Leave()
		}
	}()
	reading := context.WithoutCancel(ctx)
	for {
		var e event
		_, frame, err := conn.Read(reading)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if code := websocket.CloseStatus(err); code > 0 {
			return fmt.Errorf("websocket: closed with %d", code)
		}
		if err != nil {
			return errors.New("websocket: broken")
		}
		heard()
		if err := json.Unmarshal(frame, &e); err != nil {
			return err
		}
		if err := d.take(ctx, WebSocket, e); err != nil {
			return err
		}
	}
}

// hold keeps the socket for acknowledgements.
func (d *Device) hold(conn *websocket.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.socket = conn
}

func (d *Device) readEvents(ctx context.Context, heard func()) error {
	q := d.query()
	session, position := q.Get("session_id"), q.Get("after_event_id")
	q.Del("session")
	q.Del("after")
	r, err := d.request(ctx, "/events", q)
	if err != nil {
		return err
	}
	if session != "" {
		r.Header.Set("Last-Event-ID", session+"."+position)
	}
	response, err := d.http.Do(r)
	if err != nil {
		return errors.New("sse: no connection")
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return d.refused("sse", response.StatusCode)
	}
	var e event
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "id":
			number := value[strings.LastIndexByte(value, '.')+1:]
			if e.ID, err = strconv.ParseInt(number, 10, 64); err != nil {
				return err
			}
		case name == "event":
			e.Type = value
		case name == "data":
			e.Payload = []byte(value)
		case lines.Text() == "" && e.Type != "":
			if err := d.take(ctx, SSE, e); err != nil {
				return err
			}
			e = event{}
		}
		heard()
	}
	return errors.New("sse: ended")
}

func (d *Device) readPolls(ctx context.Context, heard func()) error {
	for first := true; ; first = false {
		q := d.query()
		if !first {
			q.Set("wait_seconds", strconv.Itoa(d.Random.IntN(6)))
		} else {
			q.Set("wait_seconds", "0")
		}
		r, err := d.request(ctx, "/poll", q)
		if err != nil {
			return err
		}
		response, err := d.http.Do(r)
		if err != nil {
			return errors.New("longpoll: no answer")
		}
		var page struct {
			Session string `json:"session_id"`
			Events  []event
		}
		err = json.NewDecoder(response.Body).Decode(&page)
		_ = response.Body.Close()
		heard()
		switch {
		case response.StatusCode == http.StatusGone:
			d.Log.Gone()
			continue
		case response.StatusCode != http.StatusOK:
			return d.refused("longpoll", response.StatusCode)
		case err != nil:
			return errors.New("longpoll: a cut answer")
		}
		if len(page.Events) == 0 || page.Events[0].Type != "session" {
			if first {
				d.open(LongPoll)
			}
			if d.Log.Resumed() {
				d.giveCursors(ctx)
			}
		}
		for _, e := range page.Events {
			if err := d.take(ctx, LongPoll, e); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.Log.Continue()
	}
}
