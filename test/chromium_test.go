package test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The tests in browser/ are in JavaScript, like the page. Each file is one test here.

func TestChromium_plain_EventSource_resumes_by_itself(t *testing.T) {
	t.Parallel() // It waits more than it works.
	onSite(t, "eventsource.test.mjs")
}

func TestChromium_the_page_shows_delivery_as_it_is(t *testing.T) {
	t.Parallel() // It waits more than it works.
	inChromium(t, "app.test.mjs", "TIDEMARK_TEST_URL=http://"+serveDev(t))
}

func TestChromium_the_page_of_long_chats(t *testing.T) {
	t.Parallel() // It waits more than it works.
	inChromium(t, "page.test.mjs", "TIDEMARK_TEST_URL=http://"+serveDev(t))
}

func TestChromium_the_page_for_everybody(t *testing.T) {
	t.Parallel() // It waits more than it works.
	inChromium(t, "access.test.mjs", "TIDEMARK_TEST_URL=http://"+serveDev(t))
}

func TestChromium_the_page_notifies(t *testing.T) {
	t.Parallel() // It waits more than it works.
	inWholeChromium(t, "notify.test.mjs", "TIDEMARK_TEST_URL=http://"+serveDev(t))
}

// TestChromium_the_page_with_files: the page calls the server, or a bucket with the guide's CORS
// rule.
func TestChromium_the_page_with_files(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *process) {
		inChromium(t, "files.test.mjs", "TIDEMARK_TEST_URL=http://"+p.address)
	})
}

// TestChromium_the_page_shows_who_is_online also uses the client's presence in Node.
func TestChromium_the_page_shows_who_is_online(t *testing.T) {
	t.Parallel() // It waits more than it works.
	needWeb(t)
	p := newProcess(t)
	p.flags = append(p.flags, "--last-seen")
	inChromium(t, "presence.test.mjs", "TIDEMARK_TEST_URL=http://"+p.serve())
}

func TestChromium_the_page_on_a_server_for_others(t *testing.T) {
	t.Parallel() // It waits more than it works.
	onSite(t, "site.test.mjs")
}

// TestChromium_the_code_of_the_client_guide runs the blocks of JavaScript of docs/client-guide.md
// and of docs/migrate.md.
func TestChromium_the_code_of_the_client_guide(t *testing.T) {
	t.Parallel() // It waits more than it works.
	needClient(t)
	onSite(t, "guide.test.mjs")
}

// TestChromium_the_code_of_the_guides installs the client by the commands of docs/quickstart.md. It
// runs the code of that guide, of docs/react.md and docs/nextjs.md, and of the client's README.
func TestChromium_the_code_of_the_guides(t *testing.T) {
	t.Parallel() // It waits more than it works.
	needWeb(t)
	needClient(t)
	lookPath(t, "npm", "nodejs npm")
	root, err := filepath.Abs("..")
	must(t, err)
	place := t.TempDir()
	// The package has no dependencies, so npm asks no registry.
	setting := "cd '" + place + "'; REPOSITORY='" + root + "'\n" +
		"export npm_config_offline=true npm_config_audit=false npm_config_update_notifier=false\n"
	runBlocks(t, append([]string{setting}, shellBlocks(guide(t, "quickstart.md"))...), "")
	p := newProcess(t)
	address := p.serve()
	token := func(user, _ string) string { return "dev:" + user }
	inChromium(t, "docs.test.mjs",
		append(controlledBy(t, p, address, token), "TIDEMARK_TEST_PLACE="+place)...)
}

func TestChromium_client_store(t *testing.T) {
	t.Parallel() // It waits for the disk more than it works.
	needWeb(t)
	inChromium(t, "store.test.mjs")
}

func TestChromium_client_tabs(t *testing.T) {
	t.Parallel() // It waits more than it works.
	needWeb(t)
	inChromium(t, "tabs.test.mjs")
}

func TestChromium_client_react(t *testing.T) {
	t.Parallel() // It waits more than it works.
	needWeb(t)
	inChromium(t, "react.test.mjs", "TIDEMARK_TEST_URL=http://"+serveDev(t))
}

// onSite runs a file against a server without --dev. The file can stop and start the server, kill
// it, replace its data by an earlier copy, and request tokens.
func onSite(t *testing.T, file string, env ...string) {
	t.Helper()
	s := newSite(t)
	inChromium(t, file, append(env, controlled(t, s)...)...)
}

// controlled returns variables that name a site, and where a file of browser/ controls it.
func controlled(t *testing.T, s *site) []string {
	t.Helper()
	return controlledBy(t, s.process, s.address, func(user, ttl string) string {
		return s.run("token", "--user", user, "--ttl", ttl)
	})
}

