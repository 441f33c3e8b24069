package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/apns"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/fcm"
	"github.com/tidemark-im/tidemark/reach/push/pusher"
	"github.com/tidemark-im/tidemark/reach/push/queue"
	"github.com/tidemark-im/tidemark/reach/push/webpush"
	"github.com/tidemark-im/tidemark/storage"
	adapter "github.com/tidemark-im/tidemark/transports/push"
)

// pushFlags say by which providers devices are notified (docs/push.md).
type pushFlags struct {
	PushSubject string   `name:"push-subject" env:"TIDEMARK_PUSH_SUBJECT" placeholder:"URL" help:"How operators of push services reach you: a mailto: or https: URL. Serves Web Push and UnifiedPush."`
	PushHost    []string `name:"push-host" env:"TIDEMARK_PUSH_HOST" placeholder:"HOST" help:"Host of push services, with its subdomains, to which Web Push and UnifiedPush may lead; repeatable. Default: every public host."`

	PushAPNsKey    string   `name:"push-apns-key" env:"TIDEMARK_PUSH_APNS_KEY" placeholder:"FILE" help:"File with the key of APNs (.p8). Serves Apple's devices."`
	PushAPNsKeyID  string   `name:"push-apns-key-id" env:"TIDEMARK_PUSH_APNS_KEY_ID" placeholder:"ID" help:"Id of that key, 10 characters."`
	PushAPNsTeamID string   `name:"push-apns-team-id" env:"TIDEMARK_PUSH_APNS_TEAM_ID" placeholder:"ID" help:"Id of your team at Apple, 10 characters."`
	PushAPNsApp    []string `name:"push-apns-app" env:"TIDEMARK_PUSH_APNS_APP" placeholder:"BUNDLE" help:"Bundle id of an app that is served; repeatable."`
	PushAPNsURL    string   `name:"push-apns-url" env:"TIDEMARK_PUSH_APNS_URL" placeholder:"URL" help:"Server in place of Apple's, for tests."`

	PushFCMAccount string `name:"push-fcm-account" env:"TIDEMARK_PUSH_FCM_ACCOUNT" placeholder:"FILE" help:"JSON file of a service account of Firebase. Serves Android apps by FCM."`
	PushFCMURL     string `name:"push-fcm-url" env:"TIDEMARK_PUSH_FCM_URL" placeholder:"URL" help:"Server in place of Google's, for tests."`
}

// resumeWindow is the default of server.Config.ResumeWindow.
const resumeWindow = time.Minute

// pushSettings are what the flags say. Without platforms nobody is notified.
type pushSettings struct {
	platforms map[devices.Platform]pushPlatform
	// vapid is the public key of browsers' subscriptions, or "".
	vapid string
	// secret is for pusher.Config.
	secret []byte
}

// pushPlatform is a provider, with the check of its addresses, or nil.
type pushPlatform struct {
	provider push.Provider
	check    func(address string) error
}

// settings checks the flags. key is that of TIDEMARK_OUTLET_KEY, or of --dev, or "".
func (f *pushFlags) settings(key string, allow []netip.Prefix) (pushSettings, error) {
	s := pushSettings{platforms: map[devices.Platform]pushPlatform{}}
	if f.PushSubject == "" && f.PushAPNsKey == "" && f.PushFCMAccount == "" {
		return s, nil
	}
	if key == "" {
		return s, usagef("push notifications need %s: at least %d bytes, such as the output of "+
			"`openssl rand -hex 32`, the same on all nodes", outletVariable, minSecret)
	}
	var err error
	s.secret, err = hkdf.Key(sha256.New, []byte(key), nil, "tidemark push", sha256.Size)
	if err != nil {
		return s, err
	}
	return s, errors.Join(f.web(&s, key, allow), f.apns(&s), f.fcm(&s))
}

func (f *pushFlags) web(s *pushSettings, key string, allow []netip.Prefix) error {
	if f.PushSubject == "" {
		return nil
	}
	for _, host := range f.PushHost {
		if !isHost(host) {
			return usagef("--push-host %q is not the name of a host, such as push.example.com; "+
				"leave out https:// and the port, and its subdomains are included", host)
		}
	}
	private, err := vapidKey(key)
	if err != nil {
		return err
	}
	provider, err := webpush.New(webpush.Config{
		Key: private, Subject: f.PushSubject, Hosts: f.PushHost, Allowed: allow,
	})
	if err != nil {
		return usagef("--push-subject: %s", tidemark.DetailOf(err))
	}
	public, err := private.PublicKey.Bytes()
	if err != nil {
		return err
	}
	s.vapid = base64.RawURLEncoding.EncodeToString(public)
	s.platforms[devices.WebPush] = pushPlatform{provider, provider.CheckEndpoint}
	s.platforms[devices.UnifiedPush] = pushPlatform{provider, provider.CheckEndpoint}
	return nil
}

// isHost reports whether a text is the name or the address of a host. Endpoints are compared with
// it, so another text would refuse them all.
func isHost(text string) bool {
	text = strings.Trim(text, ".")
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
	})
}

