package test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// The files in deploy/ other than the proxies' configurations. The tests need no container engine:
// they read the Dockerfile, and run its commands.

// TestDocker_image_is_static_small_and_nobody reads the Dockerfile and builds from what it would
// copy. It starts the result in an empty environment.
func TestDocker_image_is_static_small_and_nobody(t *testing.T) {
	stages := dockerfile(t)
	if len(stages) != 2 || stages[0].name != "build" || stages[1].from != "scratch" {
		t.Fatalf("stages %+v, want build, and one from scratch", stages)
	}
	build, image := stages[0], stages[1]
	for _, stage := range stages {
		for _, line := range stage.lines {
			if line.verb == "ADD" || strings.Contains(line.rest, "curl ") ||
				strings.Contains(line.rest, "wget ") {
				t.Errorf("%s %s: what is fetched by hand is not checked by anybody; go.sum is",
					line.verb, line.rest)
			}
		}
	}
	got := strings.TrimSuffix(strings.TrimPrefix(build.from, "golang:"), "-bookworm")
	if want := goVersion(t); got != want {
		t.Errorf("it is built with Go %s, and go.mod says %s", got, want)
	}
	for verb, want := range map[string]string{
		"USER": "65532:65532", "VOLUME": "/data", "ENTRYPOINT": `["/tidemark"]`, "CMD": `["serve"]`,
		"EXPOSE": "8080",
		"ENV":    "TIDEMARK_LISTEN=:8080 TIDEMARK_STORE=sqlite:/data/tidemark.db",
	} {
		if got := image.all(verb); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q once", verb, got, want)
		}
	}
	if got := image.all("HEALTHCHECK"); len(got) != 1 ||
		!strings.HasSuffix(got[0], `CMD ["/tidemark", "health"]`) {
		t.Errorf("HEALTHCHECK %q: there is no shell to run it", got)
	}
	if got := image.all("RUN"); got != nil {
		t.Errorf("RUN %q: there is nothing to run it", got)
	}

	// The build, in a directory with what COPY . . would copy.
	want := []string{"go mod download", `make build VERSION="$VERSION"`, "mkdir /data"}
	if got := build.all("RUN"); !slices.Equal(got, want) {
		t.Fatalf("RUN %q, want %q, which this test does", got, want)
	}
	source := copyContext(t)
	run := exec.Command("bash", "-c", want[1])
	run.Dir = source
	run.Env = append(os.Environ(), "VERSION=of-a-test", "GOFLAGS=-mod=readonly")
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", want[1], err, out)
	}
	binary := filepath.Join(source, "bin", "tidemark")
	wantStatic(t, binary)
	if info, err := os.Stat(binary); err != nil || info.Size() > 55e6 {
		t.Errorf("the program: %v, %v, want at most 55 MB", info.Size(), err)
	}

	// As in the image: an empty environment and a directory for data.
	s := siteOf(processOf(t, binary))
	if got := s.run("version"); got != "tidemark of-a-test" {
		t.Errorf("version: %q", got)
	}
	health := exec.Command(binary, "health")
	health.Env = []string{"TIDEMARK_LISTEN=" + s.address}
	if out, err := health.CombinedOutput(); err != nil {
		t.Errorf("health: %v: %s", err, out)
	}
	s.stop()
	health = exec.Command(binary, "health")
	health.Env = []string{"TIDEMARK_LISTEN=" + s.address}
	if out, err := health.CombinedOutput(); err == nil {
		t.Errorf("the server is gone, and health says: %s", out)
	}
}

// stage is a part of a Dockerfile from one FROM to the next.
type stage struct {
	from, name string
	lines      []instruction
}

type instruction struct{ verb, rest string }

func (s stage) all(verb string) (rests []string) {
	for _, line := range s.lines {
		if line.verb == verb {
			rests = append(rests, line.rest)
		}
	}
	return rests
}

func dockerfile(t *testing.T) (stages []stage) {
	t.Helper()
	text, err := os.ReadFile("../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case verb == "" || strings.HasPrefix(verb, "#"):
		case verb == "FROM":
			from, name, _ := strings.Cut(rest, " AS ")
			stages = append(stages, stage{from: from, name: name})
		case len(stages) == 0 || verb != strings.ToUpper(verb):
			t.Fatalf("%q is no instruction of a stage", line)
		default:
			last := &stages[len(stages)-1]
			last.lines = append(last.lines, instruction{verb, rest})
		}
	}
	return stages
}

// goVersion returns the version of go.mod without its patch.
func goVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("go.mod names no version")
	}
	return string(found[1])
}

// copyContext copies the files that git knows, as a clean checkout has them. The test shows that
// the build needs no file that the dockerignore file leaves out.
func copyContext(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("bash", "-c", `cd .. &&
		git ls-files -z --cached --others --exclude-standard |
		tar --null --files-from=- --ignore-failed-read -cf - | tar -xf - -C "$0"`, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copying the tree: %v\n%s", err, out)
	}
	return dir
}

