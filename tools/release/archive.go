package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"slices"
	"time"
)

// archive is a tar archive whose bytes depend on nothing but its files. The zero archive is empty.
type archive struct{ files map[string]packed }

type packed struct {
	content []byte
	mode    int64
	// owner is the user and group of the file.
	owner int
	dir   bool
}

// add adds a file, in the place of one of that name.
func (a *archive) add(name string, content []byte, mode int64) {
	a.put(name, packed{content: content, mode: mode})
}

func (a *archive) put(name string, file packed) {
	if a.files == nil {
		a.files = map[string]packed{}
	}
	a.files[name] = file
}

func (a *archive) addFile(name, path string, mode int64) error {
	content, err := os.ReadFile(path)
	if err == nil {
		a.add(name, content, mode)
	}
	return err
}

// content returns what a file has, nil if there is none.
func (a *archive) content(name string) []byte { return a.files[name].content }

// bytes returns the archive with this time for all files.
func (a *archive) bytes(at time.Time) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(a.files)) {
		f := a.files[name]
		h := &tar.Header{
			Name: name, Mode: f.mode, Uid: f.owner, Gid: f.owner, ModTime: at,
			Size: int64(len(f.content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if f.dir {
			h.Typeflag = tar.TypeDir
		}
		// Writes into memory do not fail.
		_ = w.WriteHeader(h)
		_, _ = w.Write(f.content)
	}
	_ = w.Close()
	return b.Bytes()
}

func (a *archive) gzipped(at time.Time) []byte { return compress(a.bytes(at)) }

// compress returns content in the form of gzip, without a time or a system in its head.
func compress(content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(content)
	_ = w.Close()
	return b.Bytes()
}