func controlledBy(
	t *testing.T, p *process, address string, token func(user, ttl string) string,
) []string {
	t.Helper()
	older := restoredBy("cp")(t, p)
	control := http.NewServeMux()
	for what, do := range map[string]func(){
		"stop": func() { p.stop() }, "start": func() { p.start() },
		"backup": older.backup, "restore": older.restore,
		"kill": func() {
			_ = p.process.Kill()
			_ = p.wait()
		},
	} {
		control.HandleFunc("POST /"+what, func(http.ResponseWriter, *http.Request) { do() })
	}
	control.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, token(r.FormValue("user"), r.FormValue("ttl")))
	})
	// A failure in a handler marks the test as failed. The file gets no answer and ends.
	calls := httptest.NewServer(control)
	t.Cleanup(calls.Close)
	return []string{"TIDEMARK_TEST_URL=http://" + address, "TIDEMARK_TEST_CONTROL=" + calls.URL}
}

// inChromium runs one file of browser/ with node, in Chromium's headless shell: the same engine
// without the browser's windows and services, at a third of the CPU for a window.
func inChromium(t *testing.T, file string, env ...string) {
	t.Helper()
	inNode(t, file, append(env, "TIDEMARK_TEST_CHROMIUM="+chromium(t, "chromium-headless-shell",
		"chromium", "chromium-browser"))...)
}

// inWholeChromium is inChromium for what the shell lacks, such as notifications.
func inWholeChromium(t *testing.T, file string, env ...string) {
	t.Helper()
	inNode(t, file,
		append(env, "TIDEMARK_TEST_CHROMIUM="+chromium(t, "chromium", "chromium-browser"))...)
}

// browsers has room for one file of browser/ more than there are cores. With more browsers at a
// time, no file ends sooner, and on a slow machine each is so slow that it reaches its deadlines.
var browsers = make(chan struct{}, runtime.NumCPU()+1)

func inNode(t *testing.T, file string, env ...string) {
	t.Helper()
	browsers <- struct{}{}
	defer func() { <-browsers }()
	node := lookPath(t, "node", "nodejs npm")
	needDrivers(t)
	cmd := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=spec", file)
	cmd.Dir = "browser"
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", file, err, failures(out))
	}
	t.Logf("%s", out)
}

// failures returns the part of a report that says why tests failed, or all of it: a log may be cut,
// and the reasons are at its end.
func failures(report []byte) []byte {
	if i := bytes.LastIndex(report, []byte("✖ failing tests:")); i >= 0 {
		return report[i:]
	}
	return report
}

// TestFailures_are_what_is_shown of a report.
func TestFailures_are_what_is_shown(t *testing.T) {
	for report, want := range map[string]string{
		"✔ one\n✖ two\n✖ failing tests:\n✖ two\n  because": "✖ failing tests:\n✖ two\n  because",
		"it did not start": "it did not start",
	} {
		if got := failures([]byte(report)); string(got) != want {
			t.Errorf("of %q: %q, want %q", report, got, want)
		}
	}
}

// chromium returns the path of the first of these programs that is there. TIDEMARK_CHROMIUM names
// one for all tests.
func chromium(t *testing.T, names ...string) string {
	t.Helper()
	if name := os.Getenv("TIDEMARK_CHROMIUM"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return lookPath(t, names[0], names[0])
}

func lookPath(t *testing.T, name, packages string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing. Run this, then the test again:\n"+
			"  apt-get update && apt-get install -y --no-install-recommends %s", name, packages)
	}
	return path
}

// needDrivers fails unless the libraries that drive browsers are where the files of browser/ look
// for them.
func needDrivers(t *testing.T) {
	t.Helper()
	for _, name := range []string{"playwright-core", "puppeteer-core"} {
		if _, err := os.Stat("../.build/browser/node_modules/" + name); err != nil {
			t.Fatalf("%s is missing (%v). Run this, then the test again:\n"+
				"  make browser-deps", name, err)
		}
	}
}

// needWeb fails unless esbuild is where browser/client.mjs looks for it.
func needWeb(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("../.build/web/node_modules/esbuild"); err != nil {
		t.Fatalf("esbuild is missing (%v). Run this, then the test again:\n  make web-deps", err)
	}
}

// needClient fails unless the package of the client is there, and newer than its sources.
func needClient(t *testing.T) {
	t.Helper()
	const how = "Run this, then the test again:\n  make client"
	packed, err := os.Stat("../bin/tidemark-client.tgz")
	if err != nil {
		t.Fatalf("the package of the client is missing (%v). %s", err, how)
	}
	older := func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		source, err := entry.Info()
		if err == nil && source.ModTime().After(packed.ModTime()) {
			t.Fatalf("%s is newer than the package of the client. %s", source.Name(), how)
		}
		return err
	}
	must(t, filepath.WalkDir("../web/client/src", older))
}
