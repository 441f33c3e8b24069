package dollars

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// These tests compute docs/cost.md: what DynamoDB costs, in dollars. They use the units that each
// operation takes (storage/dynamodb/README.md), those that the core reads besides
// (docs/internals/request-costs.md), and the prices below. Both pages have what other tests meter.

// Prices of us-east-1, in dollars, without tax, free tier, reservations or discounts. After a
// change, TIDEMARK_UPDATE=1 rewrites docs/cost.md.
const (
	perMillionWrites = 0.625 // on demand, standard tables, since November 2024
	perMillionReads  = 0.125
	perGBMonth       = 0.25 // beyond the first 25 GB, which are free
	perGBRecovery    = 0.20 // point-in-time recovery, a month

	fargateCPU, fargateGB = 0.04048, 0.004445 // an hour, x86
	balancerHour, unitLCU = 0.0225, 0.008     // an hour
	addressHour           = 0.005             // a public IPv4 address
	alarmMetric           = 0.10              // a month and metric
	secretMonth           = 0.40
	hours                 = 730 // of a month

	smallMachine    = 0.0336 // an hour of a t4g.medium, 2 cores and 4 GiB
	diskGBMonth     = 0.08   // gp3
	managedPostgres = 0.129  // an hour of db.t4g.medium on RDS in two zones
	managedGBMonth  = 0.23   // its disk, in two zones
)

// units are read and write request units.
type units struct{ reads, writes float64 }

func (u units) plus(v units) units {
	return units{u.reads + v.reads, u.writes + v.writes}
}
func (u units) times(n float64) units        { return units{u.reads * n, u.writes * n} }
func (u units) dollars(times float64) string { return money(u.price() * times) }
func (u units) price() float64 {
	return (u.reads*perMillionReads + u.writes*perMillionWrites) / 1e6
}

// tables are the tables of storage/dynamodb/README.md, and what the core reads beside messages by
// docs/internals/request-costs.md.
type tables struct {
	t     *testing.T
	costs map[string]units
	sizes map[string]float64
}

func readTables(t *testing.T) *tables {
	t.Helper()
	page, err := os.ReadFile("../../../storage/dynamodb/README.md")
	if err != nil {
		t.Fatal(err)
	}
	read := &tables{t: t, costs: map[string]units{}, sizes: map[string]float64{}}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		name := strings.TrimSpace(cells[0])
		if strings.HasPrefix(name, "`") && len(cells) == 5 {
			read.costs[strings.ReplaceAll(name, "`", "")] = units{
				number(cells[2]), number(cells[3]),
			}
		}
		if strings.HasPrefix(name, "`") && len(cells) == 2 {
			read.sizes[strings.Trim(name, "`")] = number(cells[1])
		}
	}
	read.beside()
	return read
}

// beside reads what the core reads beside messages.
func (read *tables) beside() {
	read.t.Helper()
	page, err := os.ReadFile("../../../docs/internals/request-costs.md")
	if err != nil {
		read.t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- beside:")
	table, _, _ = strings.Cut(table, "<!-- the end of beside -->")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) == 4 {
			name := strings.ReplaceAll(strings.TrimSpace(cells[0]), "`", "")
			read.costs[name] = units{number(cells[2]), number(cells[3])}
		}
	}
}

// number reads a cell. A cell that is no number is NaN, which equals nothing.
func number(cell string) float64 {
	n, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(cell), ",", ""), 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

func (read *tables) cost(operation string) units {
	read.t.Helper()
	u, found := read.costs[operation]
	if !found || math.IsNaN(u.reads+u.writes) {
		read.t.Fatalf("neither storage/dynamodb/README.md nor request-costs.md says what %s costs",
			operation)
	}
	return u
}

// stored returns the bytes that DynamoDB bills for an item: its own and a hundred more.
func (read *tables) stored(table string) float64 {
	read.t.Helper()
	size, found := read.sizes[table]
	if !found || math.IsNaN(size) {
		read.t.Fatalf("storage/dynamodb/README.md does not say how large an item of %s is", table)
	}
	return size + 100
}

// receipt is the size of the item that a naive design writes for each message and recipient: two
// ids, two times, and their names.
const receipt = 36 + 36 + 2*13 + 40

// A traffic is how a chat is used.
type traffic struct {
	name string
	// members counts the chat's members, the author included. offline counts those who are away
	// while the messages arrive, and return once.
	members, offline float64
	// batch is how many messages share a transaction. covered is how many share an acknowledgement,
	// and so a read.
	batch, covered float64
}

