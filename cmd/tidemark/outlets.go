package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"sync"

	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/redis"
	"github.com/tidemark-im/tidemark/reach/webhook"
	"github.com/tidemark-im/tidemark/storage"
)

// outletVariable is the only way to set the key that seals the secrets of outlets.
const outletVariable = "TIDEMARK_OUTLET_KEY"

// developmentKey seals them with --dev. It is no secret.
const developmentKey = "tidemark serve --dev: this is no secret"

// outletFlags configure outlets (docs/webhooks.md).
type outletFlags struct {
	ReachAllowCIDR []string `name:"reach-allow-cidr" env:"TIDEMARK_REACH_ALLOW_CIDR" placeholder:"NETWORK" help:"Private network to which webhooks may lead, such as 10.0.0.0/8, also by http:// and on any port; repeatable. --dev implies 127.0.0.0/8 and ::1/128."`
}

// config checks the flags and the variable. The store and the log of the configuration are empty.
func (f *outletFlags) config(dev bool) (reach.Config, error) {
	var allow []netip.Prefix
	if dev {
		allow = append(allow, netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("::1/128"))
	}
	for _, text := range f.ReachAllowCIDR {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return reach.Config{}, usagef("--reach-allow-cidr %q is not a network, such as "+
				"10.0.0.0/8 or fd00::/8", text)
		}
		allow = append(allow, prefix)
	}
	sealer, err := outletSealer(dev)
	if err != nil {
		return reach.Config{}, err
	}
	return reach.Config{Sealer: sealer, Kinds: map[string]reach.Kind{"webhook": {
		NewSecret: webhook.NewSecret,
		Open: func(s *reach.Spec, secrets []string) (outlet.Client, error) {
			return webhook.New(webhook.Config{
				URL: s.URL, Secrets: secrets, Batch: s.Batch, Content: s.Content, Allow: allow,
			})
		},
	}}}, nil
}

// outletSealer returns what seals the secrets of outlets, or nil if there is no key.
func outletSealer(dev bool) (*reach.Sealer, error) {
	key := os.Getenv(outletVariable)
	switch {
	case key == "" && dev:
		key = developmentKey
	case key == "":
		return nil, nil
	case len(key) < minSecret:
		return nil, usagef("%s has %d bytes; it needs at least %d, such as the output of "+
			"`openssl rand -hex 32`", outletVariable, len(key), minSecret)
	}
	return reach.NewSealer([]byte(key))
}

// outletWork is the engine of outlets, the store with which the core announces news to it, and the
// loop that works for it.
type outletWork struct {
	engine *reach.Engine
	store  storage.Store
	run    func(context.Context)
}

// outlets returns the engine on a store. News of chats on which other nodes work are announced to
// them.
func (o *options) outlets(store storage.Store, others *peers, log *slog.Logger) outletWork {
	cfg := o.reach
	cfg.Store, cfg.Log = store, log
	if others.client == nil {
		engine := reach.New(cfg)
		return outletWork{engine, engine.Hinting(store), engine.Run}
	}
	hints := redis.New(others.client)
	others.counters = append(others.counters, hints.Counters)
	cfg.Forward = hints.Send
	engine := reach.New(cfg)
	return outletWork{engine, engine.Hinting(store), func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() { hints.Run(ctx, engine.HintOfAnother) })
		engine.Run(ctx)
		running.Wait()
	}}
}
