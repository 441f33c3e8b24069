package stats

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// A client beyond MaxStreams is asked to retry after a random time between these bounds.
const (
	fewerStreamsFrom = 5 * time.Second
	fewerStreamsTo   = 15 * time.Second
)

// stream sends the figures each second, until the client goes, reads nothing for WriteTimeout, or
// may not have them any more. What a slow client has not taken is not queued: it gets fewer events.
func (a *Adapter) stream(c echo.Context, id auth.Identity) error {
	if !a.enter() {
		err := tidemark.Errorf(tidemark.Unavailable,
			"this node serves %d streams of figures already; come back later", MaxStreams)
		return problem.RetryAfter(err, fewerStreamsFrom+rand.N(fewerStreamsTo-fewerStreamsFrom))
	}
	defer a.leave()
	w := c.Response()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	var out stream.Writer
	var pool stream.Pool
	//rule:bounded_use.drop-slow-watchers
	out.Init(stream.NewResponse(w), &pool, a.cfg.WriteTimeout)
	defer out.Close()
	a.follow(c.Request().Context(), id, &out)
	return nil
}

// follow writes events until the stream ends.
func (a *Adapter) follow(ctx context.Context, id auth.Identity, out *stream.Writer) {
	tick := time.NewTicker(a.cfg.Every)
	defer tick.Stop()
	var seen history
	for {
		//rule:credentials_end.end-stats-stream
		if err := id.Ended(); err != nil {
			end(out, err)
			return
		}
		figures := a.collect(ctx)
		seen.add(&figures, time.Now())
		text, err := json.Marshal(figures)
		if err != nil {
			end(out, err)
			return
		}
		if out.Append([]byte("event: stats\ndata: "), text, []byte("\n\n")) != nil ||
			out.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// end writes why a stream ends. The connection ends anyway, so that a failure does not matter.
func end(out *stream.Writer, err error) {
	var stated *tidemark.Error
	if !errors.As(err, &stated) {
		stated = &tidemark.Error{Code: tidemark.Internal, Detail: "the figures cannot be written"}
	}
	_ = out.Append(wire.AppendSSE(nil, "", tidemark.Event{
		Type: tidemark.EventProblem, Payload: wire.ProblemOf(stated).AppendJSON(nil),
	}))
	_ = out.Flush()
}

// enter reports whether the node serves another stream. If so, the caller must call leave.
func (a *Adapter) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	//rule:bounded_use.few-stats-streams
	if a.streams >= MaxStreams {
		return false
	}
	a.streams++
	return true
}

func (a *Adapter) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams--
}
