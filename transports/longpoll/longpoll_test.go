package longpoll_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/transports/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDelivery(t *testing.T) { transporttest.Run(t, transporttest.LongPoll()) }
