package apns

import (
	"crypto/ecdsa"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/reach/push/internal/es256"
)

// Apple refuses a token that is older than an hour, and a server that renews it more often than
// every 20 minutes ("Establishing a token-based connection to APNs"). With steps of 40 minutes a
// token is at most 40 minutes old, and all nodes have the same one without asking each other.
const (
	step = 40 * time.Minute
	// renewal is the step of a token that replaces a refused one.
	renewal = 20 * time.Minute
)

// login makes the provider tokens. It is safe for concurrent use.
type login struct {
	key           *ecdsa.PrivateKey
	keyID, teamID string

	mu sync.Mutex // guards what follows
	// issued is the time in the present token.
	issued int64
	token  string
	// skew is how far Apple's clock is ahead of ours, as the last refusal of a token said.
	skew time.Duration
}

// current returns the token of a time. Two servers with one key return the same bytes.
func (l *login) current(now time.Time) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	//rule:push_logins_are_shared.time-in-steps
	issued := now.Add(l.skew).Truncate(step).Unix()
	if issued > l.issued || l.token == "" {
		return l.sign(issued)
	}
	return l.token, nil
}

// renew returns another token than one that Apple refused as expired. apple is the time in its
// answer. ok is false if there is no other token.
func (l *login) renew(refused string, now, apple time.Time) (token string, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token != refused {
		return l.token, true, nil // another request has renewed it
	}
	issued := apple.Truncate(renewal).Unix()
	if issued == l.issued {
		return "", false, nil
	}
	l.skew = apple.Sub(now)
	token, err = l.sign(issued)
	return token, err == nil, err
}

func (l *login) sign(issued int64) (string, error) {
	token, err := es256.Token(l.key, map[string]any{"alg": "ES256", "kid": l.keyID},
		map[string]any{"iss": l.teamID, "iat": issued})
	if err != nil {
		return "", err
	}
	l.issued, l.token = issued, token
	return token, nil
}
