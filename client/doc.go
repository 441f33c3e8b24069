// Package client is for programs that chat as a user: bots, bridges and services. It keeps one
// stream open, hands over each message, acknowledges what was handled, and sends.
//
// A bot that answers each message once:
//
//	bot, err := client.New(client.Config{
//		URL:   "https://chat.example.com",
//		User:  "echo",
//		Token: func(context.Context) (string, error) { return os.Getenv("API_KEY"), nil },
//	})
//	if err != nil {
//		return err
//	}
//	return bot.Run(ctx, func(ctx context.Context, m tidemark.Message) error {
//		if m.Kind != tidemark.KindMessage || m.Redacted() {
//			return nil // not a message to answer, or its text was redacted
//		}
//		_, err := bot.Send(ctx, client.Draft{
//			ID:      "echo-" + string(m.MessageID), // one answer, however often it is handled
//			ChatID:  m.ChatID,
//			Content: m.Content,
//			Seen:    tidemark.SeenThrough(m.Sequence),
//		})
//		return err // nil: the message is acknowledged; else it is handled again
//	})
//
// # Handled, saved, acknowledged
//
// Each message goes through these steps, in this order. Its sender sees it as delivered only after
// the last one. So the tick is true even if the process dies in between.
//
//	handled       handle returned nil
//	saved         Config.Cursors has stored the cursor of the chat
//	acknowledged  the server knows: after 10 messages, after 5 s, and when Run ends
//
// The messages of a chat are handled in the order of their sequences, and none is skipped. A
// message may be handled twice: if the process dies before the last step, or if the server's data
// are restored from a backup. So give what handle does an identity that comes from the message, as
// the ID above.
//
// Without Config.Cursors a new process begins at the user's watermark on the server. That is enough
// for a user with one device. The devices of a user share this watermark. So give each of several
// devices its own Cursors: otherwise it skips what another device has acknowledged.
//
// # Edits and redactions
//
// An edit or a redaction is a message of its own, of the kind tidemark.KindEdit or KindRedact. It
// comes to handle in the order of its sequence, and its content is empty. Relation.Target is the
// changed message as it is now, or nil if the user may not see it. A program that keeps messages
// replaces its copy by the target, if the target's Revision.Sequence is higher than that of the
// copy. A message without a Revision has not been changed. If Target.Redacted reports true, remove
// the text wherever it was put.
//
// A message that waits for its handler when it is changed is handed over as it is then. So is one
// that is fetched later. Edit and Redact send changes.
//
// # Reactions and pins
//
// A reaction or a pin is a message, too, of the kind tidemark.KindReact or KindPin. Its Relation
// names the message, and a reaction's the emoji. It changes nothing of the message, so its
// Relation.Target is always nil. It is undone by its redaction, whose Relation.Target is the
// reaction or pin itself. That one keeps its Relation, so a program that counts knows what to take
// back. React and Pin send them, and Redact undoes them.
//
// # Reconnecting and limits
//
// It prefers WebSocket, and goes on over Server-Sent Events or long-poll where a proxy blocks it.
// It resumes its session over all of them. It comes back after pauses that grow, or exactly when
// the server says. It gets a new token before the old one ends. At most 1,000 messages, or 8 MiB,
// wait for handlers, however many are on the way: the others stay on the server, and come later.
//
// A chat whose message cannot be handled waits alone. The others go on.
//
// The client does not come back by itself if another client took its device over, or if the user's
// sessions were ended: Run returns a *tidemark.Error with the code REPLACED.
package client
