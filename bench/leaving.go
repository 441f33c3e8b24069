package bench

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
)

// leaving says how a device loses its connection again and again. Every second time it comes back
// without its session, as a program that was started anew.
type leaving struct {
	// each and away are the means of how long the device stays connected, and then away.
	each, away time.Duration
	random     *rand.Rand
	times      int
	// cut ends the present connection.
	cut context.CancelFunc
}

// some returns a time between 0 and twice its mean.
func (l *leaving) some(mean time.Duration) time.Duration {
	return time.Duration(l.random.Float64() * 2 * float64(mean))
}

// open opens a connection of the device, and cuts it later. start makes the first call, and the
// goroutine that reads makes the others.
func (l *leaving) open(
	ctx context.Context, open func(context.Context) (client.Stream, error),
) (client.Stream, error) {
	if l.cut != nil {
		l.cut()
	}
	ctx, l.cut = context.WithCancel(ctx)
	s, err := open(ctx)
	if err == nil {
		time.AfterFunc(l.some(l.each), l.cut)
	}
	return s, err
}

// stayAway waits before the device comes back. It returns an error if the run ends meanwhile.
func (l *listener) stayAway() error {
	if l.leaving == nil {
		return nil
	}
	if l.leaving.times++; l.leaving.times%2 == 0 {
		l.at = client.Position{}
	}
	return sleep(l.run.ctx, l.leaving.some(l.leaving.away))
}
