package test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testRelease is the version that the tests of releases build, for this system only.
const testRelease = "0.0.1-test.1"

// releaseOf builds a release from a clone of the tree at a place of its own, and returns the files.
func releaseOf(t *testing.T) map[string][]byte {
	t.Helper()
	source := copyContext(t)
	out := filepath.Join(t.TempDir(), "release")
	script := `set -e
git init -q && git add -A
git -c user.name=test -c user.email=test@localhost commit -q --date '2026-01-02T03:04:05Z' -m test
mkdir -p .build && ln -s "$BUILD/web" .build/web
make release VERSION=v` + testRelease + ` RELEASE="$OUT" ARGS='-only linux/amd64'`
	build := exec.Command("bash", "-c", script)
	build.Dir = source
	top, err := filepath.Abs("../.build")
	if err != nil {
		t.Fatal(err)
	}
	build.Env = append(os.Environ(), "BUILD="+top, "OUT="+out,
		"GIT_COMMITTER_DATE=2026-01-02T03:04:05Z", "GOFLAGS=-mod=readonly")
	if printed, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, printed)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(out, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestRelease_is_reproducible_and_whole builds a release twice, at two places, and looks into it.
func TestRelease_is_reproducible_and_whole(t *testing.T) {
	t.Parallel()
	files := releaseOf(t)
	for name, content := range releaseOf(t) {
		if !bytes.Equal(files[name], content) {
			t.Errorf("%s of two builds differ", name)
		}
	}
	var names []string
	for _, kind := range []string{
		"tidemark-V-image.tar", "tidemark-V-linux-amd64.tar.gz", "tidemark-V-sbom.json",
		"tidemark-chart-V.tgz", "tidemark-client-V.tgz",
	} {
		names = append(names, strings.ReplaceAll(kind, "V", testRelease))
	}
	var sums strings.Builder
	for _, name := range names {
		sum := sha256.Sum256(files[name])
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum[:]), name)
	}
	if diff := cmp.Diff(sums.String(), string(files["SHA256SUMS"])); diff != "" {
		t.Errorf("SHA256SUMS (-want +got):\n%s", diff)
	}
	if len(files) != len(names)+1 {
		t.Errorf("it has %d files, want %d", len(files), len(names)+1)
	}

	top := "tidemark-" + testRelease + "-linux-amd64/"
	packed := unpack(t, gunzip(t, files[names[1]]))
	program := packed[top+"tidemark"]
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "tidemark.service"} {
		if len(packed[top+name]) == 0 {
			t.Errorf("the archive has no %s", name)
		}
	}
	file := filepath.Join(t.TempDir(), "tidemark")
	if err := os.WriteFile(file, program, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(file, "version").Output(); err != nil ||
		string(out) != "tidemark v"+testRelease+"\n" {
		t.Errorf("version: %v: %s", err, out)
	}
	wantStatic(t, file)
	checkImage(t, unpack(t, files[names[0]]), program)
	checkParts(t, files[names[2]])
	checkChart(t, files[names[3]])
	client := unpack(t, gunzip(t, files[names[4]]))
	var manifest struct{ Name, Version string }
	err := json.Unmarshal(client["package/package.json"], &manifest)
	if err != nil || manifest.Name != "@tidemark/client" || manifest.Version != testRelease ||
		len(client["package/dist/index.js"]) == 0 {
		t.Errorf("the npm package is %+v, %v", manifest, err)
	}
}

