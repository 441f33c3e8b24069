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

// Storm is the mode storm: it stops the server (SIGTERM) and starts it again under load.
// Connections of all transports receive meanwhile.
// It measures the stop, and how the clients come back.
// It checks that nothing is lost, doubled or out of order. The first --pid is the server's.
type Storm struct {
	// Connections is the number of connections, each of its own user, a third per transport.
	Connections int `default:"300" help:"Number of connections, each of its own user."`
	ChatSize    int `default:"5" help:"How many of these users share a chat."`
	// RestartCommand starts the new server, which ends with the run. Without it, the operator must
	// start the server.
	RestartCommand string `placeholder:"COMMAND" help:"Shell command that starts the server again."`

	survivors []*survivor
	senders   []*persistent
	chats     []stormChat
	// server is the process that RestartCommand started.
	server *exec.Cmd

	// signalled is when SIGTERM was sent, in nanoseconds of now; 0 before.
	signalled atomic.Int64
	// ended is when the old process ended, ready when the new one was ready.
	ended, ready time.Duration
	// stopped says that the old process has ended. Later connections reach the new one.
	stopped atomic.Bool
	// recovered counts the clients that lost the server and have caught up with the new one.
	recovered atomic.Int64
	// recoveredAfter has their times since SIGTERM.
	recoveredAfter measure.Histogram
	// attempts counts the attempts to come back, per stormStep since SIGTERM.
	// returns counts only each client's first one.
	returns, attempts [stormSteps]atomic.Int64
	// peak is the greatest resident memory of the new process in bytes.
	peak int64
}

// stormChat holds what was confirmed in one chat. Only its sender uses it, except for count.
type stormChat struct {
	id     string
	count  atomic.Int64
	digest uint64
}

const (
	stormStep    = 500 * time.Millisecond
	stormSteps   = 40
	stormSenders = 8
	// stormRate is the number of sends per second if Load.Rate is 0.
	stormRate = 200
)

func (s *Storm) describe() (name, settings string) {
	return "storm", fmt.Sprintf("%d connections, chats of %d, the server stopped and started again",
		s.Connections, s.ChatSize)
}

func (s *Storm) prepare(r *run) error {
	if s.Connections < 1 || s.ChatSize < 1 {
		return errors.New("--connections and --chat-size must be at least 1")
	}
	if len(r.nodes) != 1 {
		return errors.New("storm stops one server; give exactly one --url")
	}
	if len(r.load.PIDs) == 0 {
		return errors.New("storm stops the server; give its process id by --pid")
	}
	if r.load.Rate == 0 {
		r.load.Rate = stormRate
	}
	s.chats = make([]stormChat, (s.Connections+s.ChatSize-1)/s.ChatSize)
	for i := range stormSenders {
		user := r.name("f", i)
		s.senders = append(s.senders, &persistent{
			run:    r,
			user:   user,
			random: rand.New(rand.NewPCG(uint64(i), 0)),
		})
	}
	for i := range s.chats {
		s.chats[i].id = r.name("c", i)
		sender := s.senders[i%stormSenders]
		sender.chats = append(sender.chats, &s.chats[i])
	}
	for i := range s.Connections {
		s.survivors = append(s.survivors, newSurvivor(r, s, i))
	}
	create := func(i int) error { return s.create(r, i) }
	if err := parallel(r.ctx, len(s.chats), setupLimit, create); err != nil {
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
	conn := r.connectAs(sender.user)
	defer conn.Close()
	return r.createChat(conn, "group", s.chats[i].id, members)
}

func (s *Storm) apply(r *run) error {
	pid := r.load.PIDs[0]
	r.load.PIDs = nil // the process will have ended before the second snapshot
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
		if n := s.recovered.Load(); n < int64(s.Connections) {
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
				return fmt.Sprintf("%s over %s has %d of %d messages",
					c.endpoint.User, c.transport, have, all)
			}
		}
		return ""
	})
}

// stopServer sends SIGTERM to the server, and returns when its process has ended.
func (s *Storm) stopServer(r *run, pid int) error {
	s.signalled.Store(int64(r.now()))
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("send SIGTERM to the server: %w", err)
	}
	err := r.await(func() string {
		if running(pid) {
			return "the server has not ended"
		}
		return ""
	})
	s.ended = r.now()
	s.stopped.Store(true)
	return err
}

// stopSent returns when SIGTERM was sent, in the time of now; 0 before.
func (s *Storm) stopSent() time.Duration { return time.Duration(s.signalled.Load()) }

// running reports whether a process runs. A zombie, which its parent has not waited for, does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(after), "Z")
}

// startServer runs RestartCommand, if there is one, and returns when a server is ready.
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

// tried records an attempt to come back. first says that it is the first since a good connection.
func (s *Storm) tried(now time.Duration, first bool) {
	stopped := s.stopSent()
	if stopped == 0 {
		return
	}
	step := min(int((now-stopped)/stormStep), stormSteps-1)
	s.attempts[step].Add(1)
	if first {
		s.returns[step].Add(1)
	}
}

// caughtUp records that a client that lost the server has caught up with the new one.
func (s *Storm) caughtUp(now time.Duration) {
	s.recovered.Add(1)
	s.recoveredAfter.Add(now - s.stopSent())
}

func (s *Storm) verify(r *run, report *Report) {
	report.Transport = "websocket, sse and longpoll"
	report.Counters = nil // the two snapshots are of different processes
	var sent, repeated int64
	for i := range s.chats {
		sent += s.chats[i].count.Load()
	}
	for _, sender := range s.senders {
		repeated += sender.repeated
	}
	var delivered, back, abrupt, tries int64
	for i, c := range s.survivors {
		chat := &s.chats[i/s.ChatSize]
		c.check.Finish(chat.id, uint64(chat.count.Load()), chat.digest)
		report.take(c.check)
		delivered += c.fresh.Load()
		back += c.ticksBack
		abrupt += c.abrupt
		tries += c.tries
	}
	if back > 0 {
		report.problem("%d ticks went back", back)
	}
	report.rates(sent, delivered, 0)
	report.add("sends repeated until they were answered", float64(repeated), "")
	report.add("messages lost, doubled or out of order", float64(len(report.Problems)), "problems")
	report.add("ticks that went back", float64(back), "")
	report.add("SIGTERM → the process has ended", (s.ended - s.stopSent()).Seconds(), "s")
	report.add("SIGTERM → the new process is ready", (s.ready - s.stopSent()).Seconds(), "s")
	report.add("SIGTERM → every client is connected and caught up",
		s.recoveredAfter.Max().Seconds(), "s")
	report.add("the same, half of the clients", s.recoveredAfter.Quantile(0.5).Seconds(), "s")
	report.add("connections that ended without a time to come back", float64(abrupt), "")
	report.add("attempts to connect per client", float64(tries)/float64(s.Connections), "")
	if s.peak > 0 {
		report.add("resident memory of the new process, at most", mib(s.peak), "MiB")
	}
	most := int64(1)
	for i := range s.returns {
		most = max(most, s.returns[i].Load())
	}
	for i := range s.returns {
		n, attempts := s.returns[i].Load(), s.attempts[i].Load()
		if n == 0 && attempts == 0 {
			continue
		}
		from := time.Duration(i) * stormStep
		name := fmt.Sprintf("came back %.1f–%.1f s after SIGTERM (all attempts: %d)",
			from.Seconds(), (from + stormStep).Seconds(), attempts)
		bar := strings.Repeat("#", int((n*30+most-1)/most))
		report.add(name, float64(n), bar)
	}
}

// sleep waits for d. If ctx ends first, it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	if !signal.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
