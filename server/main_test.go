package server_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/test/services/stores"
)

// TestMain fails if a goroutine of the core is left at the end: each has an owner that waits for
// it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(stores.Main(m)) }
