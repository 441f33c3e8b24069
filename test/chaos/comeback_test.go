package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
	"github.com/tidemark-im/tidemark/test/chaos/client"
)

func only() string { return os.Getenv("TIDEMARK_CHAOS_FAULTS") }

// comeBack opens a session for every user, without cursors, on some node. The session must deliver
// everything that its user has not acknowledged, whether a pending row or a comparison finds it.
func (b *testbed) comeBack() {
	b.t.Helper()
	truth, err := checker.ReadTruth(b.ctx, b.url)
	must(b.t, err)
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
