package bench

import (
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
}

// some returns a time between 0 and twice its mean.
func (l *leaving) some(mean time.Duration) time.Duration {
	return time.Duration(l.random.Float64() * 2 * float64(mean))
}

// untilCut handles events until the stream ends, by itself or by leaving.
func (l *listener) untilCut(s client.Stream) error {
	if l.leaving != nil {
		cut := time.AfterFunc(l.leaving.some(l.leaving.each), s.Close)
		defer cut.Stop()
	}
	return l.drain(s)
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
