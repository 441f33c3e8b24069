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
	"github.com/tidemark-im/tidemark/test/services/postgres"
)

const (
	users      = 120
	senders    = 26 // the first users
	socketed   = 6  // of them send over a socket
	singles    = 40 // the last users have one device each
	readers    = 20 // devices without a stream
	groups     = 12
	comings    = 6 // chats in which members come and go
	guests     = 4 // of each
	quietUsers = 3
)

// number is a number of the environment.
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

// world is nodes, what they need, and their clients.
type world struct {
	t       *testing.T
	ctx     context.Context
	seed    uint64
	seconds int
	ledger  *checker.Ledger
	db      *postgres.Server
	url     string // of the database
	redis   redisService
	nodes   []*machine
	proxy   *cluster.Proxy
	http    *http.Client

	logs    []*checker.Log
	devices []*client.Device
	clients sync.WaitGroup
	// home is closed when nobody may be away any more.
	home chan struct{}
	// measuring says that nothing happens but that nodes are killed.
	measuring atomic.Bool
	sending   atomic.Bool
	load      sync.WaitGroup

	chats []string // with much to say
	// quiet are chats in which one message is sent, ever.
	quiet chan string
	// members are those of each chat who stay.
	members map[string][]int

	mu         sync.Mutex // guards what follows
	returned   checker.Waits
	kinds      map[string]*kindTally
	complained int // faults that were printed
}

// machine is a node with its host and its ways.
type machine struct {
	*cluster.Node
	host        *cluster.Host
	direct      *cluster.Proxy // to this node only
	toDatabase  *cluster.Link
	toRedis     *cluster.Link // nil if it goes there without
	mu          sync.Mutex    // held by who does something to it
	interrupted map[*client.Device]bool
	times       int
}

func name(user int) string { return fmt.Sprintf("u%03d", user) }

func newWorld(t *testing.T, redis redisService, seconds int) *world {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TIDEMARK_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("TIDEMARK_SEED is not a number: %v", err)
		}
	}
	w := &world{
		t: t, ctx: t.Context(), seed: seed, seconds: seconds, ledger: checker.NewLedger(),
		redis: redis, db: postgres.Start(t), members: map[string][]int{}, home: make(chan struct{}),
		kinds: map[string]*kindTally{},
		http: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 2 * time.Second},
		},
	}
	t.Logf("TIDEMARK_SEED=%d, %d s, network namespaces: %v", seed, w.seconds, cluster.Isolated())
	w.url = w.db.Database(t)
	dir := t.TempDir()
	var addresses []string
	for i := range number(t, "TIDEMARK_CHAOS_NODES", 3) {
		m := w.machine(i+1, dir)
		w.nodes = append(w.nodes, m)
		addresses = append(addresses, m.Address())
		must(t, m.Start(w.ctx))
	}
	var err error
	w.proxy, err = cluster.NewProxy(addresses...)
	must(t, err)
	t.Cleanup(func() { must(t, w.proxy.Close()) })
	return w
}

// machine makes a node on a host of its own. The clocks of the first two are eight minutes apart: up to ten are allowed for (delivery.md §4).
func (w *world) machine(number int, dir string) *machine {
	w.t.Helper()
	m := &machine{interrupted: map[*client.Device]bool{}}
	var err error
	u, err := url.Parse(w.url)
	must(w.t, err)
	m.toDatabase, err = cluster.NewLink(u.Host)
	must(w.t, err)
	w.t.Cleanup(m.toDatabase.Close)
	u.Host = m.toDatabase.Address()
	ports := map[string][]int{"database": {m.toDatabase.Port()}}
	flags := []string{"--dev", "--migrate", "--store", u.String()}
	if w.redis != nil {
		link, reach, flag, err := w.redis.way()
		must(w.t, err)
		if m.toRedis = link; link != nil {
			w.t.Cleanup(link.Close)
		}
		ports["redis"] = reach
		flags = append(flags, "--redis", flag)
	}
	if cluster.Isolated() {
		m.host, err = cluster.NewHost(number, ports)
		must(w.t, err)
		w.t.Cleanup(func() { must(w.t, m.host.Close()) })
	}
	m.Node = cluster.NewNode(m.host, fmt.Sprint("n", number), freeAddress(w.t),
		os.Getenv(binaryVariable), dir, flags...)
	m.direct, err = cluster.NewProxy(m.Address())
	must(w.t, err)
	w.t.Cleanup(func() { must(w.t, m.direct.Close()) })
	m.Apart = [...]time.Duration{0, 4 * time.Minute, -4 * time.Minute, 0}[min(number, 3)]
	w.t.Cleanup(func() {
		if m.Died() == nil && m.Runs() {
			_ = m.Thaw()
			must(w.t, m.Stop())
		}
		if w.t.Failed() {
			w.t.Logf("the end of the log of %s:\n%s", m.Name, m.Log(3000))
		}
	})
	return m
}

