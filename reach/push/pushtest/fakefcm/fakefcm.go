// Package fakefcm speaks FCM's API HTTP v1 and Google's login of service accounts, as they are
// documented: "REST Resource: projects.messages", "ErrorCode", "About FCM messages" on
// firebase.google.com, and "Using OAuth 2.0 for Server to Server Applications" on
// developers.google.com. It refuses what the documentation forbids.
package fakefcm

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/pushtest"
)

const (
	project = "tidemark-test"
	email   = "sender@tidemark-test.iam.example"
)

// FCM is a pushtest.Protocol.
type FCM struct {
	// Tokens are the registration tokens of devices, or their installation ids, which have no
	// colon.
	Tokens []string
	// Device opens what is sealed.
	Device *pushtest.Device
	// Logins is how often the service account has logged in.
	Logins int
	// Ahead is how far Google's clock is ahead.
	Ahead time.Duration
	// Refusing is an answer to logins; nil lets them in.
	Refusing *pushtest.Refusal

	key    *rsa.PrivateKey
	tokens map[string]time.Time // access tokens, until when
	url    string
}

// New returns a fake FCM with a service account.
func New(t *testing.T) *FCM {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return &FCM{key: key, tokens: make(map[string]time.Time)}
}

// Account returns the file of the service account, once the server is at a URL.
func (f *FCM) Account(t *testing.T, serverURL string) []byte {
	t.Helper()
	f.url = serverURL + "/token"
	der, err := x509.MarshalPKCS8PrivateKey(f.key)
	if err != nil {
		t.Fatal(err)
	}
	file, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": project, "private_key_id": "k1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{
			Type: "PRIVATE KEY", Bytes: der,
		})),
		"client_email": email, "token_uri": f.url,
	})
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Skew implements pushtest.Protocol.
func (f *FCM) Skew() time.Duration { return f.Ahead }

// Expire ends all access tokens.
func (f *FCM) Expire(*http.Request) { clear(f.tokens) }

// Login answers requests for access tokens.
func (f *FCM) Login(r *http.Request, body []byte, now time.Time) *pushtest.Refusal {
	if r.URL.Path != "/token" {
		return nil
	}
	f.Logins++
	if f.Refusing != nil {
		return f.Refusing
	}
	wrong := func(why string) *pushtest.Refusal {
		return pushtest.Problem(400, `{"error":"invalid_grant","error_description":%q}`, why)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || r.Method != http.MethodPost ||
		r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" ||
		form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		return wrong("not a grant")
	}
	claims := struct {
		Scope string `json:"scope"`
		jwt.RegisteredClaims
	}{}
	token, err := jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(email),
		jwt.WithAudience(f.url), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithTimeFunc(func() time.Time { return now.Add(time.Minute) }),
	).ParseWithClaims(form.Get("assertion"), &claims,
		func(*jwt.Token) (any, error) { return &f.key.PublicKey, nil })
	switch {
	case err != nil:
		return wrong("Invalid JWT Signature or claims: " + err.Error())
	case token.Header["kid"] != "k1":
		return wrong("unknown key")
	case claims.Scope != "https://www.googleapis.com/auth/firebase.messaging":
		return wrong("unknown scope")
	case claims.ExpiresAt.Sub(claims.IssuedAt.Time) > time.Hour:
		return wrong("the token must be a short-lived token (60 minutes)")
	}
	access := "ya29." + rand.Text()
	f.tokens[access] = now.Add(time.Hour)
	return pushtest.Problem(200, `{"access_token":%q,"expires_in":3599,"token_type":"Bearer"}`,
		access)
}