// message returns the cost of one message of a traffic: stored, acknowledged and read by all
// members.
func (read *tables) message(c traffic) units {
	append1, append10 := read.cost("Append"), read.cost("Append of 10 to one chat").times(0.1)
	sent := append1
	if c.batch > 1 {
		sent = append10
	}
	// The author's own watermark follows their messages, as fast as others acknowledge.
	sum := sent.plus(read.cost("Advance, of the author").times(1 / c.covered))
	online := c.members - 1 - c.offline
	watermarks := read.cost("Advance").plus(read.cost("Advance, read as well"))
	sum = sum.plus(watermarks.times(online / c.covered))
	if c.offline == 0 {
		return sum
	}
	// A larger chat has no pending rows; the head is compared.
	if c.members <= largeAbove {
		marked := read.cost("Mark of one that stands").plus(read.cost("Mark").
			plus(read.cost("Clear, through the head")).times(1 / c.covered))
		sum = sum.plus(marked.times(c.offline))
	}
	// The two reads are the user's row of the list, and the state or head.
	back := watermarks.plus(read.cost("Ranges, 50 messages").
		times(math.Max(c.covered/50, 1.0/6))).plus(units{reads: 2})
	return sum.plus(back.times(c.offline / c.covered))
}

// largeAbove is tidemark.PendingFanoutLimit.
const largeAbove = 500

// naive returns the cost of the same message with a receipt for each recipient, written on delivery
// and again on reading.
func (read *tables) naive(c traffic) units {
	sent := read.cost("Append")
	if c.batch > 1 {
		sent = read.cost("Append of 10 to one chat").times(0.1)
	}
	return sent.plus(units{writes: 2 * (c.members - 1)})
}

func TestDollars_of_messages(t *testing.T) {
	read := readTables(t)
	lines := []string{
		"| a million messages | write units of one | read units | dollars | with receipts | |",
		"|---|---|---|---|---|---|",
	}
	for _, c := range []traffic{
		{"1:1, one by one", 2, 0, 1, 1},
		{"1:1, in tens", 2, 0, 10, 10},
		{"1:1, to a user who returns to 10", 2, 1, 1, 10},
		{"group of 10, one by one", 10, 0, 1, 1},
		{"group of 10, in tens", 10, 0, 10, 10},
		{"group of 10, half of them return to 50", 10, 5, 10, 50},
		{"group of 100, one by one", 100, 0, 1, 1},
		{"group of 100, in tens", 100, 0, 10, 10},
		{"group of 100, half of them return to 50", 100, 50, 10, 50},
		{"group of 1,000, in tens", 1000, 0, 10, 10},
		{"group of 1,000, nine tenths of them return to 50", 1000, 900, 10, 50},
	} {
		ours, theirs := read.message(c), read.naive(c)
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s | %s times |",
			c.name, digits(ours.writes), digits(ours.reads), ours.dollars(1e6),
			theirs.dollars(1e6), digits(theirs.price()/ours.price())))
	}
	compare(t, "messages", lines)
}

// The rows of what the core reads beside messages.
const (
	seen         = "seen_sequence of a reply to the last message"
	seenMissed   = "… on a node that did not get that message"
	seenBefore   = "… to one before an own message that was not read"
	aggregate100 = "the aggregate of a group of 100"
	aggregate1k  = "the aggregate of a group of 1,000"
	snapshot     = "the snapshot of an open stream, 50 of 100 direct chats"
	groups       = "the snapshot of an open stream, 50 groups of 10"
)

// aggregatesAnHour is how many aggregates of a group a node computes at most in an hour: one a
// second (Config.AggregateInterval).
const aggregatesAnHour = 3600

// moves returns how often watermarks move for one message to a group of n in which everyone is
// connected and acknowledges in tens: all but the author acknowledge and read.
func moves(n float64) float64 { return (2*(n-1) + 1) / 10 }

