// Package dir keeps files in a directory, and signs URLs of this server for them. An adapter
// (transports/attachments) serves these URLs by Receive and Open.
//
// The directory has:
//
//	key          32 random bytes, which sign the URLs
//	files/AB/ID  the bytes of a file, whose id begins with AB
//	new/         what is being uploaded
//
// Several servers may share the directory by a file system that has hard links.
package dir

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
)

var _ attachments.Bytes = (*Dir)(nil)

const (
	keyLength = 32
	// leftAfter is the age from which what is left of an upload is removed.
	leftAfter = 24 * time.Hour
)

// Dir is a directory of files. It is safe for concurrent use.
type Dir struct {
	root string
	base string
	key  []byte
	now  func() time.Time
}

// New opens a directory, or makes it. base is the path below which the adapter serves the URLs. It
// removes what was left of uploads by servers that were killed.
func New(root, base string) (*Dir, error) {
	d := &Dir{root: root, base: base, now: time.Now}
	err := os.MkdirAll(filepath.Join(root, "new"), 0o700)
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "files"), 0o700)
	}
	if err == nil {
		d.key, err = d.openKey()
	}
	if err == nil {
		err = d.removeLeft()
	}
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the directory of files cannot be used; see that this user may write to it")
	}
	return d, nil
}

// openKey returns the key of the directory. If several servers make it at once, the first one wins.
func (d *Dir) openKey() ([]byte, error) {
	path := filepath.Join(d.root, "key")
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, keyLength)
		rand.Read(key)
		f, err := os.CreateTemp(filepath.Join(d.root, "new"), "key-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.Remove(f.Name()) }() // else removeLeft does
		if _, err = f.Write(key); err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if key, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		return key, syncDir(d.root)
	}
	if err == nil && len(key) != keyLength {
		err = errors.New("the key does not have 32 bytes; remove it, and URLs that are not used " +
			"yet end")
	}
	return key, err
}

// removeLeft removes what is left of old uploads.
func (d *Dir) removeLeft() error {
	entries, err := os.ReadDir(filepath.Join(d.root, "new"))
	for _, entry := range entries {
		info, statErr := entry.Info()
		if statErr == nil && d.now().Sub(info.ModTime()) > leftAfter {
			err = errors.Join(err, os.Remove(filepath.Join(d.root, "new", entry.Name())))
		}
	}
	return err
}

// path returns where the bytes of a file are. Invalid: the id is not that of a file, and could lead
// out of the directory.
func (d *Dir) path(id string) (string, error) {
	//rule:no_file_outside_membership.no-path-in-an-id
	if !attachments.ValidID(id) {
		return "", tidemark.Errorf(tidemark.Invalid, "%.40q is not the id of a file", id)
	}
	return filepath.Join(d.root, "files", id[:2], id), nil
}

// SignUpload implements attachments.Bytes.
func (d *Dir) SignUpload(
	_ context.Context, user tidemark.UserID, f *attachments.File, until time.Time,
) (attachments.Request, error) {
	return attachments.Request{
		Method: "PUT",
		URL: d.url(f.ID, grant{
			Use: upload, File: *f, For: d.grantee(user), Until: until.Unix(),
		}),
		Header: map[string]string{"Content-Type": f.Type},
	}, nil
}

// SignDownload implements attachments.Bytes.
func (d *Dir) SignDownload(
	_ context.Context, user tidemark.UserID, f *attachments.File, disposition string,
	until time.Time,
) (string, error) {
	g := grant{
		Use: download, File: *f, Disposition: disposition, For: d.grantee(user),
		Until: until.Unix(),
	}
	return d.url(f.ID, g), nil
}

func (d *Dir) url(id string, g grant) string {
	return d.base + "/" + id + "?" + url.Values{"grant": {d.sign(g)}}.Encode()
}

// Stored implements attachments.Bytes. Receive has compared the bytes with the hash.
func (d *Dir) Stored(_ context.Context, f *attachments.File) (bool, error) {
	path, err := d.path(f.ID)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, unavailable(err)
	}
	return info.Size() == f.Size, nil
}

// Remove implements attachments.Bytes.
func (d *Dir) Remove(_ context.Context, id string) error {
	path, err := d.path(id)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable(err)
	}
	return nil
}

func unavailable(err error) error {
	return tidemark.Wrap(tidemark.Unavailable, err,
		"the server's disk did not take or give the file; try again later")
}

// Put is a request that uploads a file.
type Put struct {
	ID, Grant string
	// Type is the Content-Type. Length is the Content-Length, -1 if there is none.
	Type   string
	Length int64
	Body   io.Reader
}