// Refuse implements pushtest.Protocol.
func (f *FCM) Refuse(trouble pushtest.Trouble, _ time.Time) pushtest.Refusal {
	r := map[pushtest.Trouble]*pushtest.Refusal{
		pushtest.Gone:        problem(404, "NOT_FOUND", "UNREGISTERED"),
		pushtest.Mistaken:    problem(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"),
		pushtest.Busy:        problem(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"),
		pushtest.Failed:      problem(500, "INTERNAL", "INTERNAL"),
		pushtest.Unavailable: problem(503, "UNAVAILABLE", "UNAVAILABLE"),
		pushtest.TooLarge:    problem(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
		pushtest.Barred:      problem(401, "UNAUTHENTICATED", ""),
	}[trouble]
	if trouble == pushtest.Busy || trouble == pushtest.Unavailable {
		r.Header = http.Header{"Retry-After": {fmt.Sprint(pushtest.RetryAfter.Seconds())}}
	}
	return *r
}

func problem(status int, name, code string) *pushtest.Refusal {
	details := "[]"
	if code != "" {
		details = fmt.Sprintf(`[{"@type":%q,"errorCode":%q}]`,
			"type.googleapis.com/google.firebase.fcm.v1.FcmError", code)
	}
	return pushtest.Problem(status,
		`{"error":{"code":%d,"message":"a text for people","status":%q,"details":%s}}`,
		status, name, details)
}

func invalid(why string) *pushtest.Refusal {
	r := problem(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
	r.Body += " " + why
	return r
}

// Accepted is the answer to a message that was accepted.
func (f *FCM) Accepted() pushtest.Refusal {
	return *pushtest.Problem(200, `{"name":"projects/%s/messages/%s"}`, project, rand.Text())
}

var duration = regexp.MustCompile(`^[0-9]+s$`)

// Accept implements pushtest.Protocol.
func (f *FCM) Accept(r *http.Request, body []byte, now time.Time) (
	pushtest.Received, *pushtest.Refusal,
) {
	none := pushtest.Received{}
	access, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch until := f.tokens[access]; {
	case r.Method != http.MethodPost, r.URL.Path != "/v1/projects/"+project+"/messages:send":
		return none, problem(404, "NOT_FOUND", "")
	case !now.Before(until):
		return none, problem(401, "UNAUTHENTICATED", "")
	case !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		return none, invalid("the body is no JSON")
	}
	var p struct {
		Message struct {
			Token, FID string
			Data       map[string]string
			Android    struct {
				TTL, Priority string
				CollapseKey   string `json:"collapse_key"`
			}
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return none, invalid(err.Error())
	}
	m := p.Message
	target := m.Token + m.FID
	size := 0
	for key, value := range m.Data {
		size += len(key) + len(value)
		if key == "from" || key == "message_type" || strings.HasPrefix(key, "google") ||
			strings.HasPrefix(key, "gcm") {
			return none, invalid("the key " + key + " is reserved")
		}
	}
	switch {
	case size > 4096:
		return none, invalid("the message is too big")
	case !duration.MatchString(m.Android.TTL):
		return none, invalid("the ttl is no duration")
	case m.Android.Priority != "HIGH" && m.Android.Priority != "NORMAL":
		return none, invalid("the priority is unknown")
	case m.Token != "" && m.FID != "", strings.Contains(target, ":") != (m.Token != ""):
		return none, invalid("the target is not either a token or an installation id")
	case !slices.Contains(f.Tokens, target):
		return none, invalid("the registration token is not valid")
	}
	ttl, err := time.ParseDuration(m.Android.TTL)
	if err != nil || ttl > 28*24*time.Hour {
		return none, invalid("the ttl is above four weeks")
	}
	received := pushtest.Received{
		TTL: ttl, Urgent: m.Android.Priority == "HIGH", Collapse: m.Android.CollapseKey,
	}
	received.Data, err = f.handle(m.Data)
	if err != nil {
		return none, invalid("the handler cannot read it: " + err.Error())
	}
	return received, nil
}

// handle reads the data as the app's handler does.
func (f *FCM) handle(data map[string]string) (push.Data, error) {
	if sealed := data["sealed"]; sealed != "" {
		return f.Device.OpenText(sealed)
	}
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(data[name], 10, 64)
		return n
	}
	d := push.Data{
		Kind: push.Kind(data["kind"]), Name: data["tag"], Chat: tidemark.ChatID(data["chat_id"]),
		From:  tidemark.Sequence(number("from_sequence")),
		To:    tidemark.Sequence(number("to_sequence")),
		Token: data["ack_token"], Title: data["title"], Body: data["body"],
		Badge: int(number("badge")),
	}
	for clear := range strings.FieldsSeq(data["clears"]) {
		name, to, _ := strings.Cut(clear, ":")
		n, _ := strconv.ParseUint(to, 10, 64)
		d.Clears = append(d.Clears, push.Cleared{Name: name, To: tidemark.Sequence(n)})
	}
	return d, nil
}
