package transporttest

import (
	"net/http"
	"testing"

	"github.com/tidemark-im/tidemark/transports/internal/apitest"
)

// Checked returns a RoundTripper over base that fails the test when an exchange is not as openapi.yaml says, for tests of servers that are no Stack.
func Checked(t testing.TB, base http.RoundTripper) http.RoundTripper {
	return apitest.Load(t).Transport(t, base)
}
