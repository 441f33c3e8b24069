package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tidemark-im/tidemark"
)

// Subscription is a connection that listens to one channel. When something is wrong with it, it is over: it does not come back by itself, so that nothing is missed
// unnoticed. Its methods are called by one goroutine, except Close.
type Subscription struct {
	client  *Client
	channel string
	pubsub  *goredis.PubSub
}

// Subscribe listens to a channel. It returns when Redis has confirmed it: what is published from now on arrives. Close the subscription.
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
			c.cluster.ReloadState(ctx) // the slot may have moved, which nothing else of a subscription tells the driver
		}
		return nil, c.unavailable(err)
	}
	return s, nil
}

// Receive waits for the next publication, at most for the time given. Any error is the end of the subscription. ctx ends no wait; Close does.
func (s *Subscription) Receive(ctx context.Context, within time.Duration) (string, error) {
	received, err := s.pubsub.ReceiveTimeout(ctx, within)
	if err != nil {
		return "", s.client.unavailable(err)
	}
	message, ok := received.(*goredis.Message)
	if !ok {
		// A cluster that moves the slot elsewhere ends the subscription.
		return "", tidemark.Errorf(tidemark.Unavailable, "Redis ended the subscription")
	}
	return message.Payload, nil
}

// Close ends the subscription. It may be called at any time, and again.
func (s *Subscription) Close() { _ = s.pubsub.Close() }

// Publish is the call that publishes to a channel. Its reply is the number of those who received it, as an int64.
func (c *Client) Publish(channel string, payload []byte) Call {
	if c.cluster != nil {
		return Call{Args: []any{"SPUBLISH", channel, payload}}
	}
	return Call{Args: []any{"PUBLISH", channel, payload}}
}