func TestDollars_of_statuses(t *testing.T) {
	read := readTables(t)
	lines := []string{
		"| what | read units of one | dollars for a million |", "|---|---|---|",
	}
	row := func(name string, u units) {
		lines = append(lines,
			fmt.Sprintf("| %s | %s | %s |", name, digits(u.reads), u.dollars(1e6)))
	}
	row("`seen_sequence` of a reply to the last message", read.cost(seen))
	row("… on a node that did not get that message", read.cost(seenMissed))
	row("… to one before an own message that was not read", read.cost(seenBefore))
	row("an aggregate of a group of 100", read.cost(aggregate100))
	row("… of a group of 1,000", read.cost(aggregate1k))
	row("a message to a group of 100, in tens: its aggregates, at most",
		read.cost(aggregate100).times(moves(100)))
	row("… to a group of 1,000", read.cost(aggregate1k).times(moves(1000)))
	row("an open stream: the snapshot of 50 direct chats", read.cost(snapshot))
	row("… of 50 groups of 10", read.cost(groups))
	lines = append(lines, "", fmt.Sprintf("An hour with an aggregate a second, the most that a "+
		"node computes for a group, costs\n%s dollars with 100 members, and %s with 1,000.",
		read.cost(aggregate100).dollars(aggregatesAnHour),
		read.cost(aggregate1k).dollars(aggregatesAnHour)))
	compare(t, "statuses", lines)
}

// A day of a user, from which the table of users is computed.
const (
	// Messages that a user sends: 1:1, to a group of 10, to a group of 100.
	direct, small, middling = 20.0, 5.0, 1.0
	// How often they open the application.
	sessions = 8.0
	// Chats that are pending then.
	pendingChats = 3.0
	// The share of messages to them that arrives while they are connected, in tens.
	onlineShare = 0.2
	days        = 30.0
)

func received() float64 { return direct + small*9 + middling*99 }

// moved returns how often a user's watermarks move in the group of 100: with their own messages,
// and by an acknowledgement and a read of each ten while connected, and of each return.
func moved() float64 { return middling + 2*(middling*99*onlineShare/10+sessions) }

func TestDollars_of_users(t *testing.T) {
	read := readTables(t)
	sent, got := direct+small+middling, received()
	away := got * (1 - onlineShare)
	advances := read.cost("Advance").plus(read.cost("Advance, read as well"))
	parts := []struct {
		name string
		units
	}{
		{"sending, and the own watermark",
			read.cost("Append").plus(read.cost("Advance, of the author")).times(sent)},
		{"receiving while connected: acknowledged, and read",
			advances.times(got * onlineShare / 10)},
		{"receiving while away: a look at the pending row",
			read.cost("Mark of one that stands").times(away)},
		{"… written once for each chat and absence, and cleared",
			read.cost("Mark").plus(read.cost("Clear, through the head")).
				times(sessions * pendingChats)},
		{"coming back: pending rows, members, messages",
			read.cost("PendingOf, none").plus(units{reads: 1 + 2 + 1}.times(pendingChats)).
				times(sessions)},
		{"… acknowledged, and read", advances.times(sessions * pendingChats)},
		{"the list of 50 chats, each time the app opens",
			read.cost("ChatsOf, 20 of 50").times(sessions)},
		{"the statuses of 50 direct chats, each time the app opens",
			read.cost(snapshot).times(sessions)},
		{"aggregates of the group of 100, when the own watermarks move",
			read.cost(aggregate100).times(moved())},
	}
	lines := []string{
		"| a day of one user | write units | read units | dollars a month for 1,000 users |",
		"|---|---|---|---|",
	}
	var sum units
	row := func(name string, u units) {
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |",
			name, digits(u.writes), digits(u.reads), u.dollars(1000*days)))
	}
	for _, part := range parts {
		row(part.name, part.units)
		sum = sum.plus(part.units)
	}
	row("**all of it**", sum)
	row("the same with a receipt for each message and recipient",
		read.cost("Append").times(sent).plus(units{writes: 2 * got}).plus(parts[6].units))
	stored := func(each float64) string { return money(each * 1000 * days / 1e9 * perGBMonth) }
	lines = append(lines,
		fmt.Sprintf("| storage of a month's messages, each month | | | %s |",
			stored(sent*read.stored("messages"))),
		fmt.Sprintf("| … of a month's receipts | | | %s |", stored(got*(receipt+100))))
	compare(t, "users", lines)
}

func TestDollars_of_storage(t *testing.T) {
	read := readTables(t)
	lines := []string{
		"| what is kept | GB | dollars a month | with recovery |", "|---|---|---|---|",
	}
	row := func(name string, bytes float64) {
		gb := bytes / 1e9
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |",
			name, digits(gb), money(gb*perGBMonth), money(gb*(perGBMonth+perGBRecovery))))
	}
	row("a million messages of 200 bytes", 1e6*read.stored("messages"))
	row("their idempotency keys, for 8 days", 1e6*read.stored("idempotency_keys"))
	row("a million memberships, with their watermarks",
		1e6*(read.stored("chat_memberships")+read.stored("delivery_state")))
	row("a million chats", 1e6*read.stored("chat_counters"))
	row("receipts of a million messages in groups of 10", 9e6*(receipt+100))
	row("… in groups of 100", 99e6*(receipt+100))
	compare(t, "storage", lines)
}