// base is where clients go.
func (w *world) base() string { return "http://" + w.proxy.Address() }

// as makes a request until it is answered with one of the statuses.
func (w *world) as(ctx context.Context, user, method, path string, body any, want ...int) {
	for ctx.Err() == nil {
		status, answer := client.Call(ctx, w.http, w.base(), user, method, path, body)
		if slices.Contains(want, status) {
			return
		}
		if status != 0 && status != http.StatusServiceUnavailable &&
			status != http.StatusTooManyRequests {
			w.ledger.Complain(checker.Refused, "%s %s of %s was answered %d %s",
				method, path, user, status, answer)
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// create makes all chats.
func (w *world) create(random *rand.Rand) {
	quiet := min(w.seconds*10, 3000)
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
	for c := range comings {
		add(fmt.Sprint("c", c), c, c+6, c+12)
	}
	for q := range quiet {
		add(fmt.Sprint("q", q),
			append([]int{random.IntN(senders)}, random.Perm(users)[:quietUsers-1]...)...)
	}
	w.quiet = make(chan string, quiet)
	work := make(chan plan)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for p := range work {
				ids := []string{}
				for _, u := range p.members {
					ids = append(ids, name(u))
				}
				w.as(w.ctx, ids[0], http.MethodPost, "/chats",
					map[string]any{"type": "group", "chat_id": p.id, "member_ids": ids},
					http.StatusCreated, http.StatusConflict)
				w.ledger.Join(p.id, ids...)
			}
		})
	}
	for _, p := range plans {
		work <- p
		w.members[p.id] = p.members
		if strings.HasPrefix(p.id, "q") {
			w.quiet <- p.id
		} else {
			w.chats = append(w.chats, p.id)
		}
	}
	close(work)
	workers.Wait()
	for c := range comings {
		for _, guest := range w.guestsOf(c) {
			w.ledger.Visit(fmt.Sprint("c", c), guest)
		}
	}
}

func (w *world) guestsOf(c int) (ids []string) {
	for g := range guests {
		ids = append(ids, name(20+c*guests+g))
	}
	return ids
}

// connect starts all devices. They go on until end is called.
func (w *world) connect(random *rand.Rand, count int) (end func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	for i := range count {
		user := i % users
		if i >= users {
			user = i % (users - singles)
		}
		d := &client.Device{
			Ledger: w.ledger,
			Base:   w.base(),
			Random: rand.New(rand.NewPCG(w.seed, uint64(1000+i))),
			Mute:   user%10 == 9,
			Home:   w.home,
			Log:    w.ledger.NewLog(fmt.Sprintf("%s/%d", name(user), i/users), name(user)),
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
		d.OnOpen = func() { w.opened(d) }
		w.logs, w.devices = append(w.logs, d.Log), append(w.devices, d)
		if i >= count-readers {
			w.clients.Go(func() { d.Read(ctx) })
		} else {
			w.clients.Go(func() { d.Run(ctx) })
		}
	}
	return func() {
		cancel()
		w.clients.Wait()
	}
}

// opened: a device whose node was killed is back; from now on it is measured until it is whole.
func (w *world) opened(d *client.Device) {
	for _, m := range w.nodes {
		w.mu.Lock()
		was := m.interrupted[d]
		delete(m.interrupted, d)
		w.mu.Unlock()
		if was && w.measuring.Load() {
			d.Log.Await(func(took time.Duration) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.returned.Add(took)
			})
		}
	}
}

