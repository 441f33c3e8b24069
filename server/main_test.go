package server_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/test/services/stores"
)

// Every goroutine of the core has an owner that waits for it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(stores.Main(m)) }
