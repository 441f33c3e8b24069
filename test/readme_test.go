package test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readmeAddress is where the examples of the README and of the guides expect the server.
const readmeAddress = "127.0.0.1:8080"

// TestReadme_browser_code_works opens the page of the README in two windows of Chromium. With
// TIDEMARK_UPDATE=1 it replaces the README's pictures.
func TestReadme_browser_code_works(t *testing.T) {
	t.Parallel() // It waits more than it works.
	needClient(t)
	readme, err := os.ReadFile("../README.md")
	must(t, err)
	block := regexp.MustCompile("(?ms)^```html\n(.*?)^```$").FindStringSubmatch(string(readme))
	if block == nil {
		t.Fatal("the README has no html block")
	}
	address := serveDev(t)
	page := strings.ReplaceAll(block[1], readmeAddress, address)
	if strings.Count(page, address) == 0 {
		t.Fatalf("the page does not call %s:\n%s", readmeAddress, page)
	}
	// Where npm would install it, as python3 -m http.server would serve it.
	const installed = "/node_modules/@tidemark/client/"
	mux := http.NewServeMux()
	files := http.FileServer(http.Dir("../.build/package"))
	mux.Handle(installed, http.StripPrefix(installed, files))
	mux.HandleFunc("/chat.html", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
	})
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	env := []string{
		"TIDEMARK_TEST_URL=http://" + address, "TIDEMARK_TEST_PAGE=" + site.URL + "/chat.html",
	}
	if os.Getenv("TIDEMARK_UPDATE") != "" {
		env = append(env, "TIDEMARK_TEST_PICTURE=../../docs/two-windows.png",
			"TIDEMARK_TEST_DRAWER=../../docs/under-the-hood.png")
	}
	inChromium(t, "readme.test.mjs", env...)
}

// TestReadme_commands_lead_to_a_blue_tick runs the commands of docs/curl.md against a server
// of its own.
func TestReadme_commands_lead_to_a_blue_tick(t *testing.T) {
	t.Parallel() // It waits more than it works.
	eachStorage(t, func(t *testing.T, p *process) { readmeLeadsToABlueTick(t, p.serve()) })
}

// readmeLeadsToABlueTick runs the commands against a server in development mode with an empty
// database.
func readmeLeadsToABlueTick(t *testing.T, address string) {
	t.Helper()
	blocks := shellBlocks(guide(t, "curl.md"))
	output := runBlocks(t, blocks, address)

	for _, step := range []struct {
		rule  string
		block string // a word of the block that prints it
		want  []string
	}{
		{"the chat has an id", "CHAT=", []string{`the chat is [A-Za-z0-9_.:-]+\n`}},
		{"a confirmed send has its number", "Tea at five?", []string{`"sequence": ?1\b`}},
		{"bob received it, and nobody acknowledged", "cat bob.sse", []string{
			`(?m)^event: ?session$`, `(?m)^event: ?message$`, `Tea at five\?`,
			`"all_delivered": ?false`,
		}},
		{
			"an acknowledgement is the second tick",
			`"last_acked_sequence": 1`,
			[]string{`"last_acked_sequence": ?1\b`, `"all_delivered": ?true`},
		},
		{"alice was told of both, and of the reading last", "status_update alice.sse", []string{
			`(?s)"user_id": ?"bob","last_acked_sequence": ?1,"last_read_sequence": ?0\b.*` +
				`"user_id": ?"bob","last_acked_sequence": ?1,"last_read_sequence": ?1\b`,
		}},
	} {
		got, ok := outputOf(blocks, output, step.block)
		if !ok {
			t.Errorf("%s: no sh block of the page holds %q", step.rule, step.block)
			continue
		}
		for _, want := range step.want {
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%s: got\n%s\nwant a match of %s", step.rule, got, want)
			}
		}
	}
}

// shellBlocks returns the ```sh blocks in order, without those that call make: they start what this
// test starts itself.
func shellBlocks(markdown string) []string {
	var blocks []string
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	for _, match := range block.FindAllStringSubmatch(markdown, -1) {
		if !strings.HasPrefix(match[1], "make ") {
			blocks = append(blocks, match[1])
		}
	}
	return blocks
}

// runBlocks runs the blocks as one script, like in one terminal, and returns the output of each.
func runBlocks(t *testing.T, blocks []string, address string) []string {
	t.Helper()
	const mark = "=== end of block ===\n"
	// A person waits until they see something. The script waits longer than the page says, so that
	// a busy machine has done each step by then.
	const patient = "sleep() { case $1 in *.*) command sleep \"$1\";; " +
		"*) command sleep $(( $1 * 12 ));; esac; }\n"
	script := patient + strings.Join(blocks, "printf '"+strings.TrimSpace(mark)+`\n'`+"\n")
	script = strings.ReplaceAll(script, readmeAddress, address)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-u", "-o", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "NO_PROXY=*", "no_proxy=*")
	// If the script fails half-way, it leaves curl in the background. So end its whole process
	// group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatalf("the page's commands: %v\nstdout:\n%s\nstderr:\n%s",
			err, stdout.String(), stderr.String())
	}
	return strings.Split(stdout.String(), mark)
}

// outputOf returns the output of the first block that contains the text.
func outputOf(blocks, output []string, text string) (string, bool) {
	for i, block := range blocks {
		if strings.Contains(block, text) {
			return output[i], true
		}
	}
	return "", false
}

