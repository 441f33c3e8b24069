package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user of the image.
const nobody = 65532

// config is that of deploy/Dockerfile. A test compares them.
func config() v1.Config {
	return v1.Config{
		User:         fmt.Sprintf("%d:%d", nobody, nobody),
		Env:          []string{"TIDEMARK_LISTEN=:8080", "TIDEMARK_STORE=sqlite:/data/tidemark.db"},
		Volumes:      map[string]struct{}{"/data": {}},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/tidemark", "health"}, Interval: 10 * time.Second,
			Timeout: 5 * time.Second, StartPeriod: 10 * time.Second,
		},
		Entrypoint: []string{"/tidemark"},
		Cmd:        []string{"serve"},
	}
}

// buildImage builds the image of each Linux as one OCI layout, in an archive. It needs no engine.
func (r *release) buildImage(context.Context) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range r.targets {
		if t.os != "linux" {
			continue
		}
		image, err := r.imageOf(t)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{
				MediaType: types.OCIManifestSchema1,
				Platform:  &v1.Platform{OS: t.os, Architecture: t.arch},
			},
		})
	}
	dir := filepath.Join(r.work, "image")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": "v" + r.version,
	}))
	if err != nil {
		return err
	}
	var a archive
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return a.addFile(name, filepath.Join(dir, name), 0o644)
	})
	if err != nil {
		return err
	}
	return r.publish("tidemark-"+r.version+"-image.tar", a.bytes(r.at))
}

// imageOf returns the image of a system.
func (r *release) imageOf(t target) (v1.Image, error) {
	var a archive
	a.add("etc/ssl/certs/ca-certificates.crt", roots(), 0o644)
	a.put("data/", packed{mode: 0o755, owner: nobody, dir: true})
	if err := a.addFile("tidemark", r.programs[t], 0o755); err != nil {
		return nil, err
	}
	files := a.bytes(r.at)
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: t.os, Architecture: t.arch, Created: v1.Time{Time: r.at}, Config: r.labelled(),
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.at}, CreatedBy: "tools/release"},
	})
}

func (r *release) labelled() v1.Config {
	c := config()
	c.Labels = map[string]string{
		"org.opencontainers.image.title":    "Tidemark",
		"org.opencontainers.image.version":  "v" + r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source":   "https://github.com/tidemark-im/tidemark",
	}
	return c
}

// roots returns Mozilla's certificates as PEM. Their version is in go.sum, so that an image does
// not depend on the machine that builds it. Those with a condition, which PEM cannot have, are not
// among them.
func roots() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return b.Bytes()
}
