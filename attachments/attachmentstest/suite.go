// Package attachmentstest has the suite that each place of files passes, over HTTP.
package attachmentstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/test/wait"
)

// large is the size of a large file, in bytes.
const large = 50 << 20

// Place is a place of files, and the address to which its paths belong.
type Place struct {
	attachments.Bytes
	Base string
}

// Run runs the suite. open returns an empty place.
func Run(t *testing.T, open func(t *testing.T) Place) {
	for name, test := range map[string]func(*fixture){
		"large_file_up_and_down":            largeFile,
		"first_upload_stays":                firstUpload,
		"what_was_not_announced_is_refused": notAnnounced,
		"changed_urls_are_refused":          changedURLs,
		"urls_expire":                       expiry,
		"removed_files_are_gone":            removal,
		"names_of_all_letters":              names,
	} {
		t.Run(name, func(t *testing.T) { test(&fixture{T: t, Place: open(t)}) })
	}
}

// largeFile sends a large file up and down.
func largeFile(f *fixture) {
	file, content := f.file(large)
	f.stored(file, false)
	f.put(file, content, nil, true)
	f.stored(file, true)
	got, h := f.get(file, "attachment; filename=a.bin")
	if !bytes.Equal(got, content) {
		f.Errorf("%d bytes came back, not the %d that were sent", len(got), len(content))
	}
	if h.Get("Content-Type") != file.Type ||
		h.Get("Content-Disposition") != "attachment; filename=a.bin" {
		f.Errorf("the headers are %v", h)
	}
}

// firstUpload shows that the bytes of a file never change.
func firstUpload(f *fixture) {
	file, content := f.file(1000)
	f.put(file, content, nil, true)
	f.put(file, content, nil, false)
	other, changed := f.file(1000)
	other.ID = file.ID
	f.put(other, changed, nil, false)
	got, _ := f.get(file, "attachment")
	if !bytes.Equal(got, content) {
		f.Error("the bytes changed")
	}
}

// notAnnounced uploads what was not announced.
func notAnnounced(f *fixture) {
	file, content := f.file(100 << 10)
	changed := bytes.Clone(content)
	changed[len(changed)-1] ^= 1
	for name, body := range map[string][]byte{
		"other bytes": changed, "fewer bytes": content[1:], "none": nil,
		"more bytes": append(bytes.Clone(content), 0),
	} {
		f.Log(name)
		f.put(file, body, nil, false)
	}
	f.put(file, content, func(r *http.Request) {
		r.Header.Set("Content-Type", "text/html")
	}, false)
	signed, err := f.SignUpload(f.Context(), "alice", file, time.Now().Add(time.Minute))
	f.ok(err)
	for name := range signed.Header {
		f.Log("without", name)
		f.put(file, content, func(r *http.Request) { r.Header.Del(name) }, false)
	}
	f.stored(file, false)
	f.put(file, content, nil, true)
}

// changedURLs uses URLs that nobody signed like that.
func changedURLs(f *fixture) {
	file, content := f.file(1000)
	other, _ := f.file(1000)
	for name, change := range map[string]func(*url.URL){
		"another file": func(u *url.URL) {
			u.Path = strings.Replace(u.Path, file.ID, other.ID, 1)
		},
		"a path": func(u *url.URL) {
			u.Path = strings.Replace(u.Path, file.ID, "../"+file.ID, 1)
		},
		"no signature": func(u *url.URL) { u.RawQuery = "" },
		"one character": func(u *url.URL) {
			last := u.RawQuery[len(u.RawQuery)-2]
			next := map[bool]byte{true: '0', false: '1'}[last != '0']
			u.RawQuery = u.RawQuery[:len(u.RawQuery)-2] + string(next) +
				u.RawQuery[len(u.RawQuery)-1:]
		},
	} {
		f.Log(name)
		f.put(file, content, func(r *http.Request) { change(r.URL) }, false)
	}
	f.stored(file, false)
	f.stored(other, false)
	f.put(file, content, nil, true)
	// The URL of a download uploads nothing, and that of an upload downloads nothing.
	link := f.link(other, time.Minute)
	f.put(other, content, func(r *http.Request) { r.URL = f.parse(link) }, false)
	signed, err := f.SignUpload(f.Context(), "alice", file, time.Now().Add(time.Minute))
	f.ok(err)
	if status := f.status(f.resolve(signed.URL)); status == http.StatusOK {
		f.Error("the URL of an upload downloads")
	}
}

