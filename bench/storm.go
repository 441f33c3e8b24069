package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// Storm is the mode storm: connections of all transports under a load of sends, whose server is told to stop (SIGTERM) and started again. What is measured is
// the stop, and how its clients come back; that nothing is lost, doubled or out of order is checked. The first --pid is the server's.
type Storm struct {
	Connections    int    `default:"300" help:"Number of connections, a third of each transport, each of its own user."`
	ChatSize       int    `default:"5" help:"How many of them are in one chat."`
	RestartCommand string `placeholder:"COMMAND" help:"Shell command that starts the server again; it is ended with the run. Without it somebody else has to start the server."`

	survivors []*survivor
	senders   []*persistent
	chats     []stormChat
	// server is what RestartCommand started.
	server *exec.Cmd

	// The moments of the run: SIGTERM, the end of the process, and when the new one was ready.
	signalled, ended, ready time.Duration
	// over says that the old server has ended: who connects now connects to the new one.
	over    atomic.Bool
	whole   atomic.Int64
	told    atomic.Int64
	wholeAt measure.Histogram
	// returns are when clients first tried to come back, and attempts when they tried at all, by stormStep since SIGTERM.
	returns, attempts [stormSteps]atomic.Int64
	peak              int64
}

// stormChat is what was confirmed in one chat. It belongs to one sender, but for count.
type stormChat struct {
	id     string
	count  atomic.Int64
	digest uint64
}

const (
	stormStep    = 500 * time.Millisecond
	stormSteps   = 40
	stormSenders = 8
	// stormRate is the number of sends a second if the load does not say.
	stormRate = 200
)

func (s *Storm) describe() (name, settings string) {
	return "storm", fmt.Sprintf("%d connections, chats of %d, the server stopped and started again", s.Connections, s.ChatSize)
}

func (s *Storm) prepare(r *run) error {
	if s.Connections < 1 || s.ChatSize < 1 {
		return errors.New("connections and chat-size must be at least 1")
	}
	if len(r.targets) != 1 {
		return errors.New("storm stops the server: it takes one URL")
	}
	if len(r.load.PIDs) == 0 {
		return errors.New("storm stops the server: name its process by --pid")
	}
	if r.load.Rate == 0 {
		r.load.Rate = stormRate
	}
	s.chats = make([]stormChat, (s.Connections+s.ChatSize-1)/s.ChatSize)
	for i := range stormSenders {
		user := r.name("f", i)
		s.senders = append(s.senders, &persistent{run: r, user: user, random: rand.New(rand.NewPCG(uint64(i), 0))})
	}
	for i := range s.chats {
		s.chats[i].id = r.name("c", i)
		sender := s.senders[i%stormSenders]
		sender.chats = append(sender.chats, &s.chats[i])
	}
	for i := range s.Connections {
		s.survivors = append(s.survivors, newSurvivor(r, s, i))
	}
	if err := parallel(r.ctx, len(s.chats), setupLimit, func(i int) error { return s.create(r, i) }); err != nil {
		return err
	}
	for _, c := range s.survivors {
		r.goroutine(c.live)
	}
	return r.await(func() string {
		for _, c := range s.survivors {
			if !c.caughtUp.Load() {
				return c.endpoint.User + " is not connected and caught up"
			}
		}
		return ""
	})
}

func (s *Storm) create(r *run, i int) error {
	sender := s.senders[i%stormSenders]
	members := []string{sender.user}
	for k := i * s.ChatSize; k < min((i+1)*s.ChatSize, s.Connections); k++ {
		members = append(members, s.survivors[k].endpoint.User)
	}
	conn := r.as(sender.user)
	defer conn.Close()
	return r.createChat(conn, "group", s.chats[i].id, members)
}

func (s *Storm) apply(r *run) error {
	pid := r.load.PIDs[0]
	r.load.PIDs = nil // it will have ended
	sending, enough := context.WithCancel(r.ctx)
	defer enough()
	for _, sender := range s.senders {
		interval := time.Duration(float64(len(s.senders)) / r.load.Rate * float64(time.Second))
		r.sending(func() error { return sender.send(sending, interval) })
	}
	if err := sleep(r.ctx, r.load.Duration/3); err != nil {
		return err
	}
	if err := s.stopServer(r, pid); err != nil {
		return err
	}
	if err := s.startServer(r); err != nil {
		return err
	}
	err := r.await(func() string {
		s.peak = max(s.peak, s.resident())
		if n := s.whole.Load(); n < int64(s.Connections) {
			return fmt.Sprintf("%d of %d clients are connected and caught up", n, s.Connections)
		}
		return ""
	})
	if err == nil {
		err = sleep(r.ctx, r.load.Duration/3)
	}
	enough()
	r.senders.Wait()
	if err != nil {
		return err
	}
	return r.await(func() string {
		for i, c := range s.survivors {
			if have, all := c.fresh.Load(), s.chats[i/s.ChatSize].count.Load(); have < all {
				return fmt.Sprintf("%s over %s has %d of %d messages", c.endpoint.User, c.transport, have, all)
			}
		}
		return ""
	})
}