// interrupt notes the devices that have a stream at a node, and returns how many.
func (w *world) interrupt(m *machine) (n int) {
	for _, d := range w.devices {
		if local := d.Local(); local != "" && w.proxy.Where(local) == m.Address() {
			w.mu.Lock()
			m.interrupted[d] = true
			w.mu.Unlock()
			n++
		}
	}
	return n
}

// send starts the load. It goes on until stop is called, which waits until everything has been confirmed.
func (w *world) send() (stop func()) {
	w.sending.Store(true)
	for i := range senders {
		s := &client.Sender{
			Ledger: w.ledger,
			Base:   w.base(),
			Name:   name(i),
			User:   name(i),
			Socket: i < socketed,
			Random: rand.New(rand.NewPCG(w.seed, uint64(100+i))),
			HTTP:   w.http,
		}
		var mine, all []string
		for chat, members := range maps.All(w.members) {
			if slices.Contains(members, i) && !strings.HasPrefix(chat, "q") {
				mine = append(mine, chat)
			}
		}
		slices.Sort(mine)
		all = mine
		w.load.Go(func() {
			defer s.Close()
			for w.sending.Load() {
				s.Send(w.ctx, all[s.Random.IntN(len(all))], 0)
				pause(w.ctx, time.Duration(s.Random.Int64N(int64(2*time.Second))))
			}
		})
	}
	w.load.Go(func() { w.whisper(rand.New(rand.NewPCG(w.seed, 7))) })
	w.load.Go(func() { w.comeAndGo(rand.New(rand.NewPCG(w.seed, 8))) })
	return func() {
		w.sending.Store(false)
		w.load.Wait()
	}
}

// whisper sends one message to each of the quiet chats, and leaves two thirds of them for bursts, however long it takes.
func (w *world) whisper(random *rand.Rand) {
	between := max(500*time.Millisecond,
		6*time.Duration(w.seconds)*time.Second/time.Duration(cap(w.quiet)))
	var sends sync.WaitGroup
	defer sends.Wait()
	for n := 0; w.sending.Load(); n++ {
		sends.Go(func() {
			w.once(fmt.Sprint("whisper-", n), w.base(), 0,
				rand.New(rand.NewPCG(w.seed, uint64(10_000+n))))
		})
		pause(w.ctx, time.Duration(random.Int64N(int64(between))))
	}
}

// once sends the one message of a quiet chat, if there is one left: first to a base, with so many tries; later ones go to the balancer.
func (w *world) once(id, first string, tries int, random *rand.Rand) {
	select {
	case chat := <-w.quiet:
		s := &client.Sender{
			Ledger: w.ledger,
			Base:   w.base(),
			First:  first,
			Name:   id,
			User:   name(w.members[chat][0]),
			Random: random,
			HTTP:   w.http,
		}
		s.Send(w.ctx, chat, tries)
	default:
	}
}

// comeAndGo adds members to chats and removes them; in a long run less often, as nobody may join a chat more than tidemark.MaxIntervals times: the average is three fifths of that.
func (w *world) comeAndGo(random *rand.Rand) {
	between := max(600*time.Millisecond,
		time.Duration(w.seconds)*time.Second/(comings*guests*tidemark.MaxIntervals*3/5))
	in := map[string]bool{}
	for w.sending.Load() {
		c := random.IntN(comings)
		guest := w.guestsOf(c)[random.IntN(guests)]
		chat, owner := fmt.Sprint("c", c), name(c)
		where := chat + "/" + guest
		if in[where] {
			w.as(w.ctx, owner, http.MethodDelete, "/chats/"+chat+"/members/"+guest, nil, http.StatusNoContent, http.StatusForbidden) // 403: he is gone already
		} else {
			w.as(w.ctx, owner, http.MethodPost, "/chats/"+chat+"/members",
				map[string]any{"user_ids": []string{guest}}, http.StatusOK)
		}
		in[where] = !in[where]
		pause(w.ctx, time.Duration(random.Int64N(int64(between))))
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	link, err := cluster.NewLink("127.0.0.1:1")
	must(t, err)
	defer link.Close()
	return link.Address()
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
