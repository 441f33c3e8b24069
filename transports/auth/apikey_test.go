package auth_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/auth"
)

func newKey(t *testing.T, name string) (secret, line string) {
	t.Helper()
	secret, line, err := auth.NewAPIKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return secret, line
}

func keysFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api-keys")
	rewrite(t, path, content)
	return path
}

func rewrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func withKeys(t *testing.T, path string) (*auth.Authenticator, *auth.APIKeys) {
	t.Helper()
	keys, err := auth.LoadAPIKeys(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return auth.New(auth.Config{APIKeys: keys, JWTSecret: secret, Dev: true}), keys
}

// calls returns a request with credentials and a header X-User-ID for each user.
func calls(credentials string, users ...string) *http.Request {
	r := bearer(credentials)
	for _, user := range users {
		r.Header.Add("X-User-ID", user)
	}
	return r
}

func TestAPIKey_acts_for_the_user_it_names(t *testing.T) {
	billing, line := newKey(t, "billing")
	unknown, _ := newKey(t, "unknown")
	a, _ := withKeys(t, keysFile(t, "# keys of backends\r\n\n  \t\n"+line+"  \r\n"))
	id, err := a.Header(calls(billing, "ann"))
	if err != nil || id.User != "ann" || !id.Backend || !id.Expires.IsZero() || id.Ended() != nil {
		t.Errorf("a good key: %+v, %v", id, err)
	}
	id, err = a.Stream(calls(billing, "ann"), "")
	if err != nil || id.User != "ann" {
		t.Errorf("a stream: %+v, %v", id, err)
	}
	for _, tt := range []struct {
		what string
		r    *http.Request
		want tidemark.Code
	}{
		{"no user", calls(billing), tidemark.Invalid},
		{"an empty user", calls(billing, ""), tidemark.Invalid},
		{"no user id", calls(billing, "a b"), tidemark.Invalid},
		{"two users", calls(billing, "ann", "bob"), tidemark.Invalid},
		{"an unknown key", calls(unknown, "ann"), tidemark.Unauthenticated},
		{"an unknown key without a user", calls(unknown), tidemark.Unauthenticated},
		{"a part of a key", calls(billing[:len(billing)-1], "ann"), tidemark.Unauthenticated},
		{"the hash of a key", calls("tmk_"+line[len(line)-64:], "ann"), tidemark.Unauthenticated},
		{"the prefix alone", calls("tmk_", "ann"), tidemark.Unauthenticated},
	} {
		id, err := a.Header(tt.r)
		if tidemark.CodeOf(err) != tt.want || tidemark.DetailOf(err) == "" || id.Backend {
			t.Errorf("%s: %+v, %v, want %s", tt.what, id, err, tt.want)
		}
		if strings.Contains(tidemark.DetailOf(err), billing) {
			t.Errorf("%s: the detail shows a key: %v", tt.what, err)
		}
	}
	_, err = auth.New(auth.Config{}).Header(calls(billing, "ann"))
	wantRefused(t, "a server without keys", err)
}

func TestAPIKey_calls_without_a_user_where_that_is_allowed(t *testing.T) {
	billing, line := newKey(t, "billing")
	shop, line2 := newKey(t, "shop")
	a, _ := withKeys(t, keysFile(t, line+"\n"+line2))
	payers := make(map[tidemark.UserID]bool)
	for _, key := range []string{billing, billing, shop} {
		id, err := a.HeaderOrKey(calls(key))
		if err != nil || id.User != "" || !id.Backend {
			t.Fatalf("a key alone: %+v, %v", id, err)
		}
		payer := id.Payer()
		if !payer.Backend || tidemark.ValidID(string(payer.User)) {
			t.Errorf("its calls count for %+v, who may be a user", payer)
		}
		payers[payer.User] = true
	}
	if len(payers) != 2 {
		t.Errorf("the calls of two keys count for %v", payers)
	}
	id, err := a.HeaderOrKey(calls(billing, "ann"))
	if err != nil || id.User != "ann" || id.Payer() != id.Caller {
		t.Errorf("for ann: %+v pays, %v", id.Payer(), err)
	}
	for what, r := range map[string]*http.Request{
		"an empty user": calls(billing, ""), "two users": calls(billing, "ann", "bob"),
	} {
		if _, err := a.HeaderOrKey(r); tidemark.ParamOf(err) != auth.UserHeader {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = a.HeaderOrKey(calls("dev:ann", "bob"))
	if tidemark.CodeOf(err) != tidemark.Denied {
		t.Errorf("a user names another: %v", err)
	}
	for what, open := range map[string]func(*http.Request) error{
		"Header": func(r *http.Request) error { _, err := a.Header(r); return err },
		"Stream": func(r *http.Request) error { _, err := a.Stream(r, ""); return err },
		"Beacon": func(r *http.Request) error { _, err := a.Beacon(r); return err },
	} {
		if err := open(calls(billing)); tidemark.ParamOf(err) != auth.UserHeader {
			t.Errorf("%s without a user: %v", what, err)
		}
	}
}

// TestUserHeader_and_sub_say_what_a_user_id_is: a refusal has the whole rule of ids.
func TestUserHeader_and_sub_say_what_a_user_id_is(t *testing.T) {
	key, line := newKey(t, "billing")
	a, _ := withKeys(t, keysFile(t, line))
	for _, user := range []string{"erased:1", "auth0|42", ".."} {
		_, backend := a.Header(calls(key, user))
		_, token := a.Header(bearer(token(t, jwt.SigningMethodHS256, secret,
			jwt.MapClaims{"sub": user, "exp": time.Now().Add(time.Hour).Unix()})))
		for code, err := range map[tidemark.Code]error{
			tidemark.Invalid: backend, tidemark.Unauthenticated: token,
		} {
			if tidemark.CodeOf(err) != code ||
				!strings.Contains(err.Error(), "not begin with erased:") ||
				!strings.Contains(err.Error(), "A-Z a-z 0-9 _ . : -") {
				t.Errorf("%s: got %v, want %s and the rule of ids", user, err, code)
			}
		}
	}
}

func TestUserHeader_beside_the_credentials_of_a_user(t *testing.T) {
	a, _ := withKeys(t, keysFile(t, ""))
	for _, tt := range []struct {
		users []string
		want  tidemark.Code
	}{
		{nil, ""},
		{[]string{"ann"}, ""},
		{[]string{"bob"}, tidemark.Denied},
		{[]string{"a b"}, tidemark.Invalid},
		{[]string{"ann", "ann"}, tidemark.Invalid},
	} {
		if _, err := a.Header(calls("dev:ann", tt.users...)); tidemark.CodeOf(err) != tt.want {
			t.Errorf("X-User-ID %q with a token of ann: %v, want %q", tt.users, err, tt.want)
		}
		r := calls("", tt.users...)
		r.Header.Del("Authorization")
		r.URL.RawQuery = "ticket=dev:ann"
		if _, err := a.Stream(r, ""); tidemark.CodeOf(err) != tt.want {
			t.Errorf("X-User-ID %q with a ticket of ann: %v, want %q", tt.users, err, tt.want)
		}
	}
}

func TestHeader_two_authorizations_are_none(t *testing.T) {
	a, _ := withKeys(t, keysFile(t, ""))
	r := bearer("dev:ann")
	r.Header.Add("Authorization", "Bearer dev:bob")
	_, err := a.Header(r)
	wantRefused(t, "two headers", err)
}

func TestAPIKey_ticket_of_a_backend_is_a_users(t *testing.T) {
	billing, line := newKey(t, "billing")
	a, _ := withKeys(t, keysFile(t, line))
	id, err := a.Header(calls(billing, "ann"))
	if err != nil {
		t.Fatal(err)
	}
	id, err = a.Stream(issue(t, a, id), "")
	wantUser(t, "its ticket", id, err, "ann")
}

func TestAPIKeys_file_is_read_again(t *testing.T) {
	path := ""
	first, line1 := newKey(t, "first")
	second, line2 := newKey(t, "second")
	path = keysFile(t, line1+"\n")
	synctest.Test(t, func(t *testing.T) {
		a, keys := withKeys(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		go keys.Run(ctx)
		defer synctest.Wait()
		defer cancel()
		reread := func() { time.Sleep(6 * time.Second) } // synctest's clock
		good := func(what, credentials string, want bool) {
			t.Helper()
			if _, err := a.Header(calls(credentials, "ann")); (err == nil) != want {
				t.Errorf("%s: %v, want it good: %v", what, err, want)
			}
		}
		stream, err := a.Stream(calls(first, "ann"), "")
		if err != nil {
			t.Fatal(err)
		}
		ticket := issue(t, a, stream)
		good("the second before it is there", second, false)

		rewrite(t, path, line1+"\n"+line2+"\n")
		reread()
		good("the first", first, true)
		good("the second", second, true)
		if stream.Ended() != nil {
			t.Error("a stream of a key that is still there has ended")
		}

		for what, content := range map[string]string{
			"half a line": line2[:30], "twice": line2 + "\n" + line2,
		} {
			rewrite(t, path, content)
			reread()
			good("the first, while the file is broken: "+what, first, true)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		reread()
		good("the first without a file", first, true)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		reread()
		good("the first with a pipe for a file", first, true)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}

		rewrite(t, path, line2+"\n")
		reread()
		good("the first, taken out", first, false)
		good("the second", second, true)
		if tidemark.CodeOf(stream.Ended()) != tidemark.Unauthenticated {
			t.Errorf("the stream of a key that was withdrawn: Ended = %v", stream.Ended())
		}
		_, err = a.Stream(ticket, "")
		wantRefused(t, "a ticket made with a key that was withdrawn", err)
	})
}

func TestLoadAPIKeys_refuses_what_is_malformed(t *testing.T) {
	secret, line := newKey(t, "billing")
	_, other := newKey(t, "billing")
	for what, tt := range map[string]struct{ content, want string }{
		"a key itself":      {"# x\n" + secret + "\n", "line 2: it holds an API key itself"},
		"a key with a name": {"billing " + secret, "line 1: it holds an API key itself"},
		"no hash":           {"billing", "line 1: its hash is not valid"},
		"half a hash":       {line[:len(line)-1], "line 1: its hash is not valid"},
		"another hash": {strings.Replace(line, "sha256", "md5", 1),
			"line 1: its hash is not valid"},
		"something behind": {line + " x", "line 1: it has more words"},
		"no name":          {line[len("billing"):], "line 1: its hash is not valid"},
		"a bad name":       {"ä" + line, "line 1: its name is not valid"},
		"the same name":    {line + "\n\n" + other, "line 3: an earlier line has the same name"},
		"the same hash": {line + "\nmore" + line[len("billing"):],
			"line 2: an earlier line has the same hash"},
		"too large": {strings.Repeat("#\n", 1<<19) + "#", "larger than"},
	} {
		_, err := auth.LoadAPIKeys(keysFile(t, tt.content), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q and no key", what, err, tt.want)
		}
	}
	for what, path := range map[string]string{
		"no file": "/nonexistent/keys", "a directory": t.TempDir(),
	} {
		if _, err := auth.LoadAPIKeys(path, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func TestLoadAPIKeys_permissions(t *testing.T) {
	_, line := newKey(t, "billing")
	for _, tt := range []struct {
		mode     os.FileMode
		refused  bool
		warnings int64
	}{{0o600, false, 0}, {0o640, false, 0}, {0o644, false, 1}, {0o602, true, 0}, {0o666, true, 0}} {
		path := keysFile(t, line)
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		log := new(lines)
		_, err := auth.LoadAPIKeys(path, slog.New(log))
		if (err != nil) != tt.refused || log.warnings.Load() != tt.warnings {
			t.Errorf("mode %o: %v, %d warnings, want it refused: %v, %d",
				tt.mode, err, log.warnings.Load(), tt.refused, tt.warnings)
		}
	}
}

func TestAPIKey_has_the_scopes_of_its_line(t *testing.T) {
	key, line, err := auth.NewAPIKey("bot", auth.ScopeSend, auth.ScopeAct)
	if err != nil || !strings.HasSuffix(line, " scopes=send,act") {
		t.Fatalf("%q, %v", line, err)
	}
	full, all := newKey(t, "full")
	a, _ := withKeys(t, keysFile(t, line+"\n"+all+"\n"))
	for _, scope := range auth.Scopes {
		id, err := a.Header(calls(key, "ann"))
		if err != nil {
			t.Fatal(err)
		}
		want := tidemark.Code("")
		if scope != auth.ScopeSend && scope != auth.ScopeAct {
			want = tidemark.Denied
		}
		if got := tidemark.CodeOf(id.Permits(scope)); got != want {
			t.Errorf("%s: %q, want %q", scope, got, want)
		}
		if id, err = a.Header(calls(full, "ann")); err != nil || id.Permits(scope) != nil {
			t.Errorf("a key without scopes, %s: %v, %v", scope, err, id.Permits(scope))
		}
	}
	for _, words := range []string{
		" scopes=", " scopes=read", " scopes=act,", " scopes=act, send", " scope=act", " act",
		" scopes=act scopes=send",
	} {
		_, err := auth.LoadAPIKeys(keysFile(t, all+words), slog.New(slog.DiscardHandler))
		if tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("%q: %v", words, err)
		}
	}
}
