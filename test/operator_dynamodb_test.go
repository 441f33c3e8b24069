package test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// TestOperations_dynamodb_tables_are_made_by_the_commands runs the commands of docs/dynamodb.md
// unchanged, with the emulator's URL.
func TestOperations_dynamodb_tables_are_made_by_the_commands(t *testing.T) {
	t.Parallel()
	o := newOperator(t, nil)
	o.guide = guide(t, "dynamodb.md")
	url := dynamodb.Shared(t).Store(t)
	script := strings.NewReplacer("dynamodb://eu-central-1/tidemark-", url, "/etc/tidemark",
		o.dir).Replace(o.block("## Tables\n"))
	command := exec.Command("bash", "-euo", "pipefail", "-c", script)
	command.Dir = o.dir
	command.Env = append(environment(), "PATH="+filepath.Dir(o.binary)+":"+os.Getenv("PATH"))
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderrOf(err))
	}
	name, _, _ := strings.Cut(url, "?")
	want := name + ": schema 2, compatible 1, needed 2\n"
	if !strings.HasSuffix(string(out), want) {
		t.Errorf("the commands said %q, want %q at the end", out, want)
	}
	if o.store() != url {
		t.Errorf("the environment file has the store %q, want %q", o.store(), url)
	}
	s := o.site()
	alice := s.user("alice", "http://"+s.address, nil)
	alice.call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "c", "member_ids": []string{"bob"}}, nil)
}

// actions returns the actions that a policy of docs/dynamodb.md allows: the next block behind each
// of the words.
func actions(t *testing.T, o *operator, words string) []string {
	t.Helper()
	var policy struct {
		Statement []struct {
			Action   []string
			Resource any
		}
	}
	if err := json.Unmarshal([]byte(o.block(words)), &policy); err != nil {
		t.Fatalf("the policy behind %q: %v", words, err)
	}
	var all []string
	for _, s := range policy.Statement {
		all = append(all, s.Action...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestOperations_dynamodb_policies: the policies of docs/dynamodb.md allow exactly the calls that
// are made. Migrate's is compared with the calls in the source of the migration. Serve's is
// compared with the role in deploy/aws, which another test compares with the store's calls.
func TestOperations_dynamodb_policies(t *testing.T) {
	o := &operator{t: t, guide: guide(t, "dynamodb.md")}
	called := map[string]bool{}
	files, err := filepath.Glob("../storage/dynamodb/internal/schema/*.go")
	must(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		calls := regexp.MustCompile(`s\.api\.([A-Z]\w+)`)
		for _, call := range calls.FindAllStringSubmatch(string(source), -1) {
			called["dynamodb:"+call[1]] = true
		}
	}
	var migrate []string
	for action := range called {
		migrate = append(migrate, action)
	}
	slices.Sort(migrate)
	if diff := cmp.Diff(migrate, actions(t, o, "The one for `migrate`")); diff != "" {
		t.Errorf("the policy for migrate (-called +allowed):\n%s", diff)
	}
	stack, err := os.ReadFile("../deploy/aws/tidemark.yaml")
	must(t, err)
	_, role, _ := strings.Cut(string(stack), "  ServeRole:\n")
	role, _, _ = strings.Cut(role, "  MigrateRole:\n")
	serve := regexp.MustCompile(`dynamodb:\w+`).FindAllString(role, -1)
	slices.Sort(serve)
	if diff := cmp.Diff(slices.Compact(serve), actions(t, o, "The one for `serve`")); diff != "" {
		t.Errorf("the policy for serve (-deploy/aws +page):\n%s", diff)
	}
}
