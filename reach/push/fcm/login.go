package fcm

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/wire"
)

// scope is the permission to send ("Authorize send requests").
const scope = "https://www.googleapis.com/auth/firebase.messaging"

const (
	// early is how long before its end a token is renewed. Until then the old one is used, too.
	early = 5 * time.Minute
	// spare is how long before its end a token is not used any more.
	spare = 30 * time.Second
	// afterFailure is for how long a failed login is not tried again.
	afterFailure = time.Second
)

// account is the file of a service account, as the Firebase console makes it.
type account struct {
	Type       string `json:"type"`
	Project    string `json:"project_id"`
	KeyID      string `json:"private_key_id"`
	PrivateKey string `json:"private_key"`
	Email      string `json:"client_email"`
	TokenURI   string `json:"token_uri"`

	key *rsa.PrivateKey
}

// parseAccount reads the file of a service account.
func parseAccount(file []byte) (account, error) {
	var a account
	err := json.Unmarshal(file, &a)
	if err == nil {
		a.key, err = jwt.ParseRSAPrivateKeyFromPEM([]byte(a.PrivateKey))
	}
	token, bad := url.Parse(a.TokenURI)
	if err != nil || a.Type != "service_account" || a.Project == "" || a.Email == "" ||
		bad != nil || token.Scheme != "https" {
		return account{}, &tidemark.Error{Code: tidemark.Invalid, Err: err,
			Detail: "FCM needs the JSON file of a service account; the Firebase console makes " +
				"one in Project settings, Service accounts"}
	}
	return a, nil
}

// login keeps the access token of a service account (RFC 7523). It is safe for concurrent use.
type login struct {
	account account
	client  *http.Client
	clock   func() time.Time

	mu      sync.Mutex // guards what follows; not held during a request
	token   string
	expires time.Time
	// fetching is closed when the login under way ends; nil if there is none.
	fetching chan struct{}
	// failed is the result of the last login that failed, and failedAt when.
	failed   push.Result
	failedAt time.Time
}

// get returns a token other than the refused one. One login is made at a time. Without a token it
// returns what becomes of the notification.
func (l *login) get(ctx context.Context, refusedToken string) (string, push.Result) {
	for {
		l.mu.Lock()
		now := l.clock()
		usable := l.token != "" && l.token != refusedToken && now.Before(l.expires.Add(-spare))
		token, failed, under := l.token, l.failed, l.fetching
		switch {
		//rule:push_logins_are_shared.renewed-early
		case usable && (under != nil || now.Before(l.expires.Add(-early))):
			l.mu.Unlock()
			return token, push.Result{}
		case !l.failedAt.IsZero() && now.Sub(l.failedAt) < afterFailure:
			l.mu.Unlock()
			if usable {
				return token, push.Result{}
			}
			return "", failed
		case under == nil:
			l.fetching = make(chan struct{})
			l.mu.Unlock()
			l.fetch(ctx)
		default:
			l.mu.Unlock()
			select {
			case <-under:
			case <-ctx.Done():
				return "", wire.Unreachable(ctx.Err())
			}
		}
		if ctx.Err() != nil {
			return "", wire.Unreachable(ctx.Err())
		}
	}
}

// fetch logs in, and ends the login under way.
func (l *login) fetch(ctx context.Context) {
	token, life, failed := l.request(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if token != "" {
		l.token, l.expires, l.failedAt = token, l.clock().Add(life), time.Time{}
	} else if ctx.Err() == nil { // else the next caller tries
		l.failed, l.failedAt = failed, l.clock()
	}
	close(l.fetching)
	l.fetching = nil
}

// request asks for a token ("Using OAuth 2.0 for Server to Server Applications").
func (l *login) request(ctx context.Context) (token string, life time.Duration, r push.Result) {
	now := l.clock()
	assertion := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": l.account.Email, "scope": scope, "aud": l.account.TokenURI,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	assertion.Header["kid"] = l.account.KeyID
	signed, err := assertion.SignedString(l.account.key)
	if err != nil {
		return "", 0, refused("the key of the service account cannot sign: " + err.Error())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.account.TokenURI,
		strings.NewReader(url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {signed},
		}.Encode()))
	if err != nil {
		return "", 0, refused("the token_uri of the service account cannot be used")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := wire.Do(l.client, request)
	if err != nil {
		return "", 0, wire.Unreachable(err)
	}
	var body struct {
		Token  string `json:"access_token"`
		Type   string `json:"token_type"`
		Expiry int64  `json:"expires_in"`
		Error  string `json:"error"`
	}
	unreadable := json.Unmarshal(answer.Body, &body)
	switch {
	case answer.Status == http.StatusTooManyRequests || answer.Status >= 500:
		return "", 0, wire.Busy(answer, now, 0)
	case answer.Status == http.StatusOK && unreadable == nil && body.Token != "" &&
		strings.EqualFold(body.Type, "Bearer") && body.Expiry > 0:
		return body.Token, time.Duration(min(body.Expiry, 24*3600)) * time.Second, push.Result{}
	default:
		return "", 0, refused("Google refuses the login of the service account; check that its " +
			"key was not deleted, and that the clock of this server is right")
	}
}
