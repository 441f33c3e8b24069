package test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestStop_a_lost_terminal_is_an_orderly_stop: a shell sends SIGHUP when its window is closed. The
// server then drains its clients. A server under nohup ignores SIGHUP.
func TestStop_a_lost_terminal_is_an_orderly_stop(t *testing.T) {
	p := newProcess(t)
	p.wrap = []string{"env", "--default-signal=HUP"}
	p.start()
	if err := p.process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(); err != nil || !strings.Contains(p.log.String(), "msg=stopped") {
		t.Errorf("after SIGHUP the server ended with %v; its log:\n%s", err, p.log.String())
	}

	p.wrap = []string{"env", "--ignore-signal=HUP"}
	p.start()
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var ignored uint64
	if _, rest, found := strings.Cut(string(state), "SigIgn:"); !found {
		t.Fatalf("no SigIgn in %s", state)
	} else if _, err := fmt.Sscanf(rest, "%x", &ignored); err != nil {
		t.Fatal(err)
	}
	if ignored&(1<<(syscall.SIGHUP-1)) == 0 {
		t.Errorf("under nohup the server heeds SIGHUP; it ignores %#x", ignored)
	}
	p.stop()
}
