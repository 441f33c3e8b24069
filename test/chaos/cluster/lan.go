// Package cluster runs several servers as processes. Each has a network and a clock of its own, as
// if it ran on its own machine. Links and hosts inject faults.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Direction says which packets are lost, as the node sees it.
type Direction int

// The directions: what a node sends, what it receives, or both.
const (
	Both Direction = iota
	Out
	In
)

func (d Direction) String() string {
	return [...]string{"both ways", "from the node", "to the node"}[d]
}

// chains returns the nftables chains of a direction.
func (d Direction) chains() []string { return [...][]string{{"up", "down"}, {"up"}, {"down"}}[d] }

// Isolated reports whether Enter has given this process its own network, in which nodes get
// networks of their own.
func Isolated() bool { return os.Getenv(entered) != "" }

// entered is set in the process that Enter has made.
const entered = "CHAOS_NETWORK"

// Enter replaces this process by the same program in a new network namespace, which disappears when
// the program ends. It returns only if that fails, with the reason. It needs root, ip, nsenter and
// nft.
func Enter() error {
	if os.Getuid() != 0 {
		return errors.New("not root")
	}
	for _, program := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	if out, err := exec.Command(unshare, "--net", "true").CombinedOutput(); err != nil {
		return fmt.Errorf("unshare: %w: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(unshare, append([]string{unshare, "--net", self}, os.Args[1:]...),
		append(os.Environ(), entered+"=1"))
}

// Prepare brings up what all hosts share. Call it once, in the process that Enter has made.
func Prepare() error {
	if err := run("ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0)
}

// Host is the machine of a node: a network namespace with one cable. A process on it reaches the
// services' ports of 127.0.0.1 at the same addresses. What it listens to on 127.0.0.1:8080 is
// reached from here at Address.
type Host struct {
	number int
	holder *exec.Cmd
	hold   io.Closer
	// ports are the ports of each service.
	ports map[string][]int
}

// port is where a node listens on its host.
const port = 8080

// NewHost makes a host that reaches the ports of the services. number is 1 to 200.
func NewHost(number int, services map[string][]int) (*Host, error) {
	h := &Host{number: number, ports: services}
	h.holder = exec.Command("unshare", "--net", "sh", "-c", "echo; exec cat")
	hold, err := h.holder.StdinPipe()
	if err != nil {
		return nil, err
	}
	h.hold = hold
	said, err := h.holder.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.holder.Start(); err != nil {
		return nil, err
	}
	if _, err := said.Read(make([]byte, 1)); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if err := h.wire(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// wire connects the host and sets up its packet filter.
func (h *Host) wire() error {
	here, pid := fmt.Sprint("node", h.number), fmt.Sprint(h.holder.Process.Pid)
	var all []string
	cuts := ""
	for service, ports := range h.ports {
		for _, p := range ports {
			all = append(all, fmt.Sprint(p))
		}
		cuts += fmt.Sprintf("counter %[1]s_up { }\ncounter %[1]s_down { }\n", service)
	}
	reach := strings.Join(all, ",")
	inside := fmt.Sprintf(`table ip nat {
    chain prerouting {
      type nat hook prerouting priority dstnat; iifname "lan" tcp dport %d dnat to 127.0.0.1;
    }
    chain output {
      type nat hook output priority -100; ip daddr 127.0.0.1 tcp dport { %s } dnat to %s;
    }
  chain postrouting { type nat hook postrouting priority srcnat; oifname "lan" masquerade; }
}
table ip cut {
  %s
  chain up { type filter hook postrouting priority 300; }
  chain down { type filter hook prerouting priority -300; }
}`, port, reach, h.address(1), cuts)
	outside := fmt.Sprintf(`table ip %[1]s {
    chain prerouting {
      type nat hook prerouting priority dstnat;
      iifname "%[1]s" tcp dport { %[2]s } dnat to 127.0.0.1;
    }
}`, here, reach)
	for _, step := range []func() error{
		func() error {
			return run("ip", "link", "add", here, "type", "veth", "peer", "name", "lan", "netns",
				pid)
		},
		func() error { return run("ip", "addr", "add", h.address(1)+"/30", "dev", here) },
		func() error { return run("ip", "link", "set", here, "up") },
		func() error { return h.run("", "ip", "link", "set", "lo", "up") },
		func() error { return h.run("", "ip", "addr", "add", h.address(2)+"/30", "dev", "lan") },
		func() error { return h.run("", "ip", "link", "set", "lan", "up") },
		func() error {
			return h.run("", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
		},
		func() error { return h.run(inside, "nft", "-f", "-") },
		func() error { return feed(outside, "nft", "-f", "-") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// address returns the address of our end of the cable (1) or of the host's (2).
func (h *Host) address(end int) string { return fmt.Sprintf("10.77.%d.%d", h.number, end) }

// Address returns where the node on the host is reached.
func (h *Host) Address() string { return fmt.Sprintf("%s:%d", h.address(2), port) }

// Command returns a command that runs on the host.
func (h *Host) Command(line ...string) *exec.Cmd {
	return exec.Command("nsenter",
		append([]string{"--target", fmt.Sprint(h.holder.Process.Pid), "--net"}, line...)...)
}

// Cut drops every packet between the host and a service, until Heal.
func (h *Host) Cut(service string, d Direction) error {
	rules := ""
	for _, chain := range d.chains() {
		match := map[string]string{
			"up": `oifname "lan" tcp dport`, "down": `iifname "lan" tcp sport`,
		}[chain]
		for _, p := range h.ports[service] {
			rules += fmt.Sprintf("add rule ip cut %[1]s %[2]s %[3]d counter name %[4]s_%[1]s "+
				"drop\n", chain, match, p, service)
		}
	}
	return h.run(rules, "nft", "-f", "-")
}

// Heal ends every Cut of the host.
func (h *Host) Heal() error {
	return h.run("flush chain ip cut up\nflush chain ip cut down", "nft", "-f", "-")
}

// Lost counts the packets that Cut has dropped between the host and a service so far: out from the
// host, and in to it.
func (h *Host) Lost(service string) (out, in int, err error) {
	answer, err := h.Command("nft", "-j", "list", "counters").Output()
	if err != nil {
		return 0, 0, fmt.Errorf("nft: %w", err)
	}
	var list struct {
		Nftables []struct {
			Counter struct {
				Name    string
				Packets int
			}
		}
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return 0, 0, err
	}
	for _, object := range list.Nftables {
		switch object.Counter.Name {
		case service + "_up":
			out = object.Counter.Packets
		case service + "_down":
			in = object.Counter.Packets
		}
	}
	return out, in, nil
}

// Close removes the host. No process may be left on it.
func (h *Host) Close() error {
	err := h.hold.Close()
	return errors.Join(err, h.holder.Wait())
}

func (h *Host) run(input string, line ...string) error { return finish(h.Command(line...), input) }

func run(line ...string) error { return feed("", line...) }

func feed(input string, line ...string) error {
	return finish(exec.Command(line[0], line[1:]...), input)
}

func finish(command *exec.Cmd, input string) error {
	command.Stdin = strings.NewReader(input)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s",
			filepath.Base(command.Path)+" "+strings.Join(command.Args[1:], " "), err, out)
	}
	return nil
}

// pause waits for one interval of a poll, and reports whether ctx goes on.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(10 * time.Millisecond):
		return true
	}
}
