package appends

import (
	"context"
	"math/rand/v2"

	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
)

// Several processes share a chat by pauses: after losses, and after a share of transactions.
const (
	// losses is how many attempts in a row may lose to other processes before a pause.
	losses = 3
	// lossPause selects the length of that pause, as the number of a repeated call: 80 to 160 ms.
	// After patience losses the pause is as short as possible.
	lossPause = 4
	patience  = 10 * losses
	// After leastShare transactions without a loss or a rest, a process leaves the chat to others
	// for about the length of one. If none comes, its next share is twice as large, up to
	// mostShare. Without such pauses the process that has just written knows the head first, and
	// wins every time.
	leastShare = 8
	mostShare  = 256
)

// backOff pauses after several losses, since a failed transaction costs as much as a successful
// one. A process that always pauses would lose every time while another one is busy. So most
// attempts follow at once, with the head that the failure returned.
func (a *appending) backOff(ctx context.Context) error {
	a.view.lost++
	a.view.won, a.view.share = 0, leastShare
	if a.view.lost%losses != 0 {
		return nil
	}
	long := lossPause
	if a.view.lost > patience {
		long = 0
	}
	if err := call.Pause(ctx, long); err != nil {
		return err
	}
	a.view.stale = true
	return nil
}

// leaveRoom pauses after a share of transactions, so that another process can write the chat.
func (a *appending) leaveRoom(ctx context.Context) error {
	v := a.view
	if v.share == 0 {
		v.share = leastShare
	}
	if v.won < v.share {
		return nil
	}
	head := v.Head
	if !signal.Pause(ctx, v.took+rand.N(v.took+1)) {
		return ctx.Err()
	}
	found, err := a.Counter(ctx, a.chat)
	if err != nil {
		return err
	}
	v.see(found)
	if v.won, v.share = 0, min(2*v.share, mostShare); found.Head != head {
		v.share, v.shared = leastShare, true
	}
	return nil
}
