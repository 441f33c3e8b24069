package test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A site is a server as an operator runs it for others: without --dev, and with a secret.
type site struct{ *process }

// siteSecret signs the tokens of a site.
const siteSecret = "a secret of a test, of more than 32 bytes"

// newSite starts a site with an empty database, which ends with the test.
func newSite(t *testing.T, flags ...string) *site {
	t.Helper()
	return siteOf(newProcess(t), flags...)
}

// siteOf makes a site of a process, with flags of serve, and starts it.
func siteOf(p *process, flags ...string) *site {
	p.t.Helper()
	p.flags, p.env = flags, []string{"TIDEMARK_JWT_SECRET=" + siteSecret}
	p.t.Cleanup(p.stop)
	p.start()
	return &site{p}
}

// command returns the program with a site's environment.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(environment(), s.env...)
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

// serveFrom makes the next start serve another database.
func (s *site) serveFrom(database string) {
	s.store, s.name = filepath.Split(database)
}

// user returns a user with a token of `tidemark token`, who calls the site at url.
func (s *site) user(name, url string, client *http.Client) user {
	s.t.Helper()
	return user{name: name, url: url, client: client, token: s.run("token", "--user", name)}
}