// expiry waits until URLs end.
func expiry(f *fixture) {
	file, content := f.file(1000)
	upload, err := f.SignUpload(f.Context(), "alice", file, time.Now().Add(time.Second))
	f.ok(err)
	f.put(file, content, nil, true)
	link := f.link(file, time.Second)
	wait.Until(f, "the download expires", func() bool {
		return f.status(link) != http.StatusOK
	})
	f.ok(f.Remove(f.Context(), file.ID))
	wait.Until(f, "the upload expires", func() bool {
		status := f.send(upload, content, nil)
		if status < 300 {
			f.ok(f.Remove(f.Context(), file.ID))
		}
		return status >= 400
	})
	f.stored(file, false)
}

// removal removes a file, and what is not there.
func removal(f *fixture) {
	file, content := f.file(1000)
	f.ok(f.Remove(f.Context(), file.ID))
	f.put(file, content, nil, true)
	link := f.link(file, time.Minute)
	f.ok(f.Remove(f.Context(), file.ID))
	f.ok(f.Remove(f.Context(), file.ID))
	f.stored(file, false)
	if status := f.status(link); status != http.StatusNotFound {
		f.Errorf("the status is %d", status)
	}
}

// names downloads a file with a name beyond ASCII.
func names(f *fixture) {
	file, content := f.file(10)
	f.put(file, content, nil, true)
	const want = `attachment; filename*=utf-8''B%C3%A4r%20%22x%22.png`
	if _, h := f.get(file, want); h.Get("Content-Disposition") != want {
		f.Errorf("the header is %q", h.Get("Content-Disposition"))
	}
}

type fixture struct {
	*testing.T
	Place
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// ids has the letters of the ids of files.
const ids = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

// file returns a file of random bytes.
func (f *fixture) file(size int) (*attachments.File, []byte) {
	id := make([]byte, 26)
	for i := range id {
		id[i] = ids[rand.IntN(len(ids))]
	}
	content := make([]byte, size)
	seed := [32]byte(append(id, "......"...))
	_, _ = rand.NewChaCha8(seed).Read(content) // never fails
	return &attachments.File{
		ID: string(id), Name: "a.bin", Type: "application/x-test", Size: int64(size),
		Sum: sha256.Sum256(content),
	}, content
}

func (f *fixture) stored(file *attachments.File, want bool) {
	f.Helper()
	got, err := f.Stored(f.Context(), file)
	f.ok(err)
	if got != want {
		f.Errorf("the bytes are stored: %t", got)
	}
}

// put uploads bytes as a file. change, if not nil, changes the request. want says whether it must
// be accepted.
func (f *fixture) put(
	file *attachments.File, content []byte, change func(*http.Request), want bool,
) {
	f.Helper()
	signed, err := f.SignUpload(f.Context(), "alice", file, time.Now().Add(time.Minute))
	f.ok(err)
	if status := f.send(signed, content, change); (status < 300) != want || status >= 500 {
		f.Errorf("the upload got the status %d", status)
	}
}

func (f *fixture) send(
	signed attachments.Request, content []byte, change func(*http.Request),
) int {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), signed.Method, f.resolve(signed.URL),
		bytes.NewReader(content))
	f.ok(err)
	for name, value := range signed.Header {
		r.Header.Set(name, value)
	}
	if change != nil {
		change(r)
	}
	return f.do(r)
}

// do returns the status of an answer. A refusal before the end of a body may cut the connection; it
// counts as 400.
func (f *fixture) do(r *http.Request) int {
	f.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		if r.Context().Err() != nil || r.Body == nil {
			f.Fatal(err)
		}
		f.Log(err)
		return http.StatusBadRequest
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 400 {
		f.Logf("%s %d %.300s", r.Method, answer.StatusCode, text)
	}
	return answer.StatusCode
}

func (f *fixture) parse(address string) *url.URL {
	u, err := url.Parse(address)
	f.ok(err)
	return u
}

func (f *fixture) resolve(address string) string {
	return f.parse(f.Base).ResolveReference(f.parse(address)).String()
}

func (f *fixture) link(file *attachments.File, within time.Duration) string {
	f.Helper()
	link, err := f.SignDownload(f.Context(), "alice", file, "attachment", time.Now().Add(within))
	f.ok(err)
	return f.resolve(link)
}

func (f *fixture) status(address string) int {
	f.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(f.Context()), http.MethodGet,
		address, nil)
	f.ok(err)
	return f.do(r)
}

func (f *fixture) get(file *attachments.File, disposition string) ([]byte, http.Header) {
	f.Helper()
	link, err := f.SignDownload(
		f.Context(), "alice", file, disposition, time.Now().Add(time.Minute))
	f.ok(err)
	answer, err := http.Get(f.resolve(link))
	f.ok(err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		f.Fatalf("the download got the status %d", answer.StatusCode)
	}
	content, err := io.ReadAll(answer.Body)
	f.ok(err)
	return content, answer.Header
}
