package test

import (
	"os"
	"os/exec"
	"testing"
)

// The calls of @tidemark/client/backend, with an API key, against the real server. The backend and
// the bot of its README, too.
func TestClient_backend(t *testing.T) {
	t.Parallel()
	needWeb(t)
	needDrivers(t)
	node := lookPath(t, "node", "nodejs npm")
	p := newProcess(t)
	key, keys := apiKey(t, p.binary)
	s := siteOf(p, "--api-keys-file", keys)
	const file = "backend.test.mjs"
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=spec", file)
	cmd.Dir = "browser"
	cmd.Env = append(os.Environ(), "TIDEMARK_TEST_URL=http://"+s.address,
		"TIDEMARK_TEST_KEY="+key)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, out)
	}
	t.Logf("%s", out)
}
