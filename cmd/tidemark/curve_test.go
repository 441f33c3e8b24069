package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/bench"
)

// TestCurve_every_one_measures_each_point: a point without operations, CPU time, calls of the
// storage or latencies would be a curve of nothing.
func TestCurve_every_one_measures_each_point(t *testing.T) {
	cleanEnvironment(t)
	url := startServer(t, "--dev", "--store", "memory:")
	for name, values := range map[string]string{
		"offline": "0,3", "online": "2,5", "history": "10,200", "chats": "5,220", "rate": "0,300",
		"silent": "0,3", "members": "2,60",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			picture := filepath.Join(t.TempDir(), "curve.svg")
			var out, stderr bytes.Buffer
			// In a short time a busy machine may do nothing.
			for d := 150 * time.Millisecond; ; d *= 4 {
				out.Reset()
				stderr.Reset()
				args := []string{
					"bench", "curve", name, "--url", url, "--json", "--duration", d.String(),
					"--pid", strconv.Itoa(os.Getpid()), "--plot", picture, "--values", values,
				}
				code := run(t.Context(), args, streams{out: &out, err: &stderr})
				if code == exitOK {
					break
				}
				if d > 5*time.Second {
					t.Fatalf("exit %d: %s\n%s", code, stderr.String(), out.String())
				}
			}
			var report bench.CurveReport
			if err := json.Unmarshal(out.Bytes(), &report); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			var got []string
			for _, p := range report.Points {
				got = append(got, strconv.Itoa(p.Value))
				if p.Operations <= 0 || p.CPU <= 0 || p.Multiple <= 0 || p.P50 <= 0 ||
					p.Seconds <= 0 || p.Calls <= 0 || len(p.Processes) != 1 {
					t.Errorf("measured nothing: %+v", p)
				}
			}
			if name == "rate" {
				slices.Reverse(got) // as fast as possible comes last
			}
			if strings.Join(got, ",") != values || report.LeftOut != nil {
				t.Errorf("measured at %v, left out %v, want %s", got, report.LeftOut, values)
			}
			if drawn, err := os.ReadFile(picture); err != nil ||
				bytes.Count(drawn, []byte("<circle")) != len(report.Points) {
				t.Errorf("the plot has not each point: %v\n%s", err, drawn)
			}
		})
	}
}

func TestCurve_refuses_what_it_cannot_measure(t *testing.T) {
	cleanEnvironment(t)
	url := startServer(t, "--dev", "--store", "memory:")
	pid := strconv.Itoa(os.Getpid())
	for _, tc := range []struct{ args, want string }{
		{"offline", "--pid"},
		{"online --values 1,5 --pid " + pid, "at least 2"},
		{"silent --transport sse --pid " + pid, "--transport websocket"},
		{"rate --transport rest --pid " + pid, "--transport websocket"},
		{"offline --limit 1ns --pid " + pid, "failed"},
		{"sideways --pid " + pid, "sideways"},
	} {
		args := append([]string{"bench", "curve", "--url", url}, strings.Fields(tc.args)...)
		var out, stderr bytes.Buffer
		code := run(t.Context(), args, streams{out: &out, err: &stderr})
		if code == exitOK || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%s: exit %d, %q, want %q", tc.args, code, stderr.String(), tc.want)
		}
	}
}