// stopServer tells the server to stop and waits until it has.
func (s *Storm) stopServer(r *run, pid int) error {
	s.signalled = r.now()
	s.told.Store(int64(s.signalled))
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("tell the server to stop: %w", err)
	}
	err := r.await(func() string {
		if running(pid) {
			return "the server has not ended"
		}
		return ""
	})
	s.ended = r.now()
	s.over.Store(true)
	return err
}

// running reports whether a process runs; one that has ended and was not waited for does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(after), "Z")
}

// startServer starts the server again, if that is asked for, and waits until it is ready.
func (s *Storm) startServer(r *run) error {
	if s.RestartCommand != "" {
		s.server = exec.Command("/bin/sh", "-c", "exec "+s.RestartCommand)
		if err := s.server.Start(); err != nil {
			return fmt.Errorf("start the server again: %w", err)
		}
		r.closeLater(func() {
			_ = s.server.Process.Signal(syscall.SIGTERM)
			_ = s.server.Wait()
		})
	}
	conn := client.NewConn(r.node(0), "", &r.answerBytes, client.SmallBuffer)
	defer conn.Close()
	err := r.await(func() string {
		if _, err := conn.Do(r.ctx, "GET", "/readyz", nil, client.AnswerTimeout); err != nil {
			return "the server is not ready again: " + err.Error()
		}
		return ""
	})
	s.ready = r.now()
	return err
}

func (s *Storm) resident() int64 {
	if s.server == nil {
		return 0
	}
	p, err := measure.ReadProcess(s.server.Process.Pid)
	if err != nil {
		return 0
	}
	return p.Resident
}

// tried notes an attempt to come back.
func (s *Storm) tried(now time.Duration, first bool) {
	told := time.Duration(s.told.Load())
	if told == 0 {
		return
	}
	step := min(int((now-told)/stormStep), stormSteps-1)
	s.attempts[step].Add(1)
	if first {
		s.returns[step].Add(1)
	}
}

// caughtUp notes that a client that lost the server has caught up with the new one.
func (s *Storm) caughtUp(now time.Duration) {
	s.whole.Add(1)
	s.wholeAt.Add(now - time.Duration(s.told.Load()))
}

func (s *Storm) verify(r *run, report *Report) {
	report.Transport = "websocket, sse and longpoll"
	report.Counters = nil // those of another process
	var sent, unanswered int64
	for i := range s.chats {
		sent += s.chats[i].count.Load()
	}
	for _, sender := range s.senders {
		unanswered += sender.repeated
	}
	var delivered, back, broken, tries int64
	for i, c := range s.survivors {
		chat := &s.chats[i/s.ChatSize]
		c.check.Finish(chat.id, uint64(chat.count.Load()), chat.digest)
		report.take(c.check)
		delivered += c.fresh.Load()
		back += c.ticksBack
		broken += c.untold
		tries += c.tries
	}
	if back > 0 {
		report.problem("%d ticks went back", back)
	}
	report.rates(sent, delivered, 0)
	report.add("sends repeated until they were answered", float64(unanswered), "")
	report.add("messages lost, doubled or out of order", float64(len(report.Problems)), "problems")
	report.add("ticks that went back", float64(back), "")
	report.add("SIGTERM → the process has ended", (s.ended - s.signalled).Seconds(), "s")
	report.add("SIGTERM → the new process is ready", (s.ready - s.signalled).Seconds(), "s")
	report.add("SIGTERM → every client is connected and caught up", s.wholeAt.Max().Seconds(), "s")
	report.add("the same, half of the clients", s.wholeAt.Quantile(0.5).Seconds(), "s")
	report.add("connections that ended without being told when to come back", float64(broken), "")
	report.add("attempts to connect per client", float64(tries)/float64(s.Connections), "")
	if s.peak > 0 {
		report.add("resident memory of the new process, at most", mib(s.peak), "MiB")
	}
	most := int64(1)
	for i := range s.returns {
		most = max(most, s.returns[i].Load())
	}
	for i := range s.returns {
		if n := s.returns[i].Load(); n > 0 || s.attempts[i].Load() > 0 {
			from := time.Duration(i) * stormStep
			bar := strings.Repeat("#", int((n*30+most-1)/most))
			report.add(fmt.Sprintf("came back %.1f–%.1f s after SIGTERM (all attempts: %d)", from.Seconds(), (from+stormStep).Seconds(), s.attempts[i].Load()), float64(n), bar)
		}
	}
}

// sleep waits, or returns why the run ended.
func sleep(ctx context.Context, d time.Duration) error {
	if !signal.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
