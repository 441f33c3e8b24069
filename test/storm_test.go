package test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStorm_drain_loses_nothing_and_spreads_clients stops the server by SIGTERM under load with TIDEMARK_STORM_CONNECTIONS connections (300 if it is not set) of all
// transports, and starts it on the same file: the stop keeps its deadline, every client comes back and is whole, nothing is lost, doubled or out of order, no tick goes
// back, and clients come back spread. It prints what `tidemark bench storm` says.
func TestStorm_drain_loses_nothing_and_spreads_clients(t *testing.T) {
	connections := 300
	if text := os.Getenv("TIDEMARK_STORM_CONNECTIONS"); text != "" {
		var err error
		if connections, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TIDEMARK_STORM_CONNECTIONS is not a number: %v", err)
		}
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "tidemark")
	if out, err := exec.Command("go", "build", "-o", binary, module+"/cmd/tidemark").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	address := freeAddress(t)
	args := []string{"serve", "--dev", "--listen", address, "--store", "sqlite:" + filepath.Join(dir, "tidemark.db"), "--drain-deadline", "15s"}
	serve := exec.Command(binary, args...)
	serve.Env = environment()
	var log bytes.Buffer
	serve.Stdout, serve.Stderr = &log, &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	t.Cleanup(func() {
		_ = serve.Process.Signal(syscall.SIGKILL) // if it has not ended long since
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v:\n%s", err, log.String())
		}
	})
	if err := waitReady(t.Context(), "http://"+address+"/readyz", ended); err != nil {
		t.Fatal(err)
	}

	bench := exec.Command(binary, "bench", "storm", "--url", "http://"+address, "--pid", strconv.Itoa(serve.Process.Pid), "--json",
		"--connections", strconv.Itoa(connections), "--duration", "4s", "--drain", "60s", "--restart-command", binary+" "+strings.Join(args, " "))
	bench.Env = environment()
	var out, stderr bytes.Buffer
	bench.Stdout, bench.Stderr = &out, &stderr
	failed := bench.Run()
	var report struct {
		Sent     int64
		Problems []string
		Figures  []struct {
			Name  string
			Value float64
			Unit  string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || failed != nil {
		t.Fatalf("bench storm: %v, %v\n%s%s", failed, err, out.String(), stderr.String())
	}
	figures := make(map[string]float64)
	back, most := 0.0, 0.0
	for _, f := range report.Figures {
		t.Logf("%s: %g %s", f.Name, f.Value, f.Unit)
		figures[f.Name] = f.Value
		if strings.HasPrefix(f.Name, "came back ") {
			back += f.Value
			most = max(most, f.Value)
		}
	}
	if len(report.Problems) > 0 || report.Sent == 0 {
		t.Errorf("%d sent, problems: %v", report.Sent, report.Problems)
	}
	if drained := figures["SIGTERM → the process has ended"]; drained <= 0 || drained > 15 {
		t.Errorf("the stop took %g s, and the deadline is 15 s", drained)
	}
	if back < float64(connections) || most > back/2 {
		t.Errorf("%g of %d clients came back, %g of them in the same half second", back, connections, most)
	}
	if whole := figures["SIGTERM → every client is connected and caught up"]; whole <= 0 || whole > time.Minute.Seconds() {
		t.Errorf("every client was whole after %g s", whole)
	}
}