// Receive stores the bytes of a file. They are on disk when it returns. It reads no byte beyond the
// size of the file, and keeps nothing after an error.
//
// Errors: Denied (the URL is not signed by this server for this upload, or has expired), Invalid
// (type, length or hash are not those that were announced), TooLarge, Conflict (the bytes are
// there already), Unavailable (the disk). An error of the body is returned as it is.
func (d *Dir) Receive(p Put) (err error) {
	g, err := d.open(p.ID, upload, p.Grant)
	if err != nil {
		return err
	}
	path, err := d.path(p.ID)
	if err != nil {
		return err
	}
	switch {
	case p.Type != g.Type:
		return tidemark.BadParam(tidemark.Invalid, "Content-Type", "must be %s, as announced",
			g.Type)
	case p.Length > g.Size:
		return tooLong(g.Size)
	case p.Length >= 0 && p.Length != g.Size:
		return tidemark.BadParam(tidemark.Invalid, "Content-Length",
			"is %d; %d bytes were announced", p.Length, g.Size)
	}
	if _, err := os.Lstat(path); err == nil {
		return exists(p.ID)
	}
	f, err := os.CreateTemp(filepath.Join(d.root, "new"), p.ID+"-")
	if err != nil {
		return unavailable(err)
	}
	defer func() {
		_ = f.Close() // which Sync has preceded, if all went well
		_ = os.Remove(f.Name())
	}()
	if err := copyExactly(f, p.Body, g); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return unavailable(err)
	}
	return d.publish(f.Name(), path, p.ID)
}

// copyExactly copies a body into a file, and compares its length and its hash with the grant.
func copyExactly(f *os.File, body io.Reader, g *grant) error {
	hash := sha256.New()
	to := &disk{f: f}
	//rule:bounded_input.read-no-more-than-announced
	n, err := io.Copy(io.MultiWriter(to, hash), io.LimitReader(body, g.Size+1))
	switch {
	case to.err != nil:
		return unavailable(to.err)
	case n > g.Size:
		return tooLong(g.Size)
	case err != nil:
		return err
	case n < g.Size:
		return tidemark.Errorf(tidemark.Invalid, "the body ends after %d bytes; %d were announced",
			n, g.Size)
	//rule:no_file_outside_membership.bytes-as-announced
	case attachments.Sum(hash.Sum(nil)) != g.Sum:
		return tidemark.BadParam(tidemark.Invalid, "sha256",
			"of the body is another than was announced; announce the file again")
	}
	return nil
}

// disk tells errors of the disk from those of the body.
type disk struct {
	f   *os.File
	err error
}

// Write implements io.Writer.
func (d *disk) Write(b []byte) (n int, err error) {
	n, d.err = d.f.Write(b)
	return n, d.err
}

// publish gives a file its name, unless another has it. Then it makes the name durable.
func (d *Dir) publish(from, path, id string) error {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err == nil {
		if err := syncDir(filepath.Dir(dir)); err != nil {
			return unavailable(err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return unavailable(err)
	}
	//rule:no_file_outside_membership.bytes-never-change
	switch err := os.Link(from, path); {
	case errors.Is(err, fs.ErrExist):
		return exists(id)
	case err != nil:
		return unavailable(err)
	}
	if err := syncDir(dir); err != nil {
		return unavailable(err)
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func exists(id string) error {
	return tidemark.Errorf(tidemark.Conflict, "the bytes of the file %s are stored already", id)
}

func tooLong(size int64) error {
	return tidemark.Errorf(tidemark.TooLarge, "the body is longer than the %d bytes that were "+
		"announced", size)
}

// Get is an opened file, and what the answer says of it.
type Get struct {
	*os.File
	Type, Disposition string
	// ETag names the bytes.
	ETag string
}

// Open opens a file for a request that downloads it. The caller closes it.
//
// Errors: Denied (the URL is not signed by this server for this download, or has expired),
// NotFound, Unavailable.
func (d *Dir) Open(id, signed string) (Get, error) {
	g, err := d.open(id, download, signed)
	if err != nil {
		return Get{}, err
	}
	path, err := d.path(id)
	if err != nil {
		return Get{}, err
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Get{}, tidemark.Errorf(tidemark.NotFound, "the bytes of the file %s are not there",
			id)
	case err != nil:
		return Get{}, unavailable(err)
	}
	sum, _ := g.Sum.MarshalText() // never fails
	return Get{
		File: f, Type: g.Type, Disposition: g.Disposition, ETag: strconv.Quote(string(sum)),
	}, nil
}

// Check writes a small file into a directory, reads it, and removes it. NotFound: there is no
// directory yet, and New can make it. It makes none itself.
func Check(root string) error {
	info, err := os.Stat(root)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(filepath.Clean(root))); err == nil {
			return tidemark.Errorf(tidemark.NotFound, "there is no directory yet")
		}
	}
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return err
	}
	content := []byte("tidemark doctor: this file can be removed")
	f, err := os.CreateTemp(root, "doctor-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	read, readErr := os.ReadFile(f.Name())
	if readErr == nil && err == nil && string(read) != string(content) {
		err = errors.New("what is read is not what was written")
	}
	return errors.Join(err, readErr, os.Remove(f.Name()))
}
