package transporttest

import (
	"net/http"
	"testing"

	"github.com/tidemark-im/tidemark/transports/internal/apitest"
)

// Checked returns a RoundTripper over base that fails the test if an exchange does not fit
// openapi.yaml. It is for tests of servers that are not a Stack.
func Checked(t testing.TB, base http.RoundTripper) http.RoundTripper {
	return apitest.Load(t).Transport(t, base)
}
