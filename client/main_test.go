package client

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/test/services/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stores.Main(m)) }
