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

// comeBack lets every user open a session that gives no cursors, on some node: it brings everything that he has not acknowledged, whether a row says so or a comparison finds it.
func (w *world) comeBack() {
	w.t.Helper()
	truth, err := checker.ReadTruth(w.ctx, w.url)
	must(w.t, err)
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	var logs []*checker.Log
	for user := range users {
		log := w.ledger.NewLog(name(user)+"/back", name(user))
		log.Only = true
		log.Assume(truth.Acked(name(user)))
		d := &client.Device{
			Log:    log,
			Ledger: w.ledger,
			Base:   w.base(),
			Random: rand.New(rand.NewPCG(w.seed, uint64(2000+user))),
			Mute:   true,
		}
		running.Go(func() { d.Run(ctx) })
		logs = append(logs, log)
	}
	w.await("everybody who comes back gets what he has not acknowledged", func() string {
		for _, log := range logs {
			if lack := log.Lacks(truth.Owed(log.User)); lack != "" {
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
	w.t.Log(fmt.Sprint(n, " messages were pending for those who came back"))
}
