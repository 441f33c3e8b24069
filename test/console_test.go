package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// TestChromium_the_console_of_operators opens /console of one of two nodes. The file can kill and
// start nodes, and withdraw the key.
func TestChromium_the_console_of_operators(t *testing.T) {
	t.Parallel() // It waits more than it works.
	binary := build(t)
	key, file := apiKey(t, binary, "--scope", "stats,admin")
	viewer, viewers := apiKey(t, binary, "--scope", "stats")
	other, others := apiKey(t, binary, "--scope", "send")
	line, err := os.ReadFile(others)
	must(t, err)
	withdrawn := append([]byte("# other\n"), line...)
	first, err := os.ReadFile(file)
	must(t, err)
	first = append(first, "second"+string(line[len("console"):])...)
	line, err = os.ReadFile(viewers)
	must(t, err)
	must(t, os.WriteFile(file, append(first, "viewer"+string(line[len("console"):])...), 0o600))
	store, shared := postgres.Shared(t).Database(t), redis.Database(t)
	var nodes []*process
	for n := range 2 {
		p := processOf(t, binary)
		p.url, p.flags = store, []string{
			"--dev", "--redis", shared, "--node", fmt.Sprint("n", n+1), "--api-keys-file", file,
		}
		p.start()
		nodes = append(nodes, p)
	}
	control := http.NewServeMux()
	handle := func(path string, do func(*process)) {
		control.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			n, err := strconv.Atoi(r.FormValue("node"))
			if err != nil || n < 0 || n >= len(nodes) {
				http.Error(w, "which node?", http.StatusBadRequest)
				return
			}
			do(nodes[n])
		})
	}
	handle("/kill", func(p *process) {
		_ = p.process.Kill()
		_ = p.wait()
	})
	handle("/start", func(p *process) { p.start() })
	control.HandleFunc("POST /withdraw", func(w http.ResponseWriter, _ *http.Request) {
		if err := os.WriteFile(file, withdrawn, 0o600); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	calls := httptest.NewServer(control)
	t.Cleanup(calls.Close)
	inChromium(t, "console.test.mjs", "TIDEMARK_TEST_URL=http://"+nodes[0].address,
		"TIDEMARK_TEST_NODES=http://"+nodes[0].address+" http://"+nodes[1].address,
		"TIDEMARK_TEST_CONTROL="+calls.URL, "TIDEMARK_TEST_KEY="+key,
		"TIDEMARK_TEST_OTHER_KEY="+other, "TIDEMARK_TEST_VIEWER_KEY="+viewer)
}
