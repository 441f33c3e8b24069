package requests

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// long returns an id as long as a UUID: what a query of DynamoDB costs depends on the size of its
// items.
func long(text string) string {
	return (text + "-0192f0c1-7e00-7000-8000-000000000000")[:36]
}

func userNo(of string, n int) tidemark.UserID {
	return tidemark.UserID(long(fmt.Sprintf("%s-%d", of, n)))
}

func pairNo(n int) tidemark.ChatID { return tidemark.ChatID(long(fmt.Sprintf("pair-%d", n))) }

func groupOf(n int) tidemark.ChatID { return tidemark.ChatID(long(fmt.Sprintf("group-%d", n))) }

// ann is in a hundred direct chats, and pia in twenty. Member 0 of each group writes, and member 1
// asks.
func ann() tidemark.UserID { return userNo("ann", 0) }
func pia() tidemark.UserID { return userNo("pia", 0) }

const (
	pairs   = 100
	pending = 20
)

// fill creates the chats. Each has a message that all members have, and one after it that they do
// not have. In one of ten of ann's chats follow a line of the system, and a message that names her.
// She has read only the last chat. pia has a pending row in each of hers.
func fill(t *testing.T, s storage.Store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range pairs {
		friend := userNo("friend", i)
		must(create(t, s, pairNo(i), tidemark.Direct, []tidemark.UserID{friend, ann()}))
		if i%10 == 0 {
			line, named := draft(pairNo(i), friend, 3), draft(pairNo(i), friend, 4)
			line.Kind = tidemark.KindSystem
			named.Mentions = tidemark.NewMentions(false, []tidemark.UserID{ann()})
			_, err := s.Append(t.Context(), []tidemark.Draft{line, named})
			must(err)
		}
	}
	read := func(through tidemark.Sequence, chat tidemark.ChatID) {
		_, err := s.Advance(t.Context(), []storage.Advance{{
			User: ann(), Chat: chat, Now: time.UnixMilli(4),
			Raise: tidemark.Raise{Acked: through, Read: through},
		}})
		must(err)
	}
	for i := 0; i < pairs; i += 10 {
		read(1, pairNo(i))
	}
	read(2, pairNo(pairs-1))
	for _, n := range []int{10, 100, 1000} {
		var members []tidemark.UserID
		for i := range n {
			members = append(members, userNo("member", i))
		}
		must(create(t, s, groupOf(n), tidemark.Group, members))
	}
	var rows []tidemark.PendingDelivery
	for i := range pending {
		id := pairNo(pairs + i)
		must(create(t, s, id, tidemark.Direct, []tidemark.UserID{userNo("friend", i), pia()}))
		rows = append(rows, tidemark.PendingDelivery{
			UserID: pia(), ChatID: id, FirstUndelivered: 2,
		})
	}
	_, err := s.Mark(t.Context(), rows)
	must(err)
}

// create creates a chat whose first member writes two messages. All members have the first one.
func create(
	t *testing.T, s storage.Store, id tidemark.ChatID, kind tidemark.ChatType,
	members []tidemark.UserID,
) error {
	err := patiently(func() error {
		_, _, err := s.CreateChat(t.Context(), storage.NewChat{
			ID: id, Type: kind, History: tidemark.HistoryFull, CreatedAt: time.UnixMilli(1),
			Creator: members[0], Members: members,
		})
		return err
	})
	if err != nil && tidemark.CodeOf(err) != tidemark.Conflict { // An attempt created it.
		return err
	}
	advances := make([]storage.Advance, len(members))
	for i, member := range members {
		advances[i] = storage.Advance{
			User: member, Chat: id, Now: time.UnixMilli(2), Raise: tidemark.Raise{Acked: 1},
		}
	}
	return patiently(func() error {
		_, err := storage.AppendOne(t.Context(), s, draft(id, members[0], 1))
		if err == nil {
			_, err = s.Advance(t.Context(), advances)
		}
		if err == nil {
			_, err = storage.AppendOne(t.Context(), s, draft(id, members[0], 2))
		}
		return err
	})
}

// patiently repeats calls that an emulator answers too late beside other work. All calls of a store
// may be repeated.
func patiently(do func() error) error {
	for n := 1; ; n++ {
		err := do()
		if tidemark.CodeOf(err) != tidemark.Unavailable || n == 10 {
			return err
		}
	}
}

// draft returns a message of 200 bytes.
func draft(chat tidemark.ChatID, sender tidemark.UserID, n int) tidemark.Draft {
	key := long(fmt.Sprintf("m-%d-%s", n, chat))
	return tidemark.Draft{
		Kind: tidemark.KindMessage, ChatID: chat, SenderID: sender, ClientMessageID: key,
		MessageID: tidemark.MessageID(key), CreatedAt: time.Now(),
		ContentType: tidemark.DefaultContentType, Content: strings.Repeat("x", 200),
	}
}

