package wire

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// PushDevice is the body of PUT /push/devices/{device_id}. What is absent is zero.
type PushDevice struct {
	Platform, App, Environment, Address string
	// P256dh and Auth are decoded from base64url.
	P256dh, Auth []byte
}

// DecodePushDevice decodes the body of PUT /push/devices/{device_id}. It checks the types only.
func DecodePushDevice(raw []byte) (d PushDevice, err error) {
	if err := check(raw); err != nil {
		return d, err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "platform":
			return choice(v, key, &d.Platform, "apns", "fcm", "webpush", "unifiedpush")
		case "app":
			return v.text(key, &d.App)
		case "environment":
			return choice(v, key, &d.Environment, "production", "sandbox")
		case "address":
			return v.text(key, &d.Address)
		case "keys":
			return eachField(v, key, func(key string, v value) error {
				switch key {
				case "p256dh":
					return v.bytes(key, &d.P256dh)
				case "auth":
					return v.bytes(key, &d.Auth)
				}
				return nil
			})
		}
		return nil
	})
	return d, err
}

// bytes decodes base64url, with or without padding, as browsers give it.
func (v value) bytes(field string, to *[]byte) error {
	var s string
	if err := v.text(field, &s); err != nil {
		return err
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return tidemark.BadParam(tidemark.Invalid, field, "must be base64url")
	}
	*to = b
	return nil
}

// PushSettings is the body of PUT /push/settings. What is absent is zero.
type PushSettings struct {
	DisplayName, Preview string
	// Quiet is nil if there are no quiet hours.
	Quiet *QuietHours
	Mutes []Mute
}

// QuietHours are the hours without banners.
type QuietHours struct{ Start, End, Zone string }

// Mute is a chat without banners, until a time, or for ever if it is zero.
type Mute struct {
	Chat tidemark.ChatID
	Ends time.Time
}

// DecodePushSettings decodes the body of PUT /push/settings. It checks the types and ids only.
func DecodePushSettings(raw []byte) (s PushSettings, err error) {
	if err := check(raw); err != nil {
		return s, err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "display_name":
			return v.text(key, &s.DisplayName)
		case "preview":
			return choice(v, key, &s.Preview, "full", "sender", "none", "sealed")
		case "quiet_hours":
			s.Quiet = new(QuietHours)
			return eachField(v, key, func(key string, v value) error {
				switch key {
				case "start":
					return v.text(key, &s.Quiet.Start)
				case "end":
					return v.text(key, &s.Quiet.End)
				case "time_zone":
					return v.text(key, &s.Quiet.Zone)
				}
				return nil
			})
		case "mutes":
			return eachElement(v, key, func(i int, v value) error {
				var m Mute
				if err := v.mute(element(key, i), &m); err != nil {
					return err
				}
				s.Mutes = append(s.Mutes, m)
				return nil
			})
		}
		return nil
	})
	return s, err
}

// mute decodes an element of mutes. path names it in errors.
func (v value) mute(path string, to *Mute) error {
	err := eachField(v, path, func(key string, v value) error {
		switch key {
		case "chat_id":
			return id(v, key, &to.Chat)
		case "ends_at":
			return v.time(key, &to.Ends)
		}
		return nil
	})
	if err == nil && to.Chat == "" {
		err = tidemark.BadParam(tidemark.Invalid, "chat_id", "is missing")
	}
	if err != nil && tidemark.ParamOf(err) != path {
		err = within(path, err)
	}
	return err
}

// DecodePushAck decodes the body of POST /push/acks, and returns the token.
func DecodePushAck(raw []byte) (token string, err error) {
	if err := check(raw); err != nil {
		return "", err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		if key == "ack_token" {
			return v.text(key, &token)
		}
		return nil
	})
	if err == nil && token == "" {
		err = tidemark.BadParam(tidemark.Invalid, "ack_token", "is missing")
	}
	return token, err
}
