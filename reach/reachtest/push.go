package reachtest

import (
	"context"
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/pusher"
)

// What a server of tests notifies by.
const (
	// VAPIDKey and P256dh are points on P-256, and Auth is 16 bytes, all in base64url.
	VAPIDKey = "BDd3_hVL9fZi9Ybo2UUzA284WG5FZR30_95YeZJsiApw" +
		"XKpNcF1rRPF3foIiBHXRdJI2Qhumhf6_LFTeZaNndIo"
	P256dh = VAPIDKey
	Auth   = "AAAAAAAAAAAAAAAAAAAAAA"
)

// Platforms are the providers that are served. They refuse the address "refused".
func Platforms() map[devices.Platform]func(address string) error {
	check := func(address string) error {
		if address == "refused" {
			return tidemark.Errorf(tidemark.Invalid, "it is refused")
		}
		return nil
	}
	return map[devices.Platform]func(string) error{devices.WebPush: check, devices.FCM: nil}
}

// AckToken returns the token that acknowledges the messages of a chat up to n for a user.
func AckToken(user tidemark.UserID, chat tidemark.ChatID, n tidemark.Sequence) string {
	return fmt.Sprintf("%s %s %d", user, chat, n)
}

// Acknowledged returns what AckToken was called with.
func Acknowledged(_ context.Context, token string) (pusher.Ack, error) {
	var ack pusher.Ack
	if _, err := fmt.Sscan(token, &ack.User, &ack.Chat, &ack.Through); err != nil {
		return ack, tidemark.Errorf(tidemark.Unauthenticated, "the token is forged")
	}
	return ack, nil
}
