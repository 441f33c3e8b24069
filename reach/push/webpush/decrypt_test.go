package webpush

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/pushtest/fakewebpush"
)

// packages is where `make push-deps` installs http_ece, another implementation of RFC 8188.
const packages = "../../../.build/push/node_modules"

// TestWebPush_decrypted_by_another_implementation: what the push service got is read by http_ece in
// Node, whatever its length.
func TestWebPush_decrypted_by_another_implementation(t *testing.T) {
	s, fake := connect(t, newKey(t))
	var want []push.Data
	for _, length := range []int{1, 100, 255, 256, 3_000, 5_000} {
		n := banner(push.Banner)
		n.Body = strings.Repeat("🍜", length)
		if r := s.Provider.Send(t.Context(), s.Targets[0], n); r.Outcome != push.Sent {
			t.Fatalf("the result is %+v; the fake says %q", r, s.Server.Refusals())
		}
		want = append(want, s.Server.Received()[0].Data)
	}
	var bodies [][]byte
	s.Server.Do(func() { bodies = fake.Bodies })
	var got []push.Data
	for _, text := range decrypted(t, fake, bodies) {
		var data push.Data
		if err := json.Unmarshal([]byte(text), &data); err != nil {
			t.Fatalf("http_ece reads %q: %v", text, err)
		}
		got = append(got, data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what http_ece reads (-want +got):\n%s", diff)
	}
}

// decrypted returns what http_ece reads.
func decrypted(t *testing.T, fake *fakewebpush.WebPush, bodies [][]byte) (texts []string) {
	t.Helper()
	installed, err := filepath.Abs(packages)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(installed + "/http_ece"); err != nil {
		t.Fatalf("http_ece is not installed; run make push-deps: %v", err)
	}
	input := struct {
		Private string   `json:"private"`
		Auth    string   `json:"auth"`
		Bodies  []string `json:"bodies"`
	}{}
	input.Private, input.Auth = fake.Device.Secrets()
	for _, body := range bodies {
		input.Bodies = append(input.Bodies, base64.RawURLEncoding.EncodeToString(body))
	}
	in, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "node", "testdata/decrypt.js", installed+"/x")
	command.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, stderr.String())
	}
	if err := json.Unmarshal(out, &texts); err != nil {
		t.Fatalf("node writes %q: %v", out, err)
	}
	return texts
}
