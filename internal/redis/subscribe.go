package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tidemark-im/tidemark"
)

// Subscription is a connection that is subscribed to one channel. It ends with the first error and
// does not subscribe again, so that no loss goes unnoticed. Its methods must be called from one
// goroutine; only Close may be called at any time.
type Subscription struct {
	client  *Client
	channel string
	pubsub  *goredis.PubSub
}

// Subscribe subscribes to a channel. When it returns, Redis has confirmed that: later publications
// arrive. The caller must close the subscription.
func (c *Client) Subscribe(ctx context.Context, channel string) (*Subscription, error) {
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	s := &Subscription{client: c, channel: channel}
	if c.cluster != nil {
		s.pubsub = c.cluster.SSubscribe(within, channel)
	} else {
		s.pubsub = c.one.Subscribe(within, channel)
	}
	received, err := s.pubsub.ReceiveTimeout(within, c.timeout)
	if err == nil {
		if confirmed, ok := received.(*goredis.Subscription); !ok || confirmed.Count != 1 {
			err = tidemark.Errorf(tidemark.Unavailable, "Redis did not confirm the subscription")
		}
	}
	if err != nil {
		s.Close()
		if c.cluster != nil {
			// The slot may have moved. The driver does not learn that from a subscription.
			c.cluster.ReloadState(ctx)
		}
		return nil, c.unavailable(err)
	}
	return s, nil
}

// Receive waits for the next publication, at most for within. After an error the subscription has
// ended. To stop a Receive, call Close; the end of ctx does not.
func (s *Subscription) Receive(ctx context.Context, within time.Duration) (string, error) {
	received, err := s.pubsub.ReceiveTimeout(ctx, within)
	if err != nil {
		return "", s.client.unavailable(err)
	}
	message, ok := received.(*goredis.Message)
	if !ok {
		// A cluster ends the subscription when the slot moves.
		return "", tidemark.Errorf(tidemark.Unavailable, "Redis ended the subscription")
	}
	return message.Payload, nil
}

// Close ends the subscription. It may be called at any time and more than once.
func (s *Subscription) Close() { _ = s.pubsub.Close() }

// Publish returns the call that publishes to a channel. Its reply is the number of receivers, an
// int64.
func (c *Client) Publish(channel string, payload []byte) Call {
	if c.cluster != nil {
		return Call{Args: []any{"SPUBLISH", channel, payload}}
	}
	return Call{Args: []any{"PUBLISH", channel, payload}}
}
