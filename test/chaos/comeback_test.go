package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
	"github.com/tidemark-im/tidemark/test/chaos/client"
)

func only() string { return os.Getenv("TIDEMARK_CHAOS_FAULTS") }

// comeBack opens a session for every user, without cursors, on some node. The session must deliver
// everything that its user has not acknowledged, whether a pending row or a comparison finds it. No
// other device may be connected: what it acknowledges in between is not delivered.
func (b *testbed) comeBack() {
	b.t.Helper()
	truth := b.acknowledged()
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	var logs []*checker.Log
	for user := range users {
		log := b.ledger.NewLog(name(user)+"/back", name(user))
		log.Only = true
		log.Assume(truth.Acked(name(user)))
		d := &client.Device{
			Log:    log,
			Ledger: b.ledger,
			Base:   b.base(),
			Random: rand.New(rand.NewPCG(b.seed, uint64(2000+user))),
			Mute:   true,
		}
		running.Go(func() { d.Run(ctx) })
		logs = append(logs, log)
	}
	b.await("each user who comes back gets what they have not acknowledged", func() string {
		for _, log := range logs {
			if lack := log.Missing(truth.Expected(log.User)); lack != "" {
				return lack
			}
		}
		return ""
	})
	cancel()
	running.Wait()
	n := 0
	for _, log := range logs {
		n += log.Counts().Messages
	}
	b.t.Log(fmt.Sprint(n, " messages were pending for those who came back"))
}

// acknowledged returns the truth once the nodes have written the last acknowledgements.
func (b *testbed) acknowledged() checker.Truth {
	b.t.Helper()
	var last checker.Truth
	for {
		truth, err := checker.ReadTruth(b.ctx, b.url)
		must(b.t, err)
		if maps.Equal(truth.States, last.States) {
			return truth
		}
		last = truth
		pause(b.ctx, 2*time.Second)
	}
}
