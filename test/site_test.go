package test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A site is a server as somebody runs it for others: without --dev, on a file, with a secret. It can be stopped and started again.
type site struct {
	t       *testing.T
	dir     string
	binary  string
	address string
	store   string
	log     *output
	// flags of serve, besides where to listen and what to store to.
	flags []string

	process *exec.Cmd
	ended   chan error
}

// siteSecret signs the tokens of a site.
const siteSecret = "a secret of a test, of more than 32 bytes"

// newSite builds the program and starts a site with an empty database, which ends with the test.
func newSite(t *testing.T, flags ...string) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{t: t, dir: dir, binary: filepath.Join(dir, "tidemark"), address: freeAddress(t), store: filepath.Join(dir, "tidemark.db"), log: &output{}, flags: flags}
	if out, err := exec.Command("go", "build", "-o", s.binary, module+"/cmd/tidemark").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.log.String())
		}
	})
	s.start()
	return s
}

// command returns the program with a site's environment.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = environment()
	cmd.Env = append(cmd.Env, "TIDEMARK_JWT_SECRET="+siteSecret)
	return cmd
}

// run runs the program to its end, and returns what it wrote to standard output.
func (s *site) run(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...).Output()
	if err != nil {
		s.t.Fatalf("tidemark %s: %v\n%s", strings.Join(args, " "), err, stderrOf(err))
	}
	return strings.TrimSpace(string(out))
}

func stderrOf(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return string(exit.Stderr)
	}
	return ""
}

// start serves s.store on s.address, and returns when the server is ready.
func (s *site) start() {
	s.t.Helper()
	s.process = s.command(append([]string{"serve", "--listen", s.address, "--store", "sqlite:" + s.store}, s.flags...)...)
	s.process.Stdout, s.process.Stderr = s.log, s.log
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.ended = make(chan error, 1)
	process, ended := s.process, s.ended
	go func() { ended <- process.Wait() }()
	if err := waitReady(s.t.Context(), "http://"+s.address+"/readyz", s.ended); err != nil {
		s.t.Fatalf("%v\n%s", err, s.log.String())
	}
}

// stop ends the server in good order, if it runs.
func (s *site) stop() {
	s.t.Helper()
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Errorf("serve ended with %v after SIGTERM", err)
		}
	case <-time.After(40 * time.Second):
		_ = s.process.Process.Kill()
		<-s.ended
		s.t.Error("serve did not end within 40 s of SIGTERM")
	}
	s.process = nil
}

// user returns a user with a token of `tidemark token`, who calls the site at url.
func (s *site) user(name, url string, client *http.Client) user {
	s.t.Helper()
	return user{name: name, url: url, client: client, token: s.run("token", "--user", name)}
}
