package test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/versitygw"
)

// fileSize is the size of the file that goes up and down.
const fileSize = 50 << 20

// upload is the answer to an announcement.
type upload struct {
	ID      string `json:"attachment_id"`
	Method  string
	URL     string
	Headers map[string]string
}

// content returns a reader of the same random bytes each time, and the request that announces them.
func content(size int64) (open func() io.Reader, announce map[string]any) {
	seed := [32]byte{byte(rand.Uint32()), byte(rand.Uint32())}
	open = func() io.Reader { return io.LimitReader(rand.NewChaCha8(seed), size) }
	return open, map[string]any{
		"name": "film.mp4", "type": "video/mp4", "size": size, "sha256": sumOf(open()),
	}
}

func sumOf(r io.Reader) string {
	hash := sha256.New()
	_, _ = io.Copy(hash, r) // a reader that fails has another hash
	return hex.EncodeToString(hash.Sum(nil))
}

// send sends bytes by a signed request. It returns the status, or an error if the connection was
// cut.
func (u *upload) send(
	ctx context.Context, client *http.Client, host string, body io.Reader, size int64,
) (int, error) {
	if strings.HasPrefix(u.URL, "/") {
		u.URL = host + u.URL
	}
	r, err := http.NewRequestWithContext(ctx, u.Method, u.URL, body)
	if err != nil {
		return 0, err
	}
	r.ContentLength = size
	for name, value := range u.Headers {
		r.Header.Set(name, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// resetPeak returns the memory that a process has, in bytes. peak then forgets what it had before,
// such as at its start.
func resetPeak(t *testing.T, p *process) (bytes int64) {
	t.Helper()
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.process.Pid), []byte("5"), 0))
	return peak(t, p)
}

// peak returns the greatest memory that a process had, in bytes.
func peak(t *testing.T, p *process) (bytes int64) {
	t.Helper()
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", p.process.Pid))
	must(t, err)
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	t.Fatal("the peak of the memory is unknown")
	return 0
}

// eachPlace runs a test with a server for each place of files.
func eachPlace(t *testing.T, run func(t *testing.T, p *process)) {
	t.Helper()
	binary := build(t)
	for _, place := range []string{"dir", "s3"} {
		t.Run(place, func(t *testing.T) {
			p := processOf(t, binary)
			url := "dir:" + filepath.Join(p.dir, "files")
			if place == "s3" {
				url = versitygw.Shared(t).Bucket(t)
			}
			p.flags = []string{"--dev", "--attachments", url}
			p.start()
			run(t, p)
		})
	}
}

// TestAttachments_50_MB_up_and_down sends a file through the real program, which holds no more than
// a part of it in memory, and is killed before the file is read.
func TestAttachments_50_MB_up_and_down(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *process) {
		host := "http://" + p.address
		alice, bob := as(p.address, "alice"), as(p.address, "bob")
		alice.call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": "c", "member_ids": []string{"bob"}}, nil)
		open, announce := content(fileSize)
		var up upload
		alice.call(t, http.MethodPost, "/attachments", announce, &up)
		before, began := resetPeak(t, p), time.Now()
		status, err := up.send(t.Context(), http.DefaultClient, host, open(), fileSize)
		if err != nil || status >= 300 {
			t.Fatalf("the upload got %d, %v", status, err)
		}
		uploaded := time.Since(began)
		grown := peak(t, p) - before
		if grown > fileSize/3 {
			t.Errorf("the upload of %d bytes took %d bytes of memory", fileSize, grown)
		}
		alice.call(t, http.MethodPost, "/chats/c/messages", map[string]any{
			"client_message_id": "m", "attachments": []any{map[string]any{"s3_ref": up.ID}},
		}, nil)

		must(t, p.process.Kill())
		_ = p.wait()
		p.start()
		var down struct {
			URL    string
			SHA256 string `json:"sha256"`
		}
		bob.call(t, http.MethodGet, "/attachments/"+up.ID+"?chat_id=c&sequence=1", nil, &down)
		if strings.HasPrefix(down.URL, "/") {
			down.URL = host + down.URL
		}
		before, began = resetPeak(t, p), time.Now()
		answer, err := http.Get(down.URL)
		must(t, err)
		defer answer.Body.Close()
		if got := sumOf(answer.Body); got != announce["sha256"] || got != down.SHA256 {
			t.Errorf("the download has the hash %s, want %v", got, announce["sha256"])
		}
		if got := answer.Header.Get("Content-Disposition"); got !=
			"attachment; filename=film.mp4" {
			t.Errorf("the disposition is %q", got)
		}
		t.Logf("50 MiB up in %v with %d KiB of memory, down in %v with %d KiB",
			uploaded.Round(time.Millisecond), grown>>10,
			time.Since(began).Round(time.Millisecond), (peak(t, p)-before)>>10)
		if grown = peak(t, p) - before; grown > fileSize/3 {
			t.Errorf("the download of %d bytes took %d bytes of memory", fileSize, grown)
		}
	})
}