// TestReadme_rest_only runs the commands of the page on REST without a stream.
func TestReadme_rest_only(t *testing.T) {
	t.Parallel() // It waits more than it works.
	blocks := shellBlocks(guide(t, "rest-only.md"))
	output := runBlocks(t, blocks, serveDev(t))

	for _, step := range []struct{ rule, block, want string }{
		{"a pending row says where messages wait", `"$API/pending"`,
			`"pending":\[\{"chat_id":"[^"]+","first_undelivered_sequence":1\}\]`},
		{"the history has the message", "after_sequence=0", `What is the time\?`},
		{"a PATCH acknowledges", `"last_acked_sequence": 1`,
			`"last_acked_sequence":1,"last_read_sequence":0`},
		{"the sender sees that it is read", "for_sequence=1",
			`"sequence":1,.*"all_delivered":true.*"all_read":true`},
		{"an answer says which life the data have", "grep -i",
			`(?i)tidemark-incarnation: [a-z0-9]+`},
		{"positions of other data are refused", `"$API/sync"`,
			`"reset":\{"reason":"restored",.*"through":0`},
	} {
		got, ok := outputOf(blocks, output, step.block)
		if !ok {
			t.Errorf("%s: no sh block of the page holds %q", step.rule, step.block)
		} else if !regexp.MustCompile(step.want).MatchString(got) {
			t.Errorf("%s: got\n%s\nwant a match of %s", step.rule, got, step.want)
		}
	}
}

// TestReadme_presence runs the commands of the page on typing and presence.
func TestReadme_presence(t *testing.T) {
	t.Parallel() // It waits more than it works.
	blocks := shellBlocks(guide(t, "presence.md"))
	output := runBlocks(t, blocks, serveDev(t))

	for _, step := range []struct{ rule, block, want string }{
		{"a look gives all members", "after_event_id",
			`"presence","payload":\{[^{]*\{"user_id":"alice","online":true,.*"bob","online":false`},
		{"presence is read without a session", `bob "$API/presence`,
			`"visible":true,.*"user_id":"alice","online":true`},
		{"a user hides", `"visible": false`, `"visible":false`},
	} {
		got, ok := outputOf(blocks, output, step.block)
		if !ok {
			t.Errorf("%s: no sh block of the page holds %q", step.rule, step.block)
		} else if !regexp.MustCompile(step.want).MatchString(got) {
			t.Errorf("%s: got\n%s\nwant a match of %s", step.rule, got, step.want)
		}
	}
}

// TestReadme_backend_guide runs each curl command of docs/backend-guide.md with an API key.
func TestReadme_backend_guide(t *testing.T) {
	t.Parallel() // It waits for other processes.
	p := newProcess(t)
	key, keys := apiKey(t, p.binary)
	s := siteOf(p, "--api-keys-file", keys)

	const setting = `API=http://127.0.0.1:8080/api/v1
chat() {
  curl -fsS "$API/chats" -H 'Authorization: Bearer tmk_E2YT…' \
    -H 'Content-Type: application/json' -d "$1" | sed 's/.*"chat_id": *"\([^"]*\)".*/\1/'
}
CHAT=$(chat '{"type": "direct", "member_ids": ["alice", "bob"]}')
GROUP=$(chat '{"type": "group", "client_chat_id": "order-17", "member_ids": ["alice", "bob"]}')
`
	blocks := []string{setting}
	block := regexp.MustCompile("(?ms)^ *```\n( *curl .*?)^ *```$")
	for _, match := range block.FindAllStringSubmatch(guide(t, "backend-guide.md"), -1) {
		blocks = append(blocks, strings.NewReplacer("curl ", "curl -fsS ",
			"/chats/C", "/chats/$GROUP").Replace(match[1]))
	}
	for i, code := range blocks {
		blocks[i] = strings.ReplaceAll(code, "tmk_E2YT…", key)
	}
	output := runBlocks(t, blocks, s.address)
	for _, step := range []struct{ rule, block, want string }{
		{"a send for a user", "/messages", `"sender_id":"bob",.*"content":"Paid"`},
		{"a group is created once", "order-17\", \"member_ids", `"type":"group"`},
		{"its metadata change", "color", `"metadata":\{"color": ?"teal"\}`},
		{"a member's role and metadata change", "reader", `"role":"reader",.*"team": ?"blue"`},
		{"a token", "/tokens", `"token":"[^"]+"`},
		{"a ticket", "/tickets", `"ticket":"[^"]+"`},
		{"a user is signed out everywhere", "/sign-out", `"user_id":"bob","signed_out_at":"[^"]+"`},
		{"the end of all sessions", "-X DELETE", `^$`},
	} {
		got, ok := outputOf(blocks[1:], output[1:], step.block)
		if !ok {
			t.Errorf("%s: no command of the page has %q", step.rule, step.block)
		} else if !regexp.MustCompile(step.want).MatchString(strings.TrimSpace(got)) {
			t.Errorf("%s: got\n%s\nwant a match of %s", step.rule, got, step.want)
		}
	}
	if want := 8; len(blocks)-1 != want {
		t.Errorf("the page has %d commands with curl, and %d are looked at", len(blocks)-1, want)
	}
}
