package transports_test

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark/transports/internal/apitest"
)

// slow are bob's sessions in the statistics, which are compared. Those of others may have the same
// age, and then no order. The other figures there, and the values of metrics, are sums over all
// users: of calls, raises and writes. A read is one of each.
var slow = regexp.MustCompile(`{[^{}]*"user_id":"bob"[^{}]*}`)

// notHeard has the types of events of outlets that the test does not make happen, and why. It makes
// each type of a stream happen.
func notHeard() map[string]string {
	return map[string]string{
		"outlet event.parked":    "is about another outlet.",
		"outlet outlet.disabled": "is about another outlet.",
	}
}

// streams returns the operations that open streams. Those of members are open all the time.
func streams() []string { return []string{"connectWebSocket", "streamEvents", "poll"} }

// The operations that are asked after each step are those of good that only read, and these. Their
// answers show marks.
func alsoAsked() (all []exchange) {
	ask := func(path string, by ...string) {
		for _, who := range by {
			all = append(all, exchange{who: who, method: "GET", path: path, status: 200})
		}
	}
	for _, chat := range []string{"team", "pair", "crowd"} {
		members := []string{"ann", "cid"}
		if chat == "pair" {
			members = members[:1]
		}
		everybody := append([]string{"key"}, members...)
		ask("/chats/"+chat, everybody...)
		for _, query := range []string{"", "?limit=1", "?for_sequence=3", "?for_sequence=4"} {
			ask("/chats/"+chat+"/delivery-status"+query, everybody...)
		}
		ask("/statuses?chat_id="+chat, members...)
		ask("/chats/"+chat+"/members", members...)
		ask("/chats/"+chat+"/messages?reactions=true", members...)
		ask("/chats/"+chat+"/delivery-state", members...)
		ask("/chats/"+chat+"/messages/1/reactions", members...)
		ask("/chats/"+chat+"/pins", members...)
	}
	for _, path := range []string{
		"/chats", "/delivery-states", "/unread", "/pending", "/sessions",
		"/presence?chat_id=team&chat_id=pair", "/receipts/settings", "/push",
	} {
		ask(path, "ann", "cid", "backend")
	}
	ask("/users/cid/export", "key")
	ask("/users/bob/suspension", "key")
	ask("/audit?limit=100", "key")
	return append(all, exchange{who: "ann", method: "POST", path: "/sync", status: 200,
		body: `{"chats":[{"chat_id":"team","last_acked_sequence":0},` +
			`{"chat_id":"pair","last_acked_sequence":0}],"status_updates":true}`})
}

// TestReceipts_shown_within_real_is_asked_of_all: each operation of the contract is asked by
// TestReceipts_shown_within_real_over_everything.
func TestReceipts_shown_within_real_is_asked_of_all(t *testing.T) {
	requests := good()
	for _, call := range apitest.Load(t).Calls() {
		_, asked := requests[call.OperationID]
		if !asked && !slices.Contains(streams(), call.OperationID) {
			t.Errorf("%s is not asked", call.OperationID)
		}
	}
}

// hiding is a way to hide what bob reads.
type hiding struct {
	name string
	// hide are the calls that hide it.
	hide []exchange
	// from is who does not see it, or "" for everybody but bob.
	from string
}

// settings returns the calls that set who sees what is read in the chats of a world.
func settings(who, method, path, body string, chats ...string) (all []exchange) {
	for _, chat := range chats {
		name := func(s string) string { return strings.ReplaceAll(s, "CHAT", chat) }
		all = append(all, exchange{
			who: who, method: method, path: name(path), body: name(body), status: 200,
		})
	}
	return all
}