// TestAttachments_refused sends what was not announced. Nothing of it can be named in a message.
func TestAttachments_refused(t *testing.T) {
	eachPlace(t, func(t *testing.T, p *process) {
		host := "http://" + p.address
		alice := as(p.address, "alice")
		alice.call(t, http.MethodPost, "/chats",
			map[string]any{"type": "group", "chat_id": "c", "member_ids": []string{"bob"}}, nil)
		open, announce := content(1 << 20)
		other, _ := content(1 << 20)
		for name, send := range map[string]func(up *upload) (int, error){
			"other bytes": func(up *upload) (int, error) {
				return up.send(t.Context(), http.DefaultClient, host, other(), 1<<20)
			},
			"half": func(up *upload) (int, error) {
				half := io.LimitReader(open(), 1<<19)
				return up.send(t.Context(), http.DefaultClient, host, half, 1<<19)
			},
			"one byte more": func(up *upload) (int, error) {
				more := io.MultiReader(open(), strings.NewReader("x"))
				return up.send(t.Context(), http.DefaultClient, host, more, 1<<20+1)
			},
			"no length": func(up *upload) (int, error) {
				more := io.MultiReader(open(), open())
				return up.send(t.Context(), http.DefaultClient, host, more, -1)
			},
			"cut off": func(up *upload) (int, error) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				half := &cut{Reader: io.LimitReader(open(), 1<<19), cut: cancel}
				return up.send(ctx, http.DefaultClient, host, half, 1<<20)
			},
		} {
			var up upload
			alice.call(t, http.MethodPost, "/attachments", announce, &up)
			if status, err := send(&up); err == nil && (status < 400 || status >= 500) {
				t.Errorf("%s: %d", name, status)
			}
			status, answer, err := alice.try(t.Context(), http.MethodPost, "/chats/c/messages",
				map[string]any{
					"client_message_id": "m",
					"attachments":       []any{map[string]any{"s3_ref": up.ID}},
				})
			if err != nil || status != http.StatusBadRequest ||
				!bytes.Contains(answer, []byte("bytes are not there")) {
				t.Errorf("%s: the message got %d %s, %v", name, status, answer, err)
			}
		}
	})
}

// cut reads to the end of a reader, and then cuts the connection.
type cut struct {
	io.Reader
	cut func()
}

// Read implements io.Reader.
func (c *cut) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if err == io.EOF {
		c.cut()
	}
	return n, err
}

// slow gives a piece of a reader each time, after a pause.
type slow struct {
	io.Reader
	pause time.Duration
}

// Read implements io.Reader.
func (s *slow) Read(b []byte) (int, error) {
	<-time.After(s.pause)
	return s.Reader.Read(b[:min(len(b), 4<<10)])
}

