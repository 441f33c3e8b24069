package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Node is one server process, which can be started, killed and started again on its host. Its
// methods must not be called concurrently.
type Node struct {
	// Name is the value of --node.
	Name string
	// Apart is how far the process's time of day is from ours.
	Apart time.Duration

	host   *Host
	listen string // on its host
	at     string // as we reach it
	binary string
	flags  []string
	log    string

	process *os.Process
	ended   chan error
}

// NewNode returns a node that does not run yet. Without a host it listens on an address of its own.
// Its log is a file in dir.
func NewNode(host *Host, name, address, binary, dir string, flags ...string) *Node {
	n := &Node{
		Name:   name,
		host:   host,
		listen: address,
		at:     address,
		binary: binary,
		flags:  flags,
		log:    filepath.Join(dir, "log-"+strings.ReplaceAll(address, ":", "-")),
	}
	if host != nil {
		n.listen, n.at = fmt.Sprintf("127.0.0.1:%d", port), host.Address()
		n.log = filepath.Join(dir, fmt.Sprint("log-", host.number))
	}
	return n
}

// Host returns the node's host, nil if it runs on this machine.
func (n *Node) Host() *Host { return n.host }

// Address returns where the node is reached.
func (n *Node) Address() string { return n.at }

// Start starts the node and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	if err := n.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if status, _, err := n.get(ctx, "/readyz"); err == nil && status == http.StatusOK {
			break
		}
		select {
		case end := <-n.ended:
			n.process = nil
			return fmt.Errorf("%s ended before it was ready: %w: %s", n.Name, end, n.Log(4000))
		default:
		}
		if !pause(ctx) {
			return fmt.Errorf("%s is not ready: %s", n.Name, n.Log(4000))
		}
	}
	if n.Apart != 0 {
		return setClock(n.process.Pid, n.Apart)
	}
	return nil
}

func (n *Node) launch() error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	line := append([]string{n.binary, "serve", "--listen", n.listen}, n.flags...)
	if slices.Contains(n.flags, "--redis") || slices.Contains(n.flags, "--cluster") {
		line = append(line, "--node", n.Name)
	}
	command := exec.Command(line[0], line[1:]...)
	if n.host != nil {
		command = n.host.Command(line...)
	}
	command.Stdout, command.Stderr = log, log
	command.Env = slices.DeleteFunc(os.Environ(),
		func(v string) bool { return strings.HasPrefix(v, "TIDEMARK_") })
	command.Env = append(command.Env, "TIDEMARK_CLUSTER_SECRET=0123456789abcdef0123456789abcdef")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	started := make(chan error)
	// The thread that starts the process must live as long as it. The kernel sends the parent-death
	// signal when that thread ends.
	go startLocked(command, started, ended)
	if err := <-started; err != nil {
		return err
	}
	n.process, n.ended = command.Process, ended
	return nil
}

// get makes a direct request to the node, within a second. It returns the status and the Date.
func (n *Node) get(ctx context.Context, path string) (status int, date string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	response, err := n.do(ctx, path)
	if err != nil {
		return 0, "", err
	}
	return response.StatusCode, response.Header.Get("Date"), response.Body.Close()
}

func (n *Node) do(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.at+path, nil)
	if err != nil {
		return nil, err
	}
	request.Host = n.listen // in development it accepts only names of loopback addresses
	return (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
}

// Answers reports whether the node answers within a second, even if it is not ready.
func (n *Node) Answers(ctx context.Context) bool {
	_, _, err := n.get(ctx, "/healthz")
	return err == nil
}

// Metrics returns the node's counters and gauges that have no labels.
func (n *Node) Metrics(ctx context.Context) map[string]float64 {
	values := map[string]float64{}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	response, err := n.do(ctx, "/metrics")
	if err != nil {
		return values
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseFloat(text, 64)
		if err == nil && !strings.ContainsAny(name, "#{") {
			values[name] = value
		}
	}
	return values
}

// Clock returns how far the node's time of day is from ours, by the Date of its answers, which has
// whole seconds.
func (n *Node) Clock(ctx context.Context) (time.Duration, error) {
	_, text, err := n.get(ctx, "/healthz")
	if err != nil {
		return 0, err
	}
	date, err := http.ParseTime(text)
	return time.Until(date), err
}

// SetClock shifts the node's time of day from now on: a clock that jumps.
func (n *Node) SetClock(apart time.Duration) error {
	n.Apart = apart
	return setClock(n.process.Pid, apart)
}

// Kill ends the node with SIGKILL and waits.
func (n *Node) Kill() error {
	if n.process == nil {
		return fmt.Errorf("%s does not run", n.Name)
	}
	if err := n.process.Kill(); err != nil {
		return errors.Join(err, n.Died())
	}
	end := <-n.ended
	n.process = nil
	var exit *exec.ExitError
	if errors.As(end, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return fmt.Errorf("%s was killed and ended by itself: %w: %s", n.Name, end, n.Log(4000))
}

// Freeze stops the node with SIGSTOP, and waits until it stands still.
func (n *Node) Freeze(ctx context.Context) error {
	if err := n.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, _, err := threadStopped(n.process.Pid, fmt.Sprint(n.process.Pid))
		if err != nil || stopped {
			return err
		}
		if !pause(ctx) {
			return ctx.Err()
		}
	}
}

// Thaw continues a frozen node.
func (n *Node) Thaw() error { return n.process.Signal(syscall.SIGCONT) }

// unreachable is what a node prints if it could not end all of its work, because a service was
// away. Its leases expire.
const unreachable = "tidemark: stop: UNAVAILABLE"

// Stop ends the node with SIGTERM and waits for at most 40 s. It does nothing if the node does not
// run.
func (n *Node) Stop() error {
	if n.process == nil {
		return nil
	}
	if err := n.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-n.ended:
		n.process = nil
		if err != nil && !strings.Contains(n.Log(4000), unreachable) {
			return fmt.Errorf("%s ended with %w after SIGTERM: %s", n.Name, err, n.Log(4000))
		}
		return nil
	case <-time.After(40 * time.Second):
		return errors.Join(fmt.Errorf("%s has not ended 40 s after SIGTERM: %s", n.Name,
			n.Log(4000)), n.Kill())
	}
}

// Runs reports whether the node was started and the test has not ended it. Died returns whether it
// ended by itself.
func (n *Node) Runs() bool { return n.process != nil }

// Died returns how the node ended by itself, nil if it did not.
func (n *Node) Died() error {
	if n.process == nil {
		return nil
	}
	select {
	case err := <-n.ended:
		n.ended <- err
		return fmt.Errorf("%s ended by itself: %w: %s", n.Name, err, n.Log(8000))
	default:
		return nil
	}
}

// Log returns the end of the node's log, at most this many bytes.
func (n *Node) Log(most int) string {
	text, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// Logged counts the lines of the node's log that contain a text.
func (n *Node) Logged(text string) int { return strings.Count(n.Log(1<<30), text) }
