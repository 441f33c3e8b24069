package local_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/bustest"
	"github.com/tidemark-im/tidemark/server/bus/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBus(t *testing.T) {
	bustest.Run(t, func(*testing.T) bus.Bus { return local.New() })
}
