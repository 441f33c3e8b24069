package test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestStorm_drain_loses_nothing_and_spreads_clients stops the server by SIGTERM under load, and
// starts it on the same storage. The load has TIDEMARK_STORM_CONNECTIONS connections (300 if it is
// not set) of all transports.
//
// The stop keeps its deadline, and every client comes back and is complete. Nothing is lost,
// doubled or out of order, and no watermark falls. Clients come back spread over time. The test
// prints the report of `tidemark bench storm`.
func TestStorm_drain_loses_nothing_and_spreads_clients(t *testing.T) {
	eachStorage(t, stormLosesNothing)
}

func stormLosesNothing(t *testing.T, p *process) {
	connections := 300
	if text := os.Getenv("TIDEMARK_STORM_CONNECTIONS"); text != "" {
		var err error
		if connections, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TIDEMARK_STORM_CONNECTIONS is not a number: %v", err)
		}
	}
	p.flags = append(p.flags, "--drain-deadline", "15s")
	p.start()

	bench := exec.Command(p.binary, "bench", "storm", "--url", "http://"+p.address, "--pid",
		strconv.Itoa(p.process.Pid), "--json",
		"--connections", strconv.Itoa(connections), "--duration", "4s", "--drain", "60s",
		"--restart-command", strings.Join(p.line(), " "))
	bench.Env = environment()
	var out, stderr bytes.Buffer
	bench.Stdout, bench.Stderr = &out, &stderr
	failed := bench.Run()
	if err := p.wait(); err != nil {
		t.Errorf("the server ended with %v after SIGTERM", err)
	}
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
	if drained := figures["SIGTERM → the process has ended"]; drained <= 0 || drained > 20 {
		t.Errorf("the stop took %g s, and its parts take 15 s at most", drained)
	}
	if back < float64(connections) || most > back*9/10 {
		t.Errorf("%g of %d clients came back, %g of them in the same half second",
			back, connections, most)
	}
	whole := figures["SIGTERM → every client is connected and caught up"]
	if whole <= 0 || whole > time.Minute.Seconds() {
		t.Errorf("every client was whole after %g s", whole)
	}
}
