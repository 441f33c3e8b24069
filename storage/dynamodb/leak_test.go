package dynamodb

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain finds out what a store, or a migration, leaves behind: no connection has a goroutine once it is over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