func hidings() []hiding {
	const path = "/receipts/settings"
	return []hiding{
		{name: "by a setting for all chats",
			hide: settings("bob", "PUT", path, `{"read_receipts":"off"}`, "")},
		{name: "by a setting of each chat", hide: settings("bob", "PUT", path,
			`{"chat_id":"CHAT","read_receipts":"off"}`, "team", "pair", "crowd")},
		{name: "by the policy of each chat", hide: settings("key", "PATCH", "/chats/CHAT",
			`{"read_receipts":"off"}`, "team", "pair", "crowd")},
		{name: "from who hides what they read", from: "ann",
			hide: settings("ann", "PUT", path, `{"read_receipts":"off"}`, "")},
		{name: "from who hides what they read in each chat", from: "ann",
			hide: settings("ann", "PUT", path,
				`{"chat_id":"CHAT","read_receipts":"off"}`, "team", "pair", "crowd")},
	}
}

// TestReceipts_shown_within_real_over_everything runs two worlds. They differ only in whether bob
// reads, which is hidden. Everybody else gets the same answers, events, deliveries of outlets, and
// notifications, and as many of them. Bob's own devices see it, and so does each of the others from
// whom it is not hidden.
func TestReceipts_shown_within_real_over_everything(t *testing.T) {
	contract := apitest.Load(t)
	for _, h := range hidings() {
		t.Run(h.name, func(t *testing.T) {
			var worlds [2]*reading
			for i, reads := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) { worlds[i] = readIn(t, h, contract, reads) })
			}
			if len(worlds[0].steps) != len(worlds[1].steps) {
				t.Fatal("the worlds have not the same steps")
			}
			heard, differs := map[string]bool{}, map[string]bool{}
			for i, unread := range worlds[0].steps {
				read := worlds[1].steps[i]
				for who := range union(unread.got, read.got) {
					heard[who] = true
					diff := differences(unread.got[who], read.got[who])
					differs[who] = differs[who] || len(diff) > 0
					if len(diff) > 0 && h.blind(who) {
						t.Errorf("%s: %s (-if bob does not read, +if they do):\n%s",
							read.name, who, brief(diff))
					}
				}
			}
			for _, who := range slices.Concat(readers(), others()) {
				if !heard[who] {
					t.Errorf("%s: nothing came, which shows nothing", who)
				}
				if !h.blind(who) && !differs[who] {
					t.Errorf("%s: the same whether bob reads or not, though they may see it", who)
				}
			}
			for _, kind := range kinds(contract) {
				if !worlds[1].types[kind] && notHeard()[kind] == "" {
					t.Errorf("no %s came, which shows nothing", kind)
				}
			}
		})
	}
}

// readers are the receivers that see what bob reads, unless it is hidden from them.
func readers() []string {
	return []string{
		"bob asks", "bob by WebSocket", "push to bob",
		"ann asks", "ann by WebSocket", "ann by SSE", "ann by long-poll",
		"cid asks", "cid by WebSocket", "cid by SSE", "cid by long-poll",
		"key asks", "outlet crm", "outlet late",
	}
}

// others are the receivers that never see what bob reads.
func others() []string { return []string{"anybody asks", "outlet old", "push to u0"} }

// outletTypes returns the types of events that an outlet can ask for.
func outletTypes(contract *apitest.Contract) (all []string) {
	for _, kind := range contract.Schemas()["NewEventType"].Value.Enum {
		all = append(all, kind.(string))
	}
	return all
}

// kinds returns the types of events as a world notes them.
func kinds(contract *apitest.Contract) (all []string) {
	for _, kind := range contract.Events() {
		all = append(all, "stream "+kind)
	}
	for _, kind := range outletTypes(contract) {
		all = append(all, "outlet "+kind)
	}
	return all
}

