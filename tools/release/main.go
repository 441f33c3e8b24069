// Release builds what a release of Tidemark publishes, from the checkout in the working directory:
//
//	release -version v1.2.3 -out DIR
//
// DIR gets an archive with the program for each system, an image as an OCI layout, the Helm chart
// and the npm package. It also gets a list of the program's parts (SBOM), and SHA256SUMS of all
// files.
//
// Two builds of one commit with the same Go and npm are the same, byte for byte. Each time in a
// file is that of the commit, and no file depends on this machine.
//
// `make release` runs it. CONTRIBUTING.md says how a version is released.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// validVersion is a version of Semantic Versioning 2 with a v before it, without build metadata.
var validVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?$`)

// target is a system that a program is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// targets are the systems of a release.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"},
}

// release is what one run builds.
type release struct {
	// version has no v before it: 1.2.3.
	version string
	// commit and at are of HEAD.
	commit string
	at     time.Time
	out    string
	// work is a directory for intermediate files, which is removed at the end.
	work    string
	targets []target
	// programs has the file of each built program.
	programs map[target]string
	// published has the names of the files in out, in the order of building.
	published []string
}

func main() {
	version := flag.String("version", "", "the version, such as v1.2.3")
	out := flag.String("out", "", "an empty directory for the files, which is made")
	only := flag.String("only", "", "build for these systems only, such as linux/amd64 (for tests)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *version, *out, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, version, out, only string) (err error) {
	if !validVersion.MatchString(version) {
		return fmt.Errorf("-version is %q; it must be like v1.2.3 or v1.2.3-rc.1 "+
			"(make release VERSION=v1.2.3)", version)
	}
	if out == "" {
		return errors.New("-out is required")
	}
	if files, err := os.ReadDir(out); err == nil && len(files) > 0 {
		return fmt.Errorf("%s is not empty; remove it, or give another -out", out)
	}
	r := &release{
		version: strings.TrimPrefix(version, "v"), out: out, programs: map[target]string{},
		targets: targets,
	}
	if only != "" {
		r.targets = slices.DeleteFunc(slices.Clone(targets),
			func(t target) bool { return !slices.Contains(strings.Split(only, ","), t.String()) })
	}
	if err := r.source(ctx); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "tidemark-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		r.buildPrograms, r.buildArchives, r.buildImage, r.buildChart, r.buildPackage, r.listParts,
		r.sums,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// source finds the commit. A tree with changes is no commit, so it is refused.
func (r *release) source(ctx context.Context) error {
	changes, err := output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the tree has changes; commit or stash them:\n%s", changes)
	}
	if r.commit, err = output(ctx, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	text, err := output(ctx, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	r.at = time.Unix(seconds, 0).UTC()
	return err
}

// buildPrograms builds the program for each system.
func (r *release) buildPrograms(ctx context.Context) error {
	for _, t := range r.targets {
		file := filepath.Join(r.work, t.os+"-"+t.arch, "tidemark")
		build := exec.CommandContext(ctx, "make", "--no-print-directory", "build",
			"VERSION=v"+r.version, "BINARY="+file)
		// The version is in the program. Go would add whether the tree had changes, and more.
		build.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0",
			"GOFLAGS=-trimpath -buildvcs=false -mod=readonly", "GOAMD64=v1", "GOARM64=v8.0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building for %s: %w", t, err)
		}
		r.programs[t] = file
	}
	return nil
}

// buildArchives packs each program with what an operator needs to start it.
func (r *release) buildArchives(context.Context) error {
	for _, t := range r.targets {
		top := fmt.Sprintf("tidemark-%s-%s-%s", r.version, t.os, t.arch)
		var a archive
		for _, name := range []string{
			"LICENSE", "README.md", "CHANGELOG.md", "deploy/systemd/tidemark.service",
		} {
			if err := a.addFile(top+"/"+filepath.Base(name), name, 0o644); err != nil {
				return err
			}
		}
		if err := a.addFile(top+"/tidemark", r.programs[t], 0o755); err != nil {
			return err
		}
		if err := r.publish(top+".tar.gz", a.gzipped(r.at)); err != nil {
			return err
		}
	}
	return nil
}

// buildChart packs the Helm chart with the version of the release as its own and the image's.
func (r *release) buildChart(context.Context) error {
	const dir = "deploy/helm/tidemark"
	var a archive
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return a.addFile(strings.TrimPrefix(path, "deploy/helm/"), path, 0o644)
	})
	if err != nil {
		return err
	}
	const head = "tidemark/Chart.yaml"
	chart := regexp.MustCompile(`(?m)^version: .*$`).ReplaceAllString(string(a.content(head)),
		"version: "+r.version)
	chart = regexp.MustCompile(`(?m)^appVersion: .*$`).ReplaceAllString(chart,
		`appVersion: "v`+r.version+`"`)
	if strings.Count(chart, r.version) != 2 {
		return fmt.Errorf("%s/Chart.yaml has not one version and one appVersion", dir)
	}
	a.add(head, []byte(chart), 0o644)
	return r.publish("tidemark-chart-"+r.version+".tgz", a.gzipped(r.at))
}

// buildPackage packs the client for npm, with the version of the release.
func (r *release) buildPackage(ctx context.Context) error {
	file := filepath.Join(r.work, "client.tgz")
	pack := exec.CommandContext(ctx, "npm", "--prefix", "web/client", "run", "--silent", "pack")
	pack.Env = append(os.Environ(), "TIDEMARK_TARBALL="+file,
		"TIDEMARK_TARBALL_VERSION="+r.version)
	pack.Stdout, pack.Stderr = os.Stderr, os.Stderr
	if err := pack.Run(); err != nil {
		return fmt.Errorf("packing the client: %w", err)
	}
	packed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return r.publish("tidemark-client-"+r.version+".tgz", packed)
}

// sums writes SHA256SUMS, which `sha256sum -c` reads.
func (r *release) sums(context.Context) error {
	slices.Sort(r.published)
	var text strings.Builder
	for _, name := range r.published {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		fmt.Fprintf(&text, "%s  %s\n", hex.EncodeToString(sum[:]), name)
	}
	fmt.Print(text.String())
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}

// publish writes a file of the release.
func (r *release) publish(name string, content []byte) error {
	r.published = append(r.published, name)
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// output runs a program, and returns what it prints, without the last line break.
func output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Stderr = os.Stderr
	printed, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(printed), "\n"), nil
}