// A request is a row of the table.
type request struct {
	name, method, path, body string
	user                     tidemark.UserID
	// before is a body with which the same request is made first, or "".
	before string
	// cold says that the node has served nobody, so it knows no chat's members.
	cold bool
}

func requests() []request {
	all := url.Values{}
	for i := range pairs {
		all.Add("chat_id", string(pairNo(i)))
	}
	group := func(n int) string { return "/chats/" + string(groupOf(n)) }
	pair := "/chats/" + string(pairNo(pairs-1))
	member, mark := userNo("member", 1), `{"from_sequence":1}`
	return []request{
		{name: "`GET /statuses`, 100 direct chats", path: "/statuses?" + all.Encode(), user: ann()},
		{name: "… on a node that does not know them", path: "/statuses?" + all.Encode(),
			user: ann(), cold: true},
		{name: "`GET /statuses`, a group of 10", path: "/statuses?chat_id=" + string(groupOf(10)),
			user: member},
		{name: "`GET /statuses`, a group of 100", path: "/statuses?chat_id=" + string(groupOf(100)),
			user: member},
		{name: "`GET /statuses`, a group of 1,000",
			path: "/statuses?chat_id=" + string(groupOf(1000)), user: member},
		{name: "`GET /unread`, 100 chats", path: "/unread", user: ann()},
		{name: "`PUT …/delivery-state/unread`", method: http.MethodPut,
			path: pair + "/delivery-state/unread", user: ann(), body: mark,
			before: `{"from_sequence":null}`},
		{name: "`GET /pending`, 20 rows", path: "/pending", user: pia()},
		{name: "`GET …/delivery-status`, a direct chat", path: pair + "/delivery-status",
			user: ann()},
		{name: "… on a node that does not know it", path: pair + "/delivery-status", user: ann(),
			cold: true},
		{name: "`GET …/delivery-status`, a group of 10", path: group(10) + "/delivery-status",
			user: member},
		{name: "`GET …/delivery-status`, a group of 100", path: group(100) + "/delivery-status",
			user: member},
	}
}

// meter makes a request and returns what it cost.
func (r request) meter(t *testing.T, b backend) (cost spent) {
	t.Run(r.name, func(t *testing.T) {
		s := transporttest.New(t, transporttest.Options{Storage: b})
		if !r.cold {
			again := r
			if r.before != "" {
				again.body = r.before
			}
			again.do(t, s)
		}
		b.take()
		r.do(t, s)
		cost = b.take()
	})
	return cost
}

func (r request) do(t *testing.T, s *transporttest.Stack) {
	t.Helper()
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+r.path,
		strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer dev:"+string(r.user))
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.Transport(t).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || len(raw) < 50 {
		t.Fatalf("%s: %d %s, %v", r.name, res.StatusCode, raw, err)
	}
}

// TestRequests_table makes each request on each backend, and compares with the table of
// request-costs.md.
func TestRequests_table(t *testing.T) {
	cells := make([][]string, len(requests()))
	for _, open := range []func(*testing.T) backend{openPostgres, openSQLite, openDynamoDB} {
		b := open(t)
		fill(t, b)
		for i, r := range requests() {
			cost := r.meter(t, b)
			if cost.calls == nil {
				cells[i] = append(cells[i], fmt.Sprint(cost.statements))
			} else {
				cells[i] = append(cells[i], cost.kinds(), figure(cost.reads), figure(cost.writes))
			}
		}
	}
	lines := []string{
		"| request | Postgres | SQLite | DynamoDB | read units | write units |",
		"|---|---|---|---|---|---|",
	}
	for i, r := range requests() {
		lines = append(lines, "| "+r.name+" | "+strings.Join(cells[i], " | ")+" |")
	}
	compare(t, "requests", lines)
}

// figure writes a number with commas.
func figure(n float64) string {
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0")
	whole, fraction, point := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + fraction
	}
	return whole
}

const page = "../../../docs/internals/request-costs.md"

// compare compares a table of the page with what was metered. With TIDEMARK_UPDATE it writes the
// table instead.
func compare(t *testing.T, name string, lines []string) {
	t.Helper()
	if t.Failed() {
		return
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin := fmt.Sprintf("<!-- %s: TIDEMARK_UPDATE=1 go test ./test/cost/requests -->\n", name)
	end := fmt.Sprintf("<!-- the end of %s -->\n", name)
	before, rest, begins := strings.Cut(string(text), begin)
	written, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s has no place for %s", page, name)
	}
	want := strings.Join(lines, "\n") + "\n"
	if written == want {
		return
	}
	if os.Getenv("TIDEMARK_UPDATE") == "" {
		t.Errorf("%s says\n%s\nbut metered are\n%s\nTIDEMARK_UPDATE=1 writes that",
			page, written, want)
		return
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
