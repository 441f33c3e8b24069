// The program bot answers each message that its user gets, once. It shows package client:
//
//	go run ./examples/bot -url http://127.0.0.1:8080 -user echo
//
// TOKEN in the environment is an API key or a token of the user. Without it, the bot shows
// credentials that only a development server accepts.
package main

import (
	"cmp"
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the bot ended", "error", err)
		stop()
		os.Exit(1)
	}
}

// run runs the bot until ctx ends.
func run(ctx context.Context) error {
	url := flag.String("url", "http://127.0.0.1:8080", "the address of the server")
	user := flag.String("user", "echo", "the user for whom the bot answers")
	flag.Parse()
	bot, err := client.New(client.Config{
		URL:  *url,
		User: tidemark.UserID(*user),
		Token: func(context.Context) (string, error) {
			return cmp.Or(os.Getenv("TOKEN"), "dev:"+*user), nil
		},
		Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	return bot.Run(ctx, func(ctx context.Context, m tidemark.Message) error {
		if m.Kind != tidemark.KindMessage || m.Redacted() {
			return nil // an edit, a redaction, a line about the chat, or nothing is left
		}
		_, err := bot.Send(ctx, client.Draft{
			ID:      "echo-" + string(m.MessageID), // the same for each try
			ChatID:  m.ChatID,
			Content: m.Content,
			Seen:    tidemark.SeenThrough(m.Sequence),
		})
		if code := tidemark.CodeOf(err); code == tidemark.NotMember || code == tidemark.Denied {
			return nil // the bot may not answer there, now or later
		}
		return err // nil: the message is acknowledged; else it is handled again
	})
}