// wantStatic: a program that needs an interpreter or a library does not start in an image from
// scratch.
func wantStatic(t *testing.T, binary string) {
	t.Helper()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs the libraries %q (%v)", libraries, err)
	}
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP {
			t.Error("it needs an interpreter")
		}
	}
}

// TestSystemd_unit_is_valid_and_hardened runs systemd-analyze, which needs no running systemd.
func TestSystemd_unit_is_valid_and_hardened(t *testing.T) {
	analyze := lookPath(t, "systemd-analyze", "systemd")
	text, err := os.ReadFile("../deploy/systemd/tidemark.service")
	if err != nil {
		t.Fatal(err)
	}
	wait := regexp.MustCompile(`(?m)^TimeoutStopSec=(\S+)$`).FindSubmatch(text)
	if wait == nil || !longerThanDrain(t, string(wait[1])) {
		t.Errorf("TimeoutStopSec is %q, which must be longer than a drain", wait)
	}
	// exposure is at most 20 of 100; a unit without hardening has 96.
	const program, exposure = "ExecStart=/usr/local/bin/tidemark ", "20"
	if !bytes.Contains(text, []byte(program)) {
		t.Fatalf("the unit does not say %q", program)
	}
	unit := filepath.Join(t.TempDir(), "tidemark.service")
	// The program of the unit must exist.
	text = bytes.ReplaceAll(text, []byte(program), []byte("ExecStart=/bin/true "))
	if err := os.WriteFile(unit, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// systemd ignores what it does not know, and prints a warning.
	out, err := exec.Command(analyze, "verify", unit).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	if out, err := exec.Command(analyze, "security", "--offline=true",
		"--threshold="+exposure, unit).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}

// TestCompose_runs_what_the_image_needs: the container is read-only and without rights, and has
// more time to stop than the server needs.
func TestCompose_runs_what_the_image_needs(t *testing.T) {
	text, err := os.ReadFile("../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Build       struct{ Context, Dockerfile string }
			Environment map[string]string
			Ports       []string
			Volumes     []string
			ReadOnly    bool     `yaml:"read_only"`
			CapDrop     []string `yaml:"cap_drop"`
			StopGrace   string   `yaml:"stop_grace_period"`
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	service, ok := compose.Services["tidemark"]
	if !ok || !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) ||
		!longerThanDrain(t, service.StopGrace) {
		t.Errorf("the service is %+v", service)
	}
	dockerfile := filepath.Join("../deploy", service.Build.Context, service.Build.Dockerfile)
	if _, err := os.Stat(dockerfile); err != nil {
		t.Error(err)
	}
	if !slices.Equal(service.Volumes, []string{"data:/data"}) || compose.Volumes == nil {
		t.Errorf("volumes %q of %v", service.Volumes, compose.Volumes)
	}
	for _, port := range service.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:") {
			t.Errorf("the port %s is open to everybody, without TLS", port)
		}
	}
	for name := range service.Environment {
		if !slices.Contains(serveVariables(t), name) {
			t.Errorf("the variable %s is none of the server's", name)
		}
	}
}

