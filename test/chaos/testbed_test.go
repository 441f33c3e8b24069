package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/chaos/checker"
	"github.com/tidemark-im/tidemark/test/chaos/client"
	"github.com/tidemark-im/tidemark/test/chaos/cluster"
	"github.com/tidemark-im/tidemark/test/services/ports"
	"github.com/tidemark-im/tidemark/test/services/postgres"
)

const (
	users         = 120
	senders       = 26 // the first users
	socketSenders = 6  // of them send over a socket
	singles       = 40 // the last users have one device each
	readers       = 20 // devices without a stream
	groups        = 12
	changingChats = 6 // chats whose members join and leave
	guests        = 4 // of each of these chats
	quietUsers    = 3
)

// number returns a number from the environment.
func number(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is not a number: %v", variable, err)
	}
	return n
}

// testbed is the nodes of a run, the services that they use, and their clients.
type testbed struct {
	t       *testing.T
	ctx     context.Context
	seed    uint64
	seconds int
	ledger  *checker.Ledger
	db      *postgres.Server
	url     string // of the database
	redis   redisService
	// direct says that the nodes have no Redis and reach each other (--cluster postgres).
	direct bool
	nodes  []*machine
	proxy  *cluster.Proxy
	http   *http.Client

	logs    []*checker.Log
	devices []*client.Device
	clients sync.WaitGroup
	// stayConnected is closed when no device may be away any longer.
	stayConnected chan struct{}
	// measuring reports that no fault but the kill of a node happens.
	measuring atomic.Bool
	// late says that leases ran out before the first fault, because the machine was too slow.
	late    bool
	sending atomic.Bool
	load    sync.WaitGroup

	chats []string // with many messages
	// quiet are chats in which only one message is ever sent.
	quiet chan string
	// members are the permanent members of each chat.
	members map[string][]int

	mu         sync.Mutex // guards the fields below
	returned   checker.Waits
	kinds      map[string]*kindTally
	complained int // faults that were printed
}

// machine is a node with its host and its connections.
type machine struct {
	*cluster.Node
	host        *cluster.Host
	direct      *cluster.Proxy // to this node only
	toDatabase  *cluster.Link
	toRedis     *cluster.Link // nil if the connection is direct
	fromNodes   *cluster.Link // by which other nodes reach it, nil with Redis
	mu          sync.Mutex    // held while a fault changes the node
	interrupted map[*client.Device]bool
	times       int
}

func name(user int) string { return fmt.Sprintf("u%03d", user) }

func newTestbed(t *testing.T, redis redisService, seconds int) *testbed {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TIDEMARK_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("TIDEMARK_SEED is not a number: %v", err)
		}
	}
	b := &testbed{
		t: t, ctx: t.Context(), seed: seed, seconds: seconds, ledger: checker.NewLedger(),
		redis: redis, direct: direct(), db: postgres.Start(t), members: map[string][]int{},
		stayConnected: make(chan struct{}),
		kinds:         map[string]*kindTally{},
		http: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 2 * time.Second},
		},
	}
	t.Logf("TIDEMARK_SEED=%d, %d s, network namespaces: %v", seed, b.seconds, cluster.Isolated())
	b.url = b.db.Database(t)
	dir := t.TempDir()
	var addresses []string
	for i := range number(t, "TIDEMARK_CHAOS_NODES", 3) {
		m := b.machine(i+1, dir)
		b.nodes = append(b.nodes, m)
		addresses = append(addresses, m.Address())
		must(t, m.Start(b.ctx))
	}
	var err error
	b.proxy, err = cluster.NewProxy(addresses...)
	must(t, err)
	t.Cleanup(func() { must(t, b.proxy.Close()) })
	return b
}

// machine makes a node on a host of its own. The clocks of the first two are eight minutes apart:
// up to ten are allowed (delivery.md §4).
func (b *testbed) machine(number int, dir string) *machine {
	b.t.Helper()
	m := &machine{interrupted: map[*client.Device]bool{}}
	var err error
	u, err := url.Parse(b.url)
	must(b.t, err)
	m.toDatabase, err = cluster.NewLink(u.Host)
	must(b.t, err)
	b.t.Cleanup(m.toDatabase.Close)
	u.Host = m.toDatabase.Address()
	ports := map[string][]int{"database": {m.toDatabase.Port()}}
	flags := []string{"--dev", "--migrate", "--store", u.String()}
	if b.redis != nil {
		link, reach, flag, err := b.redis.route()
		must(b.t, err)
		if m.toRedis = link; link != nil {
			b.t.Cleanup(link.Close)
		}
		ports["redis"] = reach
		flags = append(flags, "--redis", flag)
	}
	if b.direct {
		own := freeAddress(b.t)
		m.fromNodes, err = cluster.NewLink(own)
		must(b.t, err)
		b.t.Cleanup(m.fromNodes.Close)
		flags = append(flags, "--cluster", "postgres", "--cluster-listen", own,
			"--cluster-advertise", m.fromNodes.Address())
	}
	if cluster.Isolated() {
		m.host, err = cluster.NewHost(number, ports)
		must(b.t, err)
		b.t.Cleanup(func() { must(b.t, m.host.Close()) })
	}
	m.Node = cluster.NewNode(m.host, fmt.Sprint("n", number), freeAddress(b.t),
		os.Getenv(binaryVariable), dir, flags...)
	m.direct, err = cluster.NewProxy(m.Address())
	must(b.t, err)
	b.t.Cleanup(func() { must(b.t, m.direct.Close()) })
	m.Apart = [...]time.Duration{0, 4 * time.Minute, -4 * time.Minute, 0}[min(number, 3)]
	b.t.Cleanup(func() {
		if m.Died() == nil && m.Runs() {
			_ = m.Thaw()
			must(b.t, m.Stop())
		}
		if b.t.Failed() {
			b.t.Logf("the end of the log of %s:\n%s", m.Name, m.Log(3000))
		}
	})
	return m
}