// differences returns the lines that only one of two sorted lists has.
func differences(a, b []string) (only []string) {
	for len(a)+len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			only, a = append(only, "-"+a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			only, b = append(only, "+"+b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return only
}

// brief returns the beginnings of some lines.
func brief(lines []string) (text string) {
	for _, line := range lines[:min(len(lines), 10)] {
		text += line[:min(len(line), 2000)] + "\n"
	}
	return text
}

// blind reports whether a receiver must not see what bob reads.
func (h hiding) blind(who string) bool {
	return slices.Contains(others(), who) ||
		!strings.Contains(who, "bob") && strings.HasPrefix(who, h.from)
}

// union returns the keys of both maps.
func union(a, b map[string][]string) map[string]bool {
	all := map[string]bool{}
	for _, m := range []map[string][]string{a, b} {
		for key := range m {
			all[key] = true
		}
	}
	return all
}

// step is what everybody got during a step of a reading.
type step struct {
	name string
	got  map[string][]string
}

// reading is a world in which bob reads, or does not.
type reading struct {
	*world
	reads bool
	steps []step
	// asks are asked after each step.
	asks []exchange
	// every has all types of events of outlets, as JSON.
	every string
}

// readIn returns what happens in a world.
func readIn(t *testing.T, h hiding, contract *apitest.Contract, reads bool) *reading {
	w, stop := newWorld(t)
	defer stop()
	every, err := json.Marshal(outletTypes(contract))
	w.ok(err)
	r := &reading{world: w, reads: reads, asks: alsoAsked(), every: string(every)}
	requests := good()
	for _, operation := range inOrder(requests) {
		e := requests[operation]
		if e.method == "GET" && operation != "metrics" && !slices.Contains(streams(), operation) {
			r.asks = append(r.asks, e)
		}
	}
	bob := r.scene()
	for _, e := range h.hide {
		r.call(e)
	}
	r.step("before")
	r.steps = nil
	r.body(h, bob)
	for _, operation := range inOrder(requests) {
		shows := h.from != "" && operation == "putReceiptsSettings" // It ends the hiding.
		if operation != "metrics" && !slices.Contains(streams(), operation) && !shows {
			r.ask(requests[operation])
		}
	}
	for line := range strings.Lines(r.call(requests["metrics"])) {
		name, _, _ := strings.Cut(line, "} ")
		r.note("anybody asks", "metric %s", strings.TrimRight(name, " .e+-0123456789\n"))
	}
	r.asks = nil
	r.step("in the end")
	return r
}

// begun is longer than it takes until an outlet is active.
const begun = 2 * time.Minute

// scene creates the chats, the outlets and the devices, opens streams, and lets everybody read the
// first two messages of each chat. It returns a WebSocket of bob.
func (r *reading) scene() *websocket.Conn {
	crowd := []string{`"bob"`, `"cid"`}
	for i := range 49 {
		crowd = append(crowd, fmt.Sprintf(`"u%d"`, i))
	}
	time.Sleep(begun)
	for _, e := range []exchange{
		r.outlet("crm"),
		{who: "key", method: "POST", path: "/admin/outlets", body: `{"type":"webhook",` +
			`"url":"https://old.example.com/","outlet_id":"old"}`},
		{who: "ann", method: "POST", path: "/chats",
			body: `{"type":"group","chat_id":"team","member_ids":["bob","cid"]}`},
		{who: "ann", method: "POST", path: "/chats",
			body: `{"type":"group","chat_id":"team-2","member_ids":[]}`},
		{who: "ann", method: "POST", path: "/chats",
			body: `{"type":"direct","chat_id":"pair","member_ids":["bob"]}`},
		{who: "ann", method: "POST", path: "/chats", body: `{"type":"group","chat_id":"crowd",` +
			`"member_ids":[` + strings.Join(crowd, ",") + `]}`},
		{who: "ann", method: "POST", path: "/chats/team/messages", body: firstMessage},
	} {
		e.status = 201
		r.call(e)
		if e.who == "key" {
			time.Sleep(begun)
		}
	}
	for _, who := range []string{"bob", "u0"} {
		r.call(exchange{who: who, method: "PUT", path: "/push/devices/phone", status: 200,
			body: `{"platform":"fcm","address":"` + who + `"}`})
	}
	r.park()
	for _, who := range []string{"ann", "cid"} {
		r.open(who)
	}
	bob := r.socket("bob")
	for i := range 5 {
		for _, chat := range []string{"team", "pair", "crowd"} {
			if i > 0 || chat != "team" { // whose first message is sent
				r.say("ann", chat, fmt.Sprint("m", i), "")
			}
		}
	}
	for i := range 49 {
		r.mark(fmt.Sprint("u", i), 5, 5, "crowd")
	}
	r.mark("cid", 5, 5, "team", "crowd")
	r.mark("ann", 5, 5, "team", "pair", "crowd")
	r.mark("bob", 2, 2, "team", "pair", "crowd")
	return bob
}

// call makes a call of REST, and returns its answer. The answer has the status that the exchange
// wants. No two calls that others than bob make have the same time.
func (r *reading) call(e exchange) string {
	r.t.Helper()
	if e.who != "bob" {
		time.Sleep(time.Millisecond)
	}
	res, err := r.over.RoundTrip(e.request(r.t, r.stack))
	r.ok(err)
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	r.ok(err)
	if res.StatusCode != e.status {
		r.t.Errorf("%s %s as %q: %d, want %d: %s", e.method, e.path, e.who, res.StatusCode,
			e.status, body)
	}
	return string(body)
}

// outlet returns the call that creates an outlet for all types of events.
func (r *reading) outlet(name string) exchange {
	return exchange{who: "key", method: "POST", path: "/admin/outlets", status: 201,
		body: fmt.Sprintf(`{"type":"webhook","url":"https://%s.example.com/",`+
			`"outlet_id":%[1]q,"events":%s}`, name, r.every)}
}

// open opens a stream of each kind, and looks who is online.
func (r *reading) open(who string) {
	conn := r.socket(who)
	r.send(conn, `{"type":"look","payload":{"chat_ids":["team","pair"]}}`)
	r.events(who)
	r.poll(who)
}

// say sends a message. fields are further ones of its body.
func (r *reading) say(who, chat, key, fields string) {
	r.t.Helper()
	r.call(exchange{who: who, method: "POST", path: "/chats/" + chat + "/messages", status: 201,
		body: fmt.Sprintf(`{"client_message_id":%q,"content":"x"%s}`, key, fields)})
	// So each message is written alone, and not when a run of its author is tried again.
	time.Sleep(1700 * time.Millisecond)
}

// mark raises the marks of a user in chats by one call. Those that are 0 stay.
func (r *reading) mark(who string, acked, read int, chats ...string) {
	r.t.Helper()
	var marks []string
	if acked > 0 {
		marks = append(marks, fmt.Sprintf(`"last_acked_sequence":%d`, acked))
	}
	if read > 0 {
		marks = append(marks, fmt.Sprintf(`"last_read_sequence":%d`, read))
	}
	var all []string
	for _, chat := range chats {
		all = append(all, fmt.Sprintf(`{"chat_id":%q,%s}`, chat, strings.Join(marks, ",")))
	}
	r.call(exchange{who: who, method: "POST", path: "/acks", status: 200,
		body: `{"chats":[` + strings.Join(all, ",") + `]}`})
}

// step waits for the next minute, asks all, and notes what everybody got. So steps have the same
// times in both worlds. Within a step, no order is promised.
func (r *reading) step(name string) {
	r.t.Helper()
	now := time.Since(r.began)
	time.Sleep(now.Truncate(time.Minute) + time.Minute - now)
	for _, e := range r.asks {
		r.ask(e)
	}
	r.note("bob asks", "%s", r.call(exchange{who: "bob", method: "GET",
		path: "/delivery-states", status: 200}))
	got := r.take()
	for _, lines := range got {
		slices.Sort(lines)
	}
	r.steps = append(r.steps, step{name, got})
}

// deferred is how often news waited for an outlet alone, which depends on the order of goroutines.
// figures are those of an outlet. They begin anew after a change, at once or after its answer.
var (
	deferred = regexp.MustCompile(`"deferred_total":\d+,`)
	figures  = regexp.MustCompile(`"this_node":{[^}]*}`)
)

// ask makes a call, and notes the answer as one that its caller gets.
func (r *reading) ask(e exchange) {
	r.t.Helper()
	who := e.who
	switch who {
	case "":
		who = "anybody"
	case "backend": // which calls for ann
		who = "ann"
	}
	answer := r.call(e)
	if e.path == "/admin/stats" {
		answer = strings.Join(slow.FindAllString(answer, -1), " ")
	}
	if strings.HasPrefix(e.path, "/admin/outlets") {
		answer = deferred.ReplaceAllString(answer, "")
		if e.method != "GET" {
			answer = figures.ReplaceAllString(answer, "")
		}
	}
	r.note(who+" asks", "%s %s as %s: %s", e.method, e.path, e.who, answer)
}

// body is what happens after reads are hidden.
func (r *reading) body(h hiding, bob *websocket.Conn) {
	r.t.Helper()
	all := []string{"team", "pair", "crowd"}
	r.mark("bob", 4, 0, all...)
	r.step("after an acknowledgement")
	if r.reads {
		for _, chat := range all {
			r.call(exchange{who: "bob", method: "PATCH", path: "/chats/" + chat +
				"/delivery-state", body: `{"last_read_sequence":3}`, status: 200})
		}
	}
	r.step("after reads by PATCH")
	if r.reads {
		for _, chat := range all {
			r.send(bob, fmt.Sprintf(`{"type":"read","payload":{"chat_id":%q,`+
				`"last_read_sequence":4}}`, chat))
		}
	}
	r.step("after reads by WebSocket")
	// A read that is not hidden counts as delivered, also to who hides.
	ahead := r.reads && h.from == ""
	if ahead {
		r.mark("bob", 0, 5, all...)
	}
	r.step("after reads of what is not acknowledged")
	r.mark("bob", 5, 0, all...)
	if r.reads {
		r.mark("bob", 5, 5, all...)
	}
	r.step("after reads of what is acknowledged")
	for _, chat := range []string{"team", "pair"} {
		r.say("ann", chat, "late", "")
		if ahead {
			r.mark("bob", 0, 6, chat)
		}
	}
	r.step("after reads of what would count as missed")
	// Bob has received the question. So their reply moves over their own message only, unless it
	// says that they have read the question.
	for _, chat := range all {
		r.say("ann", chat, "question", "")
	}
	r.mark("bob", 7, 0, "team", "pair")
	r.mark("bob", 6, 0, "crowd")
	if r.reads && h.from != "" {
		// A reply that reads what is not hidden makes an event of what it delivers, also for
		// those who hide (docs/internals/delivery.md). So here the question is read before.
		r.mark("bob", 7, 7, "team", "pair")
		r.mark("bob", 6, 6, "crowd")
	}
	r.step("after questions")
	for _, chat := range all {
		seen := 0
		if r.reads {
			seen = map[string]int{"team": 7, "pair": 7, "crowd": 6}[chat]
		}
		r.say("bob", chat, "reply", fmt.Sprintf(`,"seen_sequence":%d`, seen))
	}
	r.step("after replies")
	if r.reads {
		for _, chat := range all {
			r.call(exchange{who: "bob", method: "PUT", path: "/chats/" + chat +
				"/delivery-state/unread", body: `{"from_sequence":3}`, status: 200})
		}
	}
	r.step("after marks as unread")
	r.mark("cid", 6, 6, "team", "crowd")
	r.say("ann", "team", "last", "")
	r.step("after reads of others")
	r.miss("cid")
	for _, who := range []string{"ann", "cid"} {
		r.open(who)
	}
	r.step("to new streams")
	r.call(r.outlet("late"))
	r.call(exchange{who: "key", method: "POST", path: "/admin/outlets/crm/replay",
		body: `{"all":true}`, status: 204})
	time.Sleep(begun)
	r.step("to a new outlet, and to one that gets all again")
}

// miss makes a user miss a message as they were no member.
func (r *reading) miss(who string) {
	r.t.Helper()
	const path = "/chats/team-2/members"
	join := exchange{who: "ann", method: "POST", path: path, status: 200,
		body: fmt.Sprintf(`{"user_ids":[%q]}`, who)}
	r.call(join)
	r.call(exchange{who: "ann", method: "DELETE", path: path + "/" + who, status: 204})
	r.say("ann", "team-2", "missed", "")
	r.call(join)
}
