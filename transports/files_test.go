package transports_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// announced is the answer to createAttachment.
type announced struct {
	ID      string `json:"attachment_id"`
	URL     string
	Method  string
	Headers map[string]string
}

// got returns the answer of an exchange.
func got[T any](t *testing.T, s *transporttest.Stack, e exchange) (answer T) {
	t.Helper()
	raw, err := io.ReadAll(e.try(t, s).Body)
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// announce announces a file of a user.
func announce(
	t *testing.T, s *transporttest.Stack, who, name, media string, content []byte,
) announced {
	t.Helper()
	sum := sha256.Sum256(content)
	return got[announced](t, s, exchange{
		who: who, method: "POST", path: "/attachments", status: 201,
		body: fmt.Sprintf(`{"name":%q,"type":%q,"size":%d,"sha256":%q}`, name, media, len(content),
			hex.EncodeToString(sum[:])),
	})
}

// transfer makes a request to a URL that an answer had, and returns the answer with its body.
func transfer(
	t *testing.T, s *transporttest.Stack, method, url string, headers map[string]string,
	content []byte,
) (*http.Response, string) {
	t.Helper()
	base, _, _ := strings.Cut(s.URL, "/api/")
	r, err := http.NewRequestWithContext(t.Context(), method, base+url, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(raw)
}

// download returns the answer with a file of the message 2 of the chat.
func download(
	t *testing.T, s *transporttest.Stack, id string, headers map[string]string,
) (*http.Response, string) {
	t.Helper()
	link := got[struct{ URL string }](t, s, exchange{
		who: "bob", method: "GET", status: 200,
		path: "/attachments/" + id + "?chat_id=team&sequence=2",
	})
	return transfer(t, s, "GET", link.URL, headers, nil)
}

// TestFiles_up_and_down uploads files, sends them, and gets them as another member.
func TestFiles_up_and_down(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	team(s, t)
	var files []string
	kinds := []struct{ name, media, disposition string }{
		{"cat.png", "image/png", "inline; filename=cat.png"},
		{"cat.svg", "image/svg+xml", "attachment; filename=cat.svg"},
		{"page.html", "text/html", "attachment; filename=page.html"},
		{"Bär \"x\".pdf", "application/pdf",
			`attachment; filename*=utf-8''B%C3%A4r%20%22x%22.pdf`},
	}
	for _, kind := range kinds {
		content := []byte("the content of " + kind.name)
		a := announce(t, s, "ann", kind.name, kind.media, content)
		exchange{who: "ann", method: "POST", path: "/chats/team/messages", status: 400,
			code: "INVALID", body: `{"client_message_id":"early","attachments":[{"s3_ref":"` +
				a.ID + `"}]}`}.try(t, s)
		res, raw := transfer(t, s, a.Method, a.URL, a.Headers, content)
		if res.StatusCode != http.StatusNoContent {
			t.Fatalf("the upload got %d %s", res.StatusCode, raw)
		}
		if res, raw = transfer(t, s, a.Method, a.URL, a.Headers, content); res.StatusCode != 409 ||
			!strings.Contains(raw, `"code":"CONFLICT"`) {
			t.Errorf("the second upload got %d %s", res.StatusCode, raw)
		}
		files = append(files, a.ID)
	}
	exchange{who: "ann", method: "POST", path: "/chats/team/messages", status: 201,
		body: `{"client_message_id":"files","attachments":[{"s3_ref":"` +
			strings.Join(files, `"},{"s3_ref":"`) + `"}]}`}.try(t, s)
	for i, kind := range kinds {
		res, raw := download(t, s, files[i], nil)
		if res.StatusCode != http.StatusOK || raw != "the content of "+kind.name {
			t.Errorf("%s: %d %s", kind.name, res.StatusCode, raw)
		}
		for name, want := range map[string]string{
			"Content-Type": kind.media, "Content-Disposition": kind.disposition,
			"X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-store",
			"Content-Security-Policy": "default-src 'none'; sandbox",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", kind.name, name, got, want)
			}
		}
	}
	res, raw := download(t, s, files[0], map[string]string{"Range": "bytes=4-6"})
	if res.StatusCode != http.StatusPartialContent || raw != "con" {
		t.Errorf("a range: %d %q", res.StatusCode, raw)
	}
}

// TestFiles_no_file_outside_membership asks for files that a message does not have.
func TestFiles_no_file_outside_membership(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	team(s, t)
	exchange{who: "ann", method: "POST", path: "/chats/team/messages", status: 201,
		body: `{"client_message_id":"c2","content":"x"}`}.try(t, s)
	exchange{who: "ann", method: "POST", path: "/chats", status: 201,
		body: `{"type":"group","chat_id":"other","member_ids":["dan"]}`}.try(t, s)
	const picture = "/attachments/" + attachmentstest.Picture
	for _, e := range []exchange{
		{who: "bob", path: picture + "?chat_id=team&sequence=1", status: 200},
		{who: "bob", path: picture + "?chat_id=team&sequence=2", status: 404},
		{who: "bob", path: picture + "?chat_id=team&sequence=3", status: 404},
		{who: "dan", path: picture + "?chat_id=team&sequence=1", status: 403},
		{who: "dan", path: picture + "?chat_id=other&sequence=1", status: 404},
		{who: "bob", path: picture, status: 400},
		{who: "bob", path: picture + "?chat_id=team", status: 400},
		{who: "bob", path: "/attachments/" + strings.Repeat("A", 26) + "?chat_id=team&sequence=1",
			status: 404},
		{who: "bob", path: "/attachments/..%2F" + attachmentstest.Picture +
			"?chat_id=team&sequence=1", status: 400},
	} {
		e.method = "GET"
		e.try(t, s)
	}
}

// TestFiles_signed_urls tries URLs of files that the server has not signed like that.
func TestFiles_signed_urls(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	a := announce(t, s, "ann", "a", "text/plain", []byte("abc"))
	for name, url := range map[string]string{
		"no grant":     attachmentstest.Base + "/" + a.ID,
		"empty grant":  attachmentstest.Base + "/" + a.ID + "?grant=",
		"noise":        attachmentstest.Base + "/" + a.ID + "?grant=%zz",
		"a dot":        attachmentstest.Base + "/" + a.ID + "?grant=.",
		"another file": strings.Replace(a.URL, a.ID, attachmentstest.Picture, 1),
		"a path":       strings.Replace(a.URL, a.ID, "..%2F"+a.ID, 1),
	} {
		res, raw := transfer(t, s, "PUT", url, a.Headers, []byte("abc"))
		if want := map[bool]int{true: 400, false: 403}[name == "noise"]; res.StatusCode != want ||
			res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", name, res.StatusCode, raw)
		}
		if res, _ := transfer(t, s, "GET", url, nil, nil); res.StatusCode < 400 {
			t.Errorf("GET of %s: %d", name, res.StatusCode)
		}
	}
	if res, _ := transfer(t, s, "DELETE", a.URL, nil, nil); res.StatusCode != 405 {
		t.Errorf("DELETE: %d", res.StatusCode)
	}
	if res, raw := transfer(t, s, "PUT", a.URL, a.Headers, []byte("abc")); res.StatusCode != 204 {
		t.Errorf("the good upload: %d %s", res.StatusCode, raw)
	}
}