// base returns the URL for clients.
func (b *testbed) base() string { return "http://" + b.proxy.Address() }

// as makes a request until it is answered with one of the statuses.
func (b *testbed) as(ctx context.Context, user, method, path string, body any, want ...int) {
	for ctx.Err() == nil {
		status, answer := client.Call(ctx, b.http, b.base(), user, method, path, body)
		if slices.Contains(want, status) {
			return
		}
		if status != 0 && status != http.StatusServiceUnavailable &&
			status != http.StatusTooManyRequests {
			b.ledger.Complain(checker.Refused, "%s %s of %s was answered %d %s",
				method, path, user, status, answer)
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// create makes all chats.
func (b *testbed) create(random *rand.Rand) {
	quiet := min(b.seconds*10, 3000)
	type plan struct {
		id      string
		members []int
	}
	var plans []plan
	add := func(id string, members ...int) { plans = append(plans, plan{id, members}) }
	for u := range senders {
		add(fmt.Sprint("d", u), u, senders+u)
	}
	for g := range groups {
		add(fmt.Sprint("g", g), append([]int{g}, random.Perm(users)[:7]...)...)
	}
	for c := range changingChats {
		add(fmt.Sprint("c", c), c, c+6, c+12)
	}
	for q := range quiet {
		add(fmt.Sprint("q", q),
			append([]int{random.IntN(senders)}, random.Perm(users)[:quietUsers-1]...)...)
	}
	b.quiet = make(chan string, quiet)
	work := make(chan plan)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for p := range work {
				ids := []string{}
				for _, u := range p.members {
					ids = append(ids, name(u))
				}
				b.as(b.ctx, ids[0], http.MethodPost, "/chats",
					map[string]any{"type": "group", "chat_id": p.id, "member_ids": ids},
					http.StatusCreated, http.StatusConflict)
				b.ledger.Join(p.id, ids...)
			}
		})
	}
	for _, p := range plans {
		work <- p
		b.members[p.id] = p.members
		if strings.HasPrefix(p.id, "q") {
			b.quiet <- p.id
		} else {
			b.chats = append(b.chats, p.id)
		}
	}
	close(work)
	workers.Wait()
	for c := range changingChats {
		for _, guest := range b.guestsOf(c) {
			b.ledger.Visit(fmt.Sprint("c", c), guest)
		}
	}
}

func (b *testbed) guestsOf(c int) (ids []string) {
	for g := range guests {
		ids = append(ids, name(20+c*guests+g))
	}
	return ids
}

// connect starts all devices. They go on until end is called.
func (b *testbed) connect(random *rand.Rand, count int) (end func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	for i := range count {
		user := i % users
		if i >= users {
			user = i % (users - singles)
		}
		d := &client.Device{
			Ledger:        b.ledger,
			Base:          b.base(),
			Random:        rand.New(rand.NewPCG(b.seed, uint64(1000+i))),
			Mute:          user%10 == 9,
			StayConnected: b.stayConnected,
			Log:           b.ledger.NewLog(fmt.Sprintf("%s/%d", name(user), i/users), name(user)),
		}
		single := user >= users-singles
		d.Log.Only = single
		if i%3 > 0 || single {
			d.Name = fmt.Sprint("device-", i)
		}
		switch {
		case i%4 > 0 && !single:
			d.Stays = time.Duration(1+random.IntN(20)) * time.Second
		case single:
			d.Stays = 8 * time.Second
		}
		if single {
			d.Leaves = 4 * time.Second
		} else if i%5 == 0 {
			d.Away = 10 * time.Second
		}
		d.OnOpen = func() { b.opened(d) }
		b.logs, b.devices = append(b.logs, d.Log), append(b.devices, d)
		switch {
		case i >= count-readers:
			b.clients.Go(func() { d.Read(ctx) })
		case i%3 == 1 && !d.Mute:
			d.Log.Others = true
			b.clients.Go(func() { d.Follow(ctx) })
		default:
			b.clients.Go(func() { d.Run(ctx) })
		}
	}
	return func() {
		cancel()
		b.clients.Wait()
	}
}