// TestCompose_with_postgres: with the second file, Tidemark uses, migrates and awaits a database
// that only it reaches.
func TestCompose_with_postgres(t *testing.T) {
	text, err := os.ReadFile("../deploy/compose.postgres.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Image       string
			Environment map[string]string
			Ports       []string
			Volumes     []string
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
			HealthCheck struct{ Test []string }
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	tidemark, database := compose.Services["tidemark"], compose.Services["postgres"]
	if tidemark.DependsOn["postgres"].Condition != "service_healthy" ||
		len(database.HealthCheck.Test) == 0 {
		t.Errorf("the server does not wait for the database: %+v, %+v", tidemark, database)
	}
	for name := range tidemark.Environment {
		if !slices.Contains(serveVariables(t), name) {
			t.Errorf("the variable %s is none of the server's", name)
		}
	}
	// compose.yaml inserts the password like this.
	store := regexp.MustCompile(`\$\{POSTGRES_PASSWORD:[^}]*\}`).
		ReplaceAllString(tidemark.Environment["TIDEMARK_STORE"], "secret")
	e := database.Environment
	want := fmt.Sprintf("postgres://%s:secret@postgres:5432/%s",
		e["POSTGRES_USER"], e["POSTGRES_DB"])
	if store != want || tidemark.Environment["TIDEMARK_MIGRATE"] != "true" {
		t.Errorf("the store is %s, migrated: %s; want %s",
			store, tidemark.Environment["TIDEMARK_MIGRATE"], want)
	}
	_, named := compose.Volumes["postgres"]
	volumes := []string{"postgres:/var/lib/postgresql/data"}
	if !named || !slices.Equal(database.Volumes, volumes) || database.Ports != nil {
		t.Errorf("the database has the volumes %q of %v, and the ports %q",
			database.Volumes, compose.Volumes, database.Ports)
	}
}

// longerThanDrain reports whether the time suffices for the server's stop with its default
// settings, with ten seconds to spare.
func longerThanDrain(t *testing.T, wait string) bool {
	t.Helper()
	whole, err := time.ParseDuration(wait)
	if err != nil {
		t.Fatal(err)
	}
	drain := 10 * time.Second
	for _, flag := range []string{"drain-delay", "drain-deadline"} {
		found := regexp.MustCompile(`(?s)--` + flag +
			`=.*?Default\s+(\d+s)`).FindStringSubmatch(serveHelp(t))
		if found == nil {
			t.Fatalf("serve --help tells no default of --%s", flag)
		}
		part, err := time.ParseDuration(found[1])
		if err != nil {
			t.Fatal(err)
		}
		drain += part
	}
	return whole > drain
}

// serveHelp returns what `serve --help` prints.
func serveHelp(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(build(t), "serve", "--help").Output()
	if err != nil {
		t.Fatalf("serve --help: %v\n%s", err, stderrOf(err))
	}
	return string(out)
}

// serveVariables returns the environment variables that `serve --help` names.
func serveVariables(t *testing.T) []string {
	t.Helper()
	found := regexp.MustCompile(`TIDEMARK_[A-Z_]+`).FindAllString(serveHelp(t), -1)
	if len(found) < 5 {
		t.Fatalf("serve --help names %q", found)
	}
	return found
}

// TestCompose_cluster: three nodes with names of their own share the store and Redis. Only the
// proxy is reachable from outside; it knows all nodes. One process migrates before they start.
func TestCompose_cluster(t *testing.T) {
	text, err := os.ReadFile("../deploy/compose.cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type service struct {
		Image       string
		Command     []string
		Environment map[string]string
		Ports       []string
		Volumes     []string
		DependsOn   any      `yaml:"depends_on"`
		ReadOnly    bool     `yaml:"read_only"`
		CapDrop     []string `yaml:"cap_drop"`
		StopGrace   string   `yaml:"stop_grace_period"`
		HealthCheck struct{ Test []string }
	}
	var compose struct{ Services map[string]service }
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	nginx, err := os.ReadFile(filepath.Join("../deploy",
		strings.Split(compose.Services["nginx"].Volumes[0], ":")[0]))
	if err != nil {
		t.Fatal(err)
	}
	// compose inserts the password like this.
	store := regexp.MustCompile(`\$\{POSTGRES_PASSWORD(:[^}]*)?\}`).
		ReplaceAllString(compose.Services["migrate"].Environment["TIDEMARK_STORE"], "secret")
	e := compose.Services["postgres"].Environment
	if want := fmt.Sprintf("postgres://%s:secret@postgres:5432/%s",
		e["POSTGRES_USER"], e["POSTGRES_DB"]); store != want {
		t.Errorf("the store is %s, want %s", store, want)
	}
	nodes, variables := 0, serveVariables(t)
	for name, s := range compose.Services {
		if name == "nginx" {
			if len(s.Ports) != 1 || !strings.HasPrefix(s.Ports[0], "127.0.0.1:") {
				t.Errorf("the proxy's ports are %q; it has no TLS", s.Ports)
			}
		} else if s.Ports != nil {
			t.Errorf("%s is open to others: %q", name, s.Ports)
		}
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "TIDEMARK_") && !slices.Contains(variables, variable) {
				t.Errorf("%s: the variable %s is none of the server's", name, variable)
			}
		}
		if s.Environment["TIDEMARK_NODE"] == "" {
			continue
		}
		nodes++
		waits := fmt.Sprint(s.DependsOn)
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			!longerThanDrain(t, s.StopGrace) || s.Environment["TIDEMARK_NODE"] != name ||
			s.Environment["TIDEMARK_REDIS"] != "redis://redis:6379" ||
			!strings.Contains(waits, "service_completed_successfully") {
			t.Errorf("the node %s is %+v", name, s)
		}
		line := regexp.MustCompile(`(?m)^ +server ` + name + `:8080 `)
		if got := line.FindAll(nginx, -1); len(got) != 2 {
			t.Errorf("nginx has %d lines for %s, want one for each upstream", len(got), name)
		}
	}
	all := len(regexp.MustCompile(`(?m)^ +server \w+:8080 `).FindAll(nginx, -1))
	if nodes != 3 || all != 2*nodes {
		t.Errorf("%d nodes, and %d lines for them in nginx", nodes, all)
	}
	redis := compose.Services["redis"]
	if len(redis.HealthCheck.Test) == 0 || redis.Volumes != nil {
		t.Errorf("Redis is %+v; it needs no volume", redis)
	}
}