// TestAttachments_slow_upload takes longer than any other request may.
func TestAttachments_slow_upload(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.flags = []string{"--dev", "--attachments", "dir:" + filepath.Join(p.dir, "files")}
	p.start()
	open, announce := content(320 << 10)
	var up upload
	as(p.address, "alice").call(t, http.MethodPost, "/attachments", announce, &up)
	began := time.Now()
	body := &slow{open(), 250 * time.Millisecond}
	status, err := up.send(t.Context(), http.DefaultClient, "http://"+p.address, body,
		320<<10)
	if took := time.Since(began); err != nil || status != 204 || took < 18*time.Second {
		t.Errorf("got %d, %v after %v", status, err, took)
	}
}

// TestAttachments_off: without a place for files, everything is as it was.
func TestAttachments_off(t *testing.T) {
	p := newProcess(t)
	p.start()
	alice := as(p.address, "alice")
	alice.call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "c", "member_ids": []string{"bob"}}, nil)
	_, announce := content(1)
	for _, tt := range []struct {
		path   string
		body   any
		status int
		says   string
	}{
		{"/attachments", announce, 404, "--attachments"},
		{"/chats/c/messages", map[string]any{
			"client_message_id": "m", "attachments": []any{map[string]any{"s3_ref": "x"}},
		}, 400, "s3_ref is reserved"},
		{"/chats/c/messages", map[string]any{
			"client_message_id": "m", "attachments": []any{map[string]any{"name": "x"}},
		}, 201, `"name":"x"`},
	} {
		status, answer, err := alice.try(t.Context(), http.MethodPost, tt.path, tt.body)
		if err != nil || status != tt.status || !strings.Contains(string(answer), tt.says) {
			t.Errorf("%s: %d %s, %v", tt.path, status, answer, err)
		}
	}
}

// TestAttachments_of_the_guide runs the commands of docs/attachments.md against the program.
func TestAttachments_of_the_guide(t *testing.T) {
	p := newProcess(t)
	p.flags = []string{"--dev", "--attachments", "dir:"}
	p.start()
	as(p.address, "alice").call(t, http.MethodPost, "/chats",
		map[string]any{"type": "group", "chat_id": "c", "member_ids": []string{"bob"}}, nil)
	command := exec.Command("sh", "-ec",
		strings.Join(shellBlocks(guide(t, "attachments.md")), "\n"))
	command.Dir = t.TempDir()
	command.Env = append(environment(), "HOST=http://"+p.address,
		"API=http://"+p.address+"/api/v1")
	out, err := command.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "a small file") {
		t.Fatalf("%v: %s", err, out)
	}
	first, _, _ := strings.Cut(string(out), "a small file")
	var sent struct {
		Sequence    int64
		Attachments []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(first), &sent); err != nil || sent.Sequence != 1 ||
		len(sent.Attachments) != 1 || sent.Attachments[0].Name != "note.txt" {
		t.Errorf("%v in %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "tidemark-files", "key")); err != nil {
		t.Error(err)
	}
}

// carriesAFile uploads a file that is larger than any other body, and downloads it. It returns the
// grant of the upload.
func (p *proxy) carriesAFile(t *testing.T, alice, bob user, chat string) (grant string) {
	t.Helper()
	const size = 5 << 20
	open, announce := content(size)
	var up upload
	alice.call(t, http.MethodPost, "/attachments", announce, &up)
	if status, err := up.send(t.Context(), p.client, p.url(), open(), size); status != 204 {
		t.Fatalf("the upload got %d, %v", status, err)
	}
	var sent message
	alice.call(t, http.MethodPost, "/chats/"+chat+"/messages", map[string]any{
		"client_message_id": "file", "attachments": []any{map[string]any{"s3_ref": up.ID}},
	}, &sent)
	var down struct{ URL string }
	bob.call(t, http.MethodGet, fmt.Sprintf("/attachments/%s?chat_id=%s&sequence=%d", up.ID, chat,
		sent.Sequence), nil, &down)
	answer, err := p.client.Get(p.url() + down.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := sumOf(answer.Body); got != announce["sha256"] {
		t.Errorf("%s with the hash %s, want %v", answer.Status, got, announce["sha256"])
	}
	_, grant, _ = strings.Cut(up.URL, "grant=")
	return grant
}
