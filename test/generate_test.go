package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/test/mutate/table"
)

// TestGenerate_committed_file_is_what_the_contract_gives: transports/rest/api.gen.go is generated
// from openapi.yaml.
func TestGenerate_committed_file_is_what_the_contract_gives(t *testing.T) {
	const output = "output: api.gen.go"
	out, config := filepath.Join(t.TempDir(), "api.gen.go"), filepath.Join(t.TempDir(),
		"config.yaml")
	rest := filepath.Join("..", "transports", "rest")
	committed, err := os.ReadFile(filepath.Join(rest, "oapi-codegen.yaml"))
	if err != nil || !bytes.Contains(committed, []byte(output)) {
		t.Fatalf("oapi-codegen.yaml: %v, or it lacks %q", err, output)
	}
	text := bytes.Replace(committed, []byte(output), []byte("output: "+out), 1)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "tool", "oapi-codegen", "-config",
		config, "../../openapi.yaml")
	cmd.Dir = rest // the overlay that the configuration names is there
	if message, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, message)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(rest, "api.gen.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Error("api.gen.go is out of date: run go generate ./transports/rest")
	}
}

// TestGenerate_invariants_page_has_the_places_of_the_anchors: docs/internals/invariants.md lists
// where each rule is kept.
func TestGenerate_invariants_page_has_the_places_of_the_anchors(t *testing.T) {
	got, err := os.ReadFile("../docs/internals/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := table.Page(string(got), anchors(t), breaks(t))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/internals/invariants.md is out of date: run make invariants")
	}
}
