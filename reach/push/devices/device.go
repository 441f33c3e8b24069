package devices

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
)

// Platform names a provider, or a family of them.
type Platform string

// The platforms.
const (
	APNs        Platform = "apns"
	FCM         Platform = "fcm"
	WebPush     Platform = "webpush"
	UnifiedPush Platform = "unifiedpush"
)

// Bounds of registrations.
const (
	// MaxDevices is how many devices of a user are registered at most.
	MaxDevices = 32
	// MaxAddress is the maximum number of bytes of an address, and MaxApp that of an app's name.
	MaxAddress = 2_048
	MaxApp     = 255
)

// Device is the registration of one device of a user.
type Device struct {
	ID       tidemark.DeviceID `json:"device_id"`
	Platform Platform          `json:"platform"`
	// App is the app's name at the provider. APNs needs it. Environment is of APNs, too.
	App         string           `json:"app,omitempty"`
	Environment push.Environment `json:"environment,omitempty"`
	// Address is where the provider finds the device. Who has it may notify the device.
	Address string `json:"address"`
	// P256dh and Auth are the device's key (push.ParseKey), or nil.
	P256dh []byte `json:"p256dh,omitempty"`
	Auth   []byte `json:"auth,omitempty"`
	// Registration and RegisteredAt are set by Registry.Put. Registrations of a user ascend.
	Registration uint64    `json:"registration"`
	RegisteredAt time.Time `json:"registered_at"`
}

// Check returns nil if a device could be registered, else an Invalid error that names
// the field. It does not know which platforms are served, and which endpoints are allowed.
func (d *Device) Check() error {
	if err := tidemark.CheckID("device_id", d.ID); err != nil {
		return err
	}
	if err := checkWord("address", d.Address, MaxAddress); err != nil {
		return err
	}
	if d.App != "" {
		if err := checkWord("app", d.App, MaxApp); err != nil {
			return err
		}
	}
	keys := d.P256dh != nil || d.Auth != nil
	if keys {
		if _, err := push.ParseKey(d.P256dh, d.Auth); err != nil {
			return err
		}
	}
	switch d.Environment {
	case "", push.Production, push.Sandbox:
	default:
		return tidemark.BadParam(tidemark.Invalid, "environment", "must be production or sandbox")
	}
	switch d.Platform {
	case APNs:
		if d.App == "" {
			return tidemark.BadParam(tidemark.Invalid, "app",
				"is missing; for apns it is the bundle id of the app")
		}
		return nil
	case FCM:
	case WebPush, UnifiedPush:
		if !keys {
			return tidemark.BadParam(tidemark.Invalid, "keys",
				"are missing; pass on p256dh and auth of the subscription")
		}
	default:
		return tidemark.BadParam(tidemark.Invalid, "platform",
			"must be apns, fcm, webpush or unifiedpush")
	}
	if d.Environment != "" {
		return tidemark.BadParam(tidemark.Invalid, "environment", "is for apns only")
	}
	return nil
}

// checkWord checks a text of printable ASCII without spaces.
func checkWord(field, text string, most int) error {
	if text == "" {
		return tidemark.BadParam(tidemark.Invalid, field, "is missing")
	}
	if len(text) > most {
		return tidemark.BadParam(tidemark.Invalid, field, "has %d bytes, at most %d are allowed",
			len(text), most)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return tidemark.BadParam(tidemark.Invalid, field,
				"holds a character that is not printable ASCII; pass on what the app gets")
		}
	}
	return nil
}

// Target returns the device as providers know it.
func (d *Device) Target(user tidemark.UserID) push.Target {
	to := push.Target{
		User: user, Device: d.ID, Registration: d.Registration, Registered: d.RegisteredAt,
		App: d.App, Environment: d.Environment, Address: d.Address,
	}
	if d.P256dh != nil {
		to.Key, _ = push.ParseKey(d.P256dh, d.Auth) // It was checked when it was registered.
	}
	return to
}

// same reports whether a device is registered as it asks for.
func (d *Device) same(other *Device) bool {
	return d.ID == other.ID && d.Platform == other.Platform && d.App == other.App &&
		d.Environment == other.Environment && d.Address == other.Address &&
		string(d.P256dh) == string(other.P256dh) && string(d.Auth) == string(other.Auth)
}

// place returns the name of a device's address, which says nothing about it.
func (d *Device) place() string {
	h := sha256.New()
	for _, part := range []string{string(d.Platform), d.App, string(d.Environment), d.Address} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	code := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil))
	return strings.ToLower(code)
}