// checkImage checks an OCI layout: each blob has the sum that names it, the image has the program,
// and its configuration is that of the Dockerfile.
func checkImage(t *testing.T, blobs map[string][]byte, program []byte) {
	t.Helper()
	type descriptor struct {
		MediaType, Digest string
		Size              int
		Platform          struct{ OS, Architecture string }
		Annotations       map[string]string
	}
	read := func(d descriptor, into any) {
		t.Helper()
		content := blobs["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		sum := sha256.Sum256(content)
		if "sha256:"+hex.EncodeToString(sum[:]) != d.Digest || len(content) != d.Size {
			t.Errorf("%s %s has another sum or size", d.MediaType, d.Digest)
		}
		if raw, ok := into.(*[]byte); ok {
			*raw = content
		} else if err := json.Unmarshal(content, into); err != nil {
			t.Error(err)
		}
	}
	type index struct{ Manifests []descriptor }
	var named, images index
	if err := json.Unmarshal(blobs["index.json"], &named); err != nil || len(named.Manifests) != 1 {
		t.Fatalf("index.json: %s, %v", blobs["index.json"], err)
	}
	ref := named.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
	if ref != "v"+testRelease {
		t.Errorf("the layout is named %q", ref)
	}
	read(named.Manifests[0], &images)
	if len(images.Manifests) != 1 || images.Manifests[0].Platform.OS != "linux" ||
		images.Manifests[0].Platform.Architecture != "amd64" {
		t.Fatalf("the images are %+v", images)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(images.Manifests[0], &manifest)
	if len(manifest.Layers) != 1 {
		t.Fatalf("the image has %d layers", len(manifest.Layers))
	}
	var layer []byte
	read(manifest.Layers[0], &layer)
	files := unpack(t, gunzip(t, layer))
	if !bytes.Equal(files["tidemark"], program) {
		t.Error("the program of the image is not that of the archive")
	}
	if n := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERT")); n < 100 {
		t.Errorf("the image has %d certificates", n)
	}
	if _, there := files["data/"]; !there {
		t.Error("the image has no /data")
	}
	var configured struct {
		OS, Architecture string
		Config           struct {
			User                 string
			Env, Entrypoint, Cmd []string
			Volumes              map[string]any
			ExposedPorts         map[string]any
			Healthcheck          struct{ Test []string }
		}
	}
	read(manifest.Config, &configured)
	c, stages := configured.Config, dockerfile(t)
	image := stages[len(stages)-1]
	quoted := func(words []string) string {
		b, err := json.Marshal(words)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(b), ",", ", ")
	}
	_, health, _ := strings.Cut(image.all("HEALTHCHECK")[0], " CMD ")
	for verb, got := range map[string]string{
		"USER": c.User, "ENV": strings.Join(c.Env, " "), "ENTRYPOINT": quoted(c.Entrypoint),
		"CMD": quoted(c.Cmd), "VOLUME": one(t, c.Volumes),
		"EXPOSE": strings.TrimSuffix(one(t, c.ExposedPorts), "/tcp"),
	} {
		if want := image.all(verb)[0]; got != want {
			t.Errorf("%s of the image is %s, and that of the Dockerfile %s", verb, got, want)
		}
	}
	if got := quoted(c.Healthcheck.Test[1:]); got != health {
		t.Errorf("the image checks its health by %s, the Dockerfile by %s", got, health)
	}
}

// checkParts checks that the list of parts has each module that the program is built from.
func checkParts(t *testing.T, list []byte) {
	t.Helper()
	var parts struct {
		BomFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(list, &parts); err != nil || parts.BomFormat != "CycloneDX" {
		t.Fatalf("the list of parts: %v\n%s", err, list)
	}
	listed := map[string]bool{}
	for _, p := range parts.Components {
		listed[p.Name] = p.Version != "" && p.Purl == "pkg:golang/"+p.Name+"@"+p.Version
	}
	build := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}"+
		"{{end}}{{end}}", "./cmd/tidemark")
	build.Dir = ".."
	out, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range append(strings.Fields(string(out)), "std") {
		if !listed[module] {
			t.Errorf("%s is not listed with its version", module)
		}
	}
}

// checkChart renders the packed chart.
func checkChart(t *testing.T, chart []byte) {
	t.Helper()
	if out, err := buildHelm(); err != nil {
		t.Fatalf("scripts/helm-deps: %v\n%s", err, out)
	}
	dir := t.TempDir()
	for name, content := range unpack(t, gunzip(t, chart)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("../.build/helm", filepath.Join(dir, "tidemark")).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderrOf(err))
	}
	if !strings.Contains(string(out), "tidemark:v"+testRelease) {
		t.Errorf("the chart does not name the image of the release:\n%s", out)
	}
}

// TestRelease_refuses_what_is_no_release asks for versions that are none, and for a changed tree.
func TestRelease_refuses_what_is_no_release(t *testing.T) {
	program := filepath.Join(t.TempDir(), "release")
	build := exec.Command("go", "build", "-C", "../tools/release", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tree := t.TempDir()
	script := `git init -q && echo a > a && git add a &&
git -c user.name=test -c user.email=test@localhost commit -q -m test && echo b > a`
	prepare := exec.Command("bash", "-c", script)
	prepare.Dir = tree
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ version, out, want string }{
		{"", "o", "must be like v1.2.3"},
		{"1.2.3", "o", "must be like v1.2.3"},
		{"v1.2", "o", "must be like v1.2.3"},
		{"v1.2.3-dirty+x", "o", "must be like v1.2.3"},
		{"v1.02.3", "o", "must be like v1.2.3"},
		{"dev", "o", "make release VERSION=v1.2.3"},
		{"v1.2.3", "", "-out is required"},
		{"v1.2.3", full, "is not empty"},
		{"v1.2.3", "o", "the tree has changes"},
	} {
		command := exec.Command(program, "-version", tc.version, "-out", tc.out)
		command.Dir = tree
		out, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%q into %q: %v, %s; want %q", tc.version, tc.out, err, out, tc.want)
		}
	}
	if files, err := os.ReadDir(tree); err != nil || len(files) != 2 {
		t.Errorf("it left %v, %v", files, err)
	}
}

func one(t *testing.T, set map[string]any) string {
	t.Helper()
	for name := range set {
		if len(set) == 1 {
			return name
		}
	}
	t.Errorf("%v, want one", set)
	return ""
}

func gunzip(t *testing.T, content []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// unpack returns the files of a tar archive, and its directories with a slash behind them.
func unpack(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	var names []string
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(names) != len(files) || len(slices.Compact(names)) != len(files) {
		t.Errorf("a file is there twice: %q", names)
	}
	return files
}