// opened starts a measurement for a device whose node was killed: from its new connection until it
// is complete.
func (b *testbed) opened(d *client.Device) {
	for _, m := range b.nodes {
		b.mu.Lock()
		was := m.interrupted[d]
		delete(m.interrupted, d)
		b.mu.Unlock()
		if was && b.measuring.Load() {
			d.Log.Await(func(took time.Duration) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.returned.Add(took)
			})
		}
	}
}

// interrupt notes the devices that have a stream at a node, and returns how many.
func (b *testbed) interrupt(m *machine) (n int) {
	for _, d := range b.devices {
		if local := d.Local(); local != "" && b.proxy.Where(local) == m.Address() {
			b.mu.Lock()
			m.interrupted[d] = true
			b.mu.Unlock()
			n++
		}
	}
	return n
}

// send starts the load. It goes on until stop is called, which waits until every message is
// confirmed.
func (b *testbed) send() (stop func()) {
	b.sending.Store(true)
	for i := range senders {
		s := &client.Sender{
			Ledger: b.ledger,
			Base:   b.base(),
			Name:   name(i),
			User:   name(i),
			Socket: i < socketSenders,
			Random: rand.New(rand.NewPCG(b.seed, uint64(100+i))),
			HTTP:   b.http,
		}
		var mine, all []string
		for chat, members := range maps.All(b.members) {
			if slices.Contains(members, i) && !strings.HasPrefix(chat, "q") {
				mine = append(mine, chat)
			}
		}
		slices.Sort(mine)
		all = mine
		b.load.Go(func() {
			defer s.Close()
			for b.sending.Load() {
				s.Send(b.ctx, all[s.Random.IntN(len(all))], 0)
				pause(b.ctx, time.Duration(s.Random.Int64N(int64(2*time.Second))))
			}
		})
	}
	b.load.Go(func() { b.sendQuiet(rand.New(rand.NewPCG(b.seed, 7))) })
	b.load.Go(func() { b.joinAndLeave(rand.New(rand.NewPCG(b.seed, 8))) })
	return func() {
		b.sending.Store(false)
		b.load.Wait()
	}
}

// sendQuiet sends one message to each of the quiet chats, spread over the run. It leaves two thirds
// of the chats for bursts.
func (b *testbed) sendQuiet(random *rand.Rand) {
	between := max(500*time.Millisecond,
		6*time.Duration(b.seconds)*time.Second/time.Duration(cap(b.quiet)))
	var sends sync.WaitGroup
	defer sends.Wait()
	for n := 0; b.sending.Load(); n++ {
		sends.Go(func() {
			b.once(fmt.Sprint("whisper-", n), b.base(), 0,
				rand.New(rand.NewPCG(b.seed, uint64(10_000+n))))
		})
		pause(b.ctx, time.Duration(random.Int64N(int64(between))))
	}
}

// once sends the one message of a quiet chat, if there is one left. The first attempts go to the
// given URL, later ones to the balancer.
func (b *testbed) once(id, first string, tries int, random *rand.Rand) {
	select {
	case chat := <-b.quiet:
		s := &client.Sender{
			Ledger: b.ledger,
			Base:   b.base(),
			First:  first,
			Name:   id,
			User:   name(b.members[chat][0]),
			Random: random,
			HTTP:   b.http,
		}
		s.Send(b.ctx, chat, tries)
	default:
	}
}

// joinAndLeave adds members to chats and removes them. A long run does so less often, as nobody may
// join a chat more than tidemark.MaxIntervals times: the average is three fifths of that.
func (b *testbed) joinAndLeave(random *rand.Rand) {
	between := max(600*time.Millisecond,
		time.Duration(b.seconds)*time.Second/(changingChats*guests*tidemark.MaxIntervals*3/5))
	in := map[string]bool{}
	for b.sending.Load() {
		c := random.IntN(changingChats)
		guest := b.guestsOf(c)[random.IntN(guests)]
		chat, owner := fmt.Sprint("c", c), name(c)
		where := chat + "/" + guest
		if in[where] {
			b.as(b.ctx, owner, http.MethodDelete, "/chats/"+chat+"/members/"+guest, nil,
				http.StatusNoContent, http.StatusForbidden) // 403: the guest is gone already
		} else {
			b.as(b.ctx, owner, http.MethodPost, "/chats/"+chat+"/members",
				map[string]any{"user_ids": []string{guest}}, http.StatusOK)
		}
		in[where] = !in[where]
		pause(b.ctx, time.Duration(random.Int64N(int64(between))))
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := ports.FreeAddress()
	must(t, err)
	return address
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
