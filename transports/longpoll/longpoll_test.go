package longpoll_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stores.Main(m)) }

func TestDelivery(t *testing.T) { transporttest.Run(t, transporttest.LongPoll()) }
