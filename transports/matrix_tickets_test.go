package transports_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/transports"
)

// ticketTable gives the outcome with a ticket in the query. REST is every call but acknowledge. A
// used ticket has opened the session "its", which a connection still holds.
const ticketTable = `
ticket          session  REST acknowledge SSE     long-poll WebSocket
fresh           none     401  200         new     new       new
fresh           own      401  200         resumed resumed   resumed
fresh           anothers 401  200         new     410       new
used            none     401  200         401     401       4401
used            its      401  200         resumed resumed   resumed
used            own      401  200         401     401       4401
used            anothers 401  200         401     401       4401
unknown         none     401  401         401     401       4401
unknown         own      401  401         401     401       4401
expired         none     401  401         401     401       4401
naming-another  none     401  403D        403D    403D      4403
dev-name        none     401  401         401     401       4401
`

func TestMatrix_tickets(t *testing.T) {
	w, short := newMatrix(t, memory.New(), 0), newMatrix(t, memory.New(), time.Nanosecond)
	for _, r := range rows(t, ticketTable) {
		on := w
		if r.verb == "expired" {
			on = short
		}
		for column, want := range r.want {
			calls := map[string]call{column: {}}
			switch column {
			case "REST":
				calls = apiCalls()
				delete(calls, "acknowledge")
			case "acknowledge":
				calls = map[string]call{"acknowledge": apiCalls()["acknowledge"]}
			}
			for verb, call := range calls {
				c := &cell{people: on.people("group"), w: on, verb: verb}
				c.self = c.owner
				ticket, its, header := on.ticket(r.verb, c.owner)
				session, after := on.named(r.object, c.people, its)
				what := fmt.Sprintf("%s with the ticket %s and the session %s",
					verb, r.verb, r.object)
				var got string
				if call.method != "" {
					if want != "200" {
						c.checkUnchanged(what)
					}
					got = outcome(on.do(call.method,
						transports.BasePath+c.fill(call.path)+"?ticket="+ticket, c.fill(call.body),
						header))
				} else {
					got = on.open(verb, session, after, ticket, header)
				}
				on.cells++
				if got != want {
					t.Errorf("%s: %s, want %s", what, got, want)
				}
			}
		}
	}
	w.end()
	short.end()
	t.Logf("%d cells", w.cells+short.cells)
}

// ticket returns a ticket of a kind, the session that it opened, and the header to send with it.
func (w *matrix) ticket(
	kind string, user tidemark.UserID,
) (ticket string, its tidemark.SessionID, header http.Header) {
	w.t.Helper()
	switch kind {
	case "unknown":
		return "NOSUCHTICKETNOSUCHTICKETNO", "", nil
	case "dev-name":
		return "dev:" + string(user), "", nil
	}
	res, raw := w.do("POST", transports.BasePath+"/tickets", "", w.token(user))
	var made struct{ Ticket string }
	if err := json.Unmarshal(raw, &made); err != nil || res.StatusCode != 201 {
		w.t.Fatalf("a ticket: %d %s", res.StatusCode, raw)
	}
	switch kind {
	case "used":
		_, open, code := w.socket("?ticket="+made.Ticket, nil)
		if open == nil {
			w.t.Fatalf("using a ticket: closed with %d", code)
		}
		its = tidemark.SessionID(open["session_id"].(string))
	case "naming-another":
		header = http.Header{"X-User-Id": {"somebody"}}
	}
	return made.Ticket, its, header
}
