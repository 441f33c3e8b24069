package pusher

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
)

// TestMemory_is_bounded: who was notified least lately is forgotten, and of a device its oldest
// chats.
func TestMemory_is_bounded(t *testing.T) {
	var m memory
	n := push.Notification{Kind: push.Banner, Name: "n"}
	note := func(user, device, chat int) {
		at := receiver{tidemark.UserID(fmt.Sprint(user)), tidemark.DeviceID(fmt.Sprint(device))}
		m.note(at, 1, &n, shown{tidemark.ChatID(fmt.Sprint(chat)), 1, true})
	}
	shows := func(user, chat int) bool {
		return m.shows(pair{tidemark.UserID(fmt.Sprint(user)), tidemark.ChatID(fmt.Sprint(chat))})
	}
	for chat := range maxBanners + 1 {
		note(0, 0, chat)
	}
	if shows(0, 0) || !shows(0, 1) || !shows(0, maxBanners) {
		t.Error("of a device, others than the oldest chat are forgotten")
	}
	for device := range 2 * devices.MaxDevices {
		note(1, device, 1)
	}
	if got := len(m.users["1"].Value.(*notified).devices); got > devices.MaxDevices {
		t.Errorf("%d devices of a user are remembered", got)
	}
	for user := range maxUsers {
		note(user+1, 0, 1)
		note(0, 0, 1) // This one is notified all the time.
	}
	if len(m.users) != maxUsers || m.lately.Len() != maxUsers {
		t.Errorf("%d users are remembered, want %d", len(m.users), maxUsers)
	}
	if shows(1, 1) || !shows(0, 1) || !shows(2, 1) || !shows(maxUsers, 1) {
		t.Error("others are forgotten than the one who was notified least lately")
	}
	var w watched
	for user := range maxWatched + 10 {
		w.add(pair{tidemark.UserID(fmt.Sprint(user)), "chat"}, 1)
	}
	if len(w.through) != maxWatched {
		t.Errorf("%d chats are watched, want %d", len(w.through), maxWatched)
	}
}
