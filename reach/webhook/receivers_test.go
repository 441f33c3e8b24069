package webhook

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/test/services/ports"
	"github.com/tidemark-im/tidemark/test/wait"
)

const (
	root = "../.."
	// packages is where `make webhook-deps` installs standardwebhooks.
	packages = root + "/.build/webhook/node_modules"
)

// block returns the only block of a language in docs/webhooks.md.
func block(t *testing.T, language string) []byte {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(found) != 1 {
		t.Fatalf("docs/webhooks.md has %d blocks of %s, want 1", len(found), language)
	}
	return found[0][1]
}

// TestReceivers_of_the_guide: the programs of docs/webhooks.md accept deliveries, tell each event
// once, and refuse what was changed. They use the published libraries of Standard Webhooks.
func TestReceivers_of_the_guide(t *testing.T) {
	for language, start := range map[string]func(*testing.T, string) *exec.Cmd{
		"js": node, "go": golang, "python": python,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			secret := NewSecret()
			got := started(t, start(t, t.TempDir()), secret)
			cfg := Config{
				URL: got.url, Secrets: []string{NewSecret(), secret}, Allow: loopback, Batch: true,
			}
			batch, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer batch.Close()
			cfg.Batch = false
			single, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer single.Close()
			all := events(3)
			for range 2 {
				if n, refused := single.Deliver(t.Context(), all[:1]); n != 1 {
					t.Fatalf("got %d, %+v", n, refused)
				}
				if n, refused := batch.Deliver(t.Context(), all); n != 3 {
					t.Fatalf("got %d, %+v", n, refused)
				}
			}
			// A test event is of no chat. It is the first one that the page sends.
			test := outlet.Event{
				ID: outlet.EventID("test"), Type: "outlet.test", Time: time.Now(),
				Data: []byte(`{"outlet_id":"crm"}`),
			}
			if n, refused := single.Deliver(t.Context(), []outlet.Event{test}); n != 1 {
				t.Fatalf("of a test event: got %d, %+v", n, refused)
			}
			checkChanges(t, cfg, got.url)
			want := "message.persisted c 1\nmessage.persisted c 2\nmessage.persisted c 3\n"
			if text := got.stopped(t); !strings.HasPrefix(text, want+"outlet.test ") {
				t.Errorf("the receiver writes\n%swant\n%soutlet.test …", text, want)
			}
		})
	}
}

// checkChanges sends a delivery as it is, and changed in some way, to a receiver.
func checkChanges(t *testing.T, cfg Config, url string) {
	t.Helper()
	var made request
	record := httptest.NewServer(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			made = request{header: r.Header.Clone(), body: body}
		}))
	defer record.Close()
	cfg.URL = record.URL
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	o.Deliver(t.Context(), events(1))
	for name, tc := range map[string]struct {
		from, to string
		header   string
		value    string
		want     int
	}{
		"as it is":     {want: http.StatusNoContent},
		"another body": {from: "alice", to: "mally", want: http.StatusBadRequest},
		"more body":    {from: "}}", to: "}} ", want: http.StatusBadRequest},
		"another id":   {header: "webhook-id", value: "evt_b", want: http.StatusBadRequest},
		"another time": {
			header: "webhook-timestamp", value: fmt.Sprint(time.Now().Unix() - 60),
			want: http.StatusBadRequest,
		},
		"no signature": {header: "webhook-signature", value: "", want: http.StatusBadRequest},
	} {
		body := bytes.Replace(made.body, []byte(tc.from), []byte(tc.to), 1)
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = made.header.Clone()
		if tc.header != "" {
			r.Header.Set(tc.header, tc.value)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != tc.want {
			t.Errorf("%s: the receiver answers %d, want %d", name, answer.StatusCode, tc.want)
		}
	}
}

// node returns the program of the page for Node, in a directory with the library.
func node(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	installed, err := filepath.Abs(packages)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(installed + "/standardwebhooks"); err != nil {
		t.Fatalf("standardwebhooks is not installed; run make webhook-deps: %v", err)
	}
	if err := os.Symlink(installed, dir+"/node_modules"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/receiver.mjs", block(t, "js"))
	return exec.CommandContext(t.Context(), "node", dir+"/receiver.mjs")
}

// golang returns the program of the page for Go, built with this module's version of the library.
func golang(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	write(t, dir+"/receiver.go", block(t, "go"))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/receiver",
		dir+"/receiver.go")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exec.CommandContext(t.Context(), dir+"/receiver")
}

// python returns the program of the page for Python.
func python(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	const interpreter = root + "/.build/standardwebhooks/bin/python"
	if _, err := os.Stat(interpreter); err != nil {
		t.Fatalf("standardwebhooks is not installed; run make webhook-deps: %v", err)
	}
	write(t, dir+"/receiver.py", block(t, "python"))
	return exec.CommandContext(t.Context(), interpreter, dir+"/receiver.py")
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// program is a receiver that runs.
type program struct {
	url     string
	command *exec.Cmd
	out     *output
}

// output is what a program writes. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// started starts a receiver and waits until it accepts connections.
func started(t *testing.T, command *exec.Cmd, secret string) *program {
	t.Helper()
	address, err := ports.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{url: "http://" + address, command: command, out: &output{}}
	var complaints output
	command.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret, "PORT="+port)
	command.Stdout, command.Stderr = p.out, &complaints
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("the receiver accepts no connections: %v\n%s", err, complaints.String())
		}
	}
}

// stopped ends the receiver, and returns what it wrote.
func (p *program) stopped(t *testing.T) string {
	t.Helper()
	// What it wrote may still be on its way.
	for end := time.Now().Add(wait.Hang); time.Now().Before(end); {
		if strings.Count(p.out.String(), "\n") >= 4 {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	p.command.Process.Kill()
	p.command.Wait()
	return p.out.String()
}
