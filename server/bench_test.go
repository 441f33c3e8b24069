package server_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// benchmarkSend measures a message from Alice that Bob's connection reads, and that Bob
// acknowledges with the next batch.
func benchmarkSend(b *testing.B, change func(*server.Config)) {
	reg, ctx := registrymemory.New(), context.Background()
	cfg := server.Config{
		Storage: memory.New(), Registry: reg, Nodes: reg, Bus: local.New(), Logger: quiet(),
	}
	change(&cfg)
	s, err := server.New(cfg)
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Stop(ctx) }()
	alice := server.Caller{User: "alice"}
	_, _, err = s.CreateChat(ctx, alice, server.CreateChatRequest{
		ChatID: "c", Type: tidemark.Direct, MemberIDs: []tidemark.UserID{"alice", "bob"},
	})
	if err != nil {
		b.Fatal(err)
	}
	bob, err := s.Open(ctx, server.OpenRequest{User: "bob"})
	if err != nil {
		b.Fatal(err)
	}
	// A request of net/http has about as many values.
	type key int
	for i := range 6 {
		ctx = context.WithValue(ctx, key(i), i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		sent, err := s.Send(ctx, "alice", tidemark.Draft{
			ChatID: "c", ClientMessageID: fmt.Sprint(i), Content: "x",
		})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := bob.Next(ctx, nil, true); err != nil {
			b.Fatal(err)
		}
		bob.Ack(server.Ack{Chat: "c", Acked: sent.Message.Sequence})
	}
}

// BenchmarkSend is a message without traces.
func BenchmarkSend(b *testing.B) { benchmarkSend(b, func(*server.Config) {}) }
