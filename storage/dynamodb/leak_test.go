package dynamodb

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a store or a migration leaves a goroutine behind, for example of a connection.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