func TestDollars_of_machines(t *testing.T) {
	read := readTables(t)
	fargate := hours * (fargateCPU + 2*fargateGB)
	balancer, addresses := hours*(balancerHour+unitLCU), 3*hours*addressHour
	const metrics = 6*2 + 6 + 5
	watching := metrics*alarmMetric + secretMonth
	stack := fargate + balancer + addresses + watching
	machine := hours*smallMachine + 100*diskGBMonth
	managed := hours*managedPostgres + 100*managedGBMonth
	chat := read.message(traffic{"", 2, 0, 1, 1})
	lines := []string{
		"| part | dollars a month | 1:1 messages for the same money |", "|---|---|---|",
	}
	row := func(name string, dollars float64) {
		lines = append(lines, fmt.Sprintf("| %s | %s | %s million |",
			name, money(dollars), digits(dollars/chat.price()/1e6)))
	}
	row("the task: one core and 2 GiB on Fargate", fargate)
	row("the load balancer, with one unit of capacity", balancer)
	row("three public addresses: two of the load balancer, one of the task", addresses)
	row("alarms and the secret", watching)
	row("**the stack of deploy/aws, before the first message**", stack)
	row("SQLite instead: 2 cores, 4 GiB, 100 GB of disk, server included", machine)
	row("Postgres instead: RDS in two zones, 2 cores, 4 GiB, 100 GB, no server", managed)
	compare(t, "machines", lines)
}

func TestDollars_prices(t *testing.T) {
	row := func(what string, price float64) string {
		return fmt.Sprintf("| %s | %s |", what, strconv.FormatFloat(price, 'f', -1, 64))
	}
	compare(t, "prices", []string{
		"| us-east-1, on demand | dollars |", "|---|---|",
		row("a million write request units", perMillionWrites),
		row("a million read request units", perMillionReads),
		row("storage, a GB and month, beyond the first 25", perGBMonth),
		row("point-in-time recovery, a GB and month", perGBRecovery),
		row("Fargate, a core and hour", fargateCPU), row("… a GiB and hour", fargateGB),
		row("Application Load Balancer, an hour", balancerHour),
		row("… a unit of its capacity and hour", unitLCU),
		row("a public address, an hour", addressHour),
		row("an alarm's metric, a month", alarmMetric), row("a secret, a month", secretMonth),
		row("EC2 t4g.medium, an hour", smallMachine),
		row("its disk (gp3), a GB and month", diskGBMonth),
		row("RDS for Postgres, db.t4g.medium in two zones, an hour", managedPostgres),
		row("its disk (gp3), a GB and month", managedGBMonth),
	})
}

func TestDollars_assumptions(t *testing.T) {
	text := fmt.Sprintf("A user sends %s messages a day to one other, %s to a group of 10 and "+
		"%s to a group of 100. So they\n"+
		"receive %s. A part of %s arrives while they are connected. They open the "+
		"application %s times a\n"+
		"day, and find %s chats pending. Nobody sends in batches.",
		digits(direct), digits(small), digits(middling), digits(received()),
		digits(onlineShare), digits(sessions), digits(pendingChats))
	compare(t, "assumptions", strings.Split(text, "\n"))
}

// money formats dollars with three significant digits, and at least with cents.
func money(dollars float64) string {
	if dollars >= 100 {
		return grouped(math.Round(dollars))
	}
	if dollars >= 10 {
		return strconv.FormatFloat(dollars, 'f', 1, 64)
	}
	return strconv.FormatFloat(dollars, 'f', 2, 64)
}

// digits formats a number with about three digits.
func digits(n float64) string {
	if n >= 100 {
		return grouped(math.Round(n))
	}
	places := 1
	if n < 10 {
		places = 2
	}
	text := strconv.FormatFloat(n, 'f', places, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

func grouped(n float64) string {
	text := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// compare compares a part of docs/cost.md with the computed lines. With TIDEMARK_UPDATE it writes
// the part instead.
func compare(t *testing.T, name string, lines []string) {
	t.Helper()
	const page = "../../../docs/cost.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin := fmt.Sprintf("<!-- %s: TIDEMARK_UPDATE=1 go test ./test/cost/dollars -->\n", name)
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
		t.Errorf("%s says\n%s\nbut computed are\n%s\nTIDEMARK_UPDATE=1 writes that",
			page, written, want)
		return
	}
	if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
