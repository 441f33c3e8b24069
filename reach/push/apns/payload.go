package apns

import (
	"time"

	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/internal/seal"
)

// MaxPayload is the greatest size of a payload in bytes ("Generating a remote notification").
const MaxPayload = 4_096

// payload is what Apple gets. The app's handler reads Tidemark, or opens Sealed with the device's
// key and finds a push.Data there.
type payload struct {
	APS      aps        `json:"aps"`
	Tidemark *push.Data `json:"tidemark,omitempty"`
	Sealed   string     `json:"sealed,omitempty"`
}

type aps struct {
	Alert *alert `json:"alert,omitempty"`
	Badge *int   `json:"badge,omitempty"`
	Sound string `json:"sound,omitempty"`
	// Thread groups the banners of a chat.
	Thread string `json:"thread-id,omitempty"`
	// Mutable lets the app's extension change the banner, and acknowledge.
	Mutable int `json:"mutable-content,omitempty"`
	// Available wakes the app without a banner.
	Available int `json:"content-available,omitempty"`
}

type alert struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// encode returns the payload of a notification, of at most MaxPayload bytes.
func encode(to push.Target, n push.Notification) ([]byte, error) {
	if !n.Sealed || n.Kind == push.Badge {
		return push.Fit(n, MaxPayload, open)
	}
	//rule:sealed_opaque.apple-sees-no-text
	p := payload{APS: visible(n, push.Hidden)}
	shell, err := push.JSON(p)
	if err != nil {
		return nil, err
	}
	most := MaxPayload - len(shell) - len(`,"sealed":""`)
	plain, err := push.Fit(n, seal.Room(most), func(n push.Notification) ([]byte, error) {
		return push.JSON(n.Data())
	})
	if err != nil {
		return nil, err
	}
	if p.Sealed, err = seal.Text(to.Key, plain, most); err != nil {
		return nil, err
	}
	return push.JSON(p)
}

// open returns the payload of a notification that is not sealed.
func open(n push.Notification) ([]byte, error) {
	p := payload{APS: visible(n, n.Body)}
	if p.APS.Alert != nil {
		p.APS.Alert.Title = n.Title
	}
	if n.Kind != push.Badge {
		data := n.Data()
		data.Title, data.Body = "", "" // they are in the alert
		p.Tidemark = &data
	}
	return push.JSON(p)
}

// visible returns what the system shows.
func visible(n push.Notification, body string) aps {
	if n.Kind == push.Clear {
		return aps{Available: 1} // a badge, alert or sound is not allowed beside it
	}
	count := n.Count()
	a := aps{Badge: &count}
	if !n.Kind.Silent() {
		a.Alert, a.Sound, a.Thread, a.Mutable = &alert{Body: body}, "default", n.Name, 1
	}
	return a
}

// maxBackground is how many background notifications an hour a device gets. Apple delivers two or
// three ("Pushing background updates to your app").
const maxBackground = 2

// Clears returns the notifications by which a device learns that something was read elsewhere. The
// badge comes always, and at once. A Clear, which also removes the banner, is added unless the
// device got two within the last hour. recent are the times of earlier ones.
func Clears(recent []time.Time, now time.Time) []push.Kind {
	within := 0
	for _, at := range recent {
		if now.Sub(at) < time.Hour {
			within++
		}
	}
	if within >= maxBackground {
		return []push.Kind{push.Badge}
	}
	return []push.Kind{push.Badge, push.Clear}
}