// vapidKey returns the key by which this server identifies itself to push services. It follows from
// the key of outlets, so there is no further secret to keep.
func vapidKey(key string) (*ecdsa.PrivateKey, error) {
	for n := 0; ; n++ {
		raw, err := hkdf.Key(sha256.New, []byte(key), nil,
			"tidemark VAPID key "+strconv.Itoa(n), sha256.Size)
		if err != nil {
			return nil, err
		}
		// One of about 2³² texts is no key of the curve.
		if private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw); err == nil {
			return private, nil
		}
	}
}

func (f *pushFlags) apns(s *pushSettings) error {
	if f.PushAPNsKey == "" {
		return nil
	}
	text, err := os.ReadFile(f.PushAPNsKey)
	if err != nil {
		return usagef("--push-apns-key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return usagef("--push-apns-key %s is no PEM file; use the .p8 file of developer.apple.com",
			f.PushAPNsKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, is := parsed.(*ecdsa.PrivateKey)
	if err != nil || !is {
		return usagef("--push-apns-key %s has no key of APNs; use the .p8 file of "+
			"developer.apple.com", f.PushAPNsKey)
	}
	provider, err := apns.New(apns.Config{
		Key: key, KeyID: f.PushAPNsKeyID, TeamID: f.PushAPNsTeamID, Apps: f.PushAPNsApp,
		URL: f.PushAPNsURL,
	})
	if err != nil {
		return usagef("--push-apns-*: %s", tidemark.DetailOf(err))
	}
	s.platforms[devices.APNs] = pushPlatform{provider: provider}
	return nil
}

func (f *pushFlags) fcm(s *pushSettings) error {
	if f.PushFCMAccount == "" {
		return nil
	}
	account, err := os.ReadFile(f.PushFCMAccount)
	if err != nil {
		return usagef("--push-fcm-account: %w", err)
	}
	provider, err := fcm.New(fcm.Config{Account: account, URL: f.PushFCMURL})
	if err != nil {
		return usagef("--push-fcm-account: %s", tidemark.DetailOf(err))
	}
	s.platforms[devices.FCM] = pushPlatform{provider: provider}
	return nil
}

// pushWork is what notifies devices, or nothing.
type pushWork struct {
	adapter adapter.Config
	// store notes what is read, and heard takes the hints of all nodes.
	store storage.Store
	heard func(hint string)
	run   func(context.Context)
}

// pusher returns what notifies devices, and adds its kind of outlet. The caller still has to set
// the core and the credentials of the adapter.
func (o *options) pusher(
	store openedStore, others *peers, kinds map[string]reach.Kind, forward func(hint string),
	log *slog.Logger,
) (pushWork, error) {
	registry := devices.New(store)
	work := pushWork{
		adapter: adapter.Config{Devices: registry, VAPIDKey: o.outlet.push.vapid},
		store:   store, heard: func(string) {}, run: func(context.Context) {},
	}
	queues := map[devices.Platform]*queue.Queue{}
	var p *pusher.Pusher
	others.counters = append(others.counters, func() map[string]int64 { return p.Counters() })
	kind := reach.Kind{Own: "push", Off: true, Open: notPushed}
	if len(o.outlet.push.platforms) == 0 {
		kinds["push"] = kind
		return work, nil
	}
	work.adapter.Platforms = map[devices.Platform]func(string) error{}
	for name, platform := range o.outlet.push.platforms {
		queues[name] = queue.New(platform.provider)
		work.adapter.Platforms[name] = platform.check
	}
	var err error
	p, err = pusher.New(pusher.Config{
		Store: store, Devices: registry, Queues: queues, Online: others.online,
		Suspended: func(ctx context.Context, users []tidemark.UserID) ([]bool, error) {
			return others.suspended(ctx, users)
		},
		Resume: cmp.Or(o.core.ResumeWindow, resumeWindow), Secret: o.outlet.push.secret,
		Incarnation: store.Incarnation(), Forward: forward, Log: log,
		Habits: map[devices.Platform]pusher.Habits{
			devices.APNs: {Clears: apns.Clears},
			devices.FCM:  {Clears: fcm.Clears, Form: fcm.Form},
		},
	})
	if err != nil {
		return pushWork{}, err
	}
	kinds["push"] = reach.Kind{
		Open:   func(*reach.Spec, []string) (outlet.Client, error) { return p, nil },
		Own:    "push",
		Events: []outlet.Type{outlet.MessagePersisted},
	}
	work.adapter.Acknowledged, work.run = p.Acknowledged, p.Run
	work.store, work.heard = p.Reading(store), p.Heard
	return work, nil
}

// notPushed is the Open of a server without providers. It is called if the store has the outlet of
// an earlier server with providers.
func notPushed(*reach.Spec, []string) (outlet.Client, error) {
	return nil, tidemark.Errorf(tidemark.Invalid, "no push provider is configured; give the "+
		"--push flags again, or delete the outlet")
}

// online returns the devices of each user that have a session on any node.
func (p *peers) online(
	ctx context.Context, users []tidemark.UserID,
) ([][]tidemark.DeviceID, error) {
	leases, err := p.registry.Lookup(ctx, users)
	if err != nil {
		return nil, err
	}
	found := make([][]tidemark.DeviceID, len(leases))
	for i := range leases {
		for _, lease := range leases[i] {
			found[i] = append(found[i], lease.Device)
		}
	}
	return found, nil
}
