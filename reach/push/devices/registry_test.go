package devices_test

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// phone returns a device with an address.
func phone(id tidemark.DeviceID, address string) devices.Device {
	return devices.Device{ID: id, Platform: devices.FCM, Address: address}
}

// browser returns a device with a key.
func browser(t *testing.T) devices.Device {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return devices.Device{
		ID: "browser", Platform: devices.WebPush, Address: "https://push.example.com/x",
		P256dh: key.PublicKey().Bytes(), Auth: make([]byte, 16),
	}
}

type fixture struct {
	*testing.T
	*devices.Registry
}

func open(t *testing.T) fixture { return fixture{t, devices.New(memory.New())} }

func (f fixture) put(user tidemark.UserID, d devices.Device) devices.Device {
	f.Helper()
	registered, err := f.Put(f.Context(), user, d)
	if err != nil {
		f.Fatal(err)
	}
	return registered
}

// of returns the addresses of a user's devices.
func (f fixture) of(user tidemark.UserID) (addresses []string) {
	f.Helper()
	found, err := f.Of(f.Context(), []tidemark.UserID{"nobody", user})
	if err != nil {
		f.Fatal(err)
	}
	if len(found) != 2 || len(found[0].Devices) > 0 {
		f.Fatalf("found %+v", found)
	}
	for _, d := range found[1].Devices {
		addresses = append(addresses, d.Address)
	}
	return addresses
}

func (f fixture) has(user tidemark.UserID, want ...string) {
	f.Helper()
	if diff := cmp.Diff(want, f.of(user)); diff != "" {
		f.Errorf("the devices of %s (-want +got):\n%s", user, diff)
	}
}

func TestRegistry_devices(t *testing.T) {
	f := open(t)
	f.has("bob")
	first := f.put("bob", phone("phone", "one"))
	if first.Registration != 1 || time.Since(first.RegisteredAt) > time.Minute {
		t.Errorf("registered as %+v", first)
	}
	if diff := cmp.Diff(first, f.put("bob", phone("phone", "one"))); diff != "" {
		t.Errorf("a repetition changes the registration:\n%s", diff)
	}
	f.put("bob", browser(t))
	f.has("bob", "one", "https://push.example.com/x")
	if moved := f.put("bob", phone("phone", "two")); moved.Registration != 3 {
		t.Errorf("the third registration has the number %d", moved.Registration)
	}
	f.has("bob", "https://push.example.com/x", "two")
	// What a provider says of an earlier registration does not end a later one.
	if err := f.DropRegistration(t.Context(), "bob", "phone", 1); err != nil {
		t.Fatal(err)
	}
	f.has("bob", "https://push.example.com/x", "two")
	for range 2 {
		if err := f.Drop(t.Context(), "bob", "browser"); err != nil {
			t.Fatal(err)
		}
		f.has("bob", "two")
	}
	if err := f.DropRegistration(t.Context(), "bob", "phone", 3); err != nil {
		t.Fatal(err)
	}
	f.has("bob")
	if again := f.put("bob", phone("phone", "two")); again.Registration != 4 {
		t.Errorf("a registration after the end of another has the number %d", again.Registration)
	}
}

// TestRegistry_push_has_one_owner: a phone that another user takes over shows nothing more of the
// first one, whatever happens at the same time.
func TestRegistry_push_has_one_owner(t *testing.T) {
	f := open(t)
	f.put("alice", phone("phone", "handset"))
	f.put("bob", phone("phone2", "handset"))
	f.has("alice")
	f.has("bob", "handset")
	f.put("alice", phone("phone", "handset")) // She takes it back.
	f.has("alice", "handset")
	f.has("bob")
	// Another app of the handset, and another device id of the same user.
	f.put("bob", devices.Device{
		ID: "phone", Platform: devices.APNs, App: "com.example.a", Address: "handset",
	})
	f.has("bob", "handset")
	f.put("bob", devices.Device{
		ID: "other", Platform: devices.APNs, App: "com.example.a", Address: "handset",
	})
	f.has("bob", "handset")
	for round := range 50 {
		address := fmt.Sprint("address", round)
		var all sync.WaitGroup
		for n := range 4 {
			user := tidemark.UserID(fmt.Sprint("user", n))
			all.Go(func() { f.put(user, phone("phone", address)) })
		}
		all.Wait()
		owners := 0
		for n := range 4 {
			owners += len(f.of(tidemark.UserID(fmt.Sprint("user", n))))
		}
		if owners != 1 {
			t.Fatalf("%d users own the address, want 1", owners)
		}
	}
}

// dying is a store that fails from a write on.
type dying struct {
	*memory.Store
	left int
}

func (d *dying) PutDocument(ctx context.Context, doc storage.Document) (uint64, error) {
	if d.left--; d.left < 0 {
		return 0, errors.New("dead")
	}
	return d.Store.PutDocument(ctx, doc)
}

// TestRegistry_dies_in_a_registration: after each write of a take-over, the address is that of one
// user at most, and a repetition ends it.
func TestRegistry_dies_in_a_registration(t *testing.T) {
	for left := range 3 {
		store := memory.New()
		f := fixture{t, devices.New(store)}
		f.put("alice", phone("phone", "handset"))
		cut := devices.New(&dying{store, left})
		_, err := cut.Put(t.Context(), "bob", phone("phone", "handset"))
		if (err == nil) != (left == 2) {
			t.Fatalf("with %d writes: %v", left, err)
		}
		if n := len(f.of("alice")) + len(f.of("bob")); n != 1 {
			t.Errorf("after %d writes, the address is that of %d users", left, n)
		}
		f.put("bob", phone("phone", "handset"))
		f.has("alice")
		f.has("bob", "handset")
	}
}

func TestRegistry_bounds(t *testing.T) {
	f := open(t)
	for n := range devices.MaxDevices {
		f.put("bob", phone(tidemark.DeviceID(fmt.Sprint("d", n)), fmt.Sprint(n)))
	}
	_, err := f.Put(t.Context(), "bob", phone("one-more", "x"))
	if tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("one device too many: %v", err)
	}
	f.put("bob", phone("d0", "moved"))
}

func TestRegistry_settings(t *testing.T) {
	f := open(t)
	f.put("bob", phone("phone", "one"))
	want := devices.Settings{
		DisplayName: "Bob", Preview: push.PreviewSender,
		Quiet: &devices.Quiet{Start: "22:00", End: "07:00", Zone: "Europe/Berlin"},
		Mutes: []devices.Mute{{Chat: "b"}, {Chat: "a", Until: time.UnixMilli(1).UTC()}},
	}
	stored, err := f.PutSettings(t.Context(), "bob", want)
	if err != nil {
		t.Fatal(err)
	}
	found, err := f.Of(t.Context(), []tidemark.UserID{"bob"})
	if err != nil {
		t.Fatal(err)
	}
	want.Mutes[0], want.Mutes[1] = want.Mutes[1], want.Mutes[0]
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, found[0].Settings); diff != "" {
		t.Errorf("the settings (-want +got):\n%s", diff)
	}
	f.has("bob", "one")
}

func TestCheck_what_is_wrong(t *testing.T) {
	long := string(make([]byte, devices.MaxAddress+1))
	good := browser(t)
	for name, change := range map[string]func(*devices.Device){
		"device_id":   func(d *devices.Device) { d.ID = "a/b" },
		"address":     func(d *devices.Device) { d.Address = "" },
		"address ":    func(d *devices.Device) { d.Address = "a b" },
		"address  ":   func(d *devices.Device) { d.Address = long },
		"platform":    func(d *devices.Device) { d.Platform = "pigeon" },
		"app":         func(d *devices.Device) { d.Platform = devices.APNs },
		"app ":        func(d *devices.Device) { d.App = "ä" },
		"keys":        func(d *devices.Device) { d.P256dh, d.Auth = nil, nil },
		"auth":        func(d *devices.Device) { d.Auth = d.Auth[:15] },
		"p256dh":      func(d *devices.Device) { d.P256dh = make([]byte, 65) },
		"environment": func(d *devices.Device) { d.Environment = push.Sandbox },
	} {
		d := good
		change(&d)
		refuses(t, name, d.Check())
	}
	for name, s := range map[string]devices.Settings{
		"display_name":      {DisplayName: string(make([]byte, devices.MaxDisplayName+1))},
		"display_name ":     {DisplayName: "\xff"},
		"display_name  ":    {DisplayName: "Bob\u202eecilA"},
		"display_name   ":   {DisplayName: "Bob\nAlice"},
		"display_name     ": {DisplayName: " \u200d\u00a0"},
		"preview":           {Preview: "half"},
		"quiet_hours":       {Quiet: &devices.Quiet{Start: "24:00", End: "07:00", Zone: "UTC"}},
		"quiet_hours ":      {Quiet: &devices.Quiet{Start: "22:00", End: "7:00", Zone: "UTC"}},
		"quiet_hours  ":     {Quiet: &devices.Quiet{Start: "22:00", End: "07:00", Zone: "Mars"}},
		"quiet_hours   ":    {Quiet: &devices.Quiet{Start: "22:00", End: "07:00"}},
		"quiet_hours    ":   {Quiet: &devices.Quiet{Start: "22:00", End: "07:00", Zone: "../etc"}},
		"mutes":             {Mutes: make([]devices.Mute, devices.MaxMutes+1)},
		"mutes ":            {Mutes: []devices.Mute{{Chat: "a"}, {Chat: "b"}, {Chat: "a"}}},
		"mutes  ":           {Mutes: []devices.Mute{{Chat: "/"}}},
	} {
		refuses(t, name, s.Check())
	}
}

func TestCheck_names_of_all_scripts(t *testing.T) {
	for _, name := range []string{
		"", "Zoë O'Brien", "山田 太郎", "山田\u3000太郎", "عليرضا", "علی\u200cرضا", "שרה", "👩\u200d🚀 Ada",
	} {
		s := devices.Settings{DisplayName: name}
		if err := s.Check(); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// refuses demands an error that names a field.
func refuses(t *testing.T, field string, err error) {
	t.Helper()
	var e *tidemark.Error
	for len(field) > 0 && field[len(field)-1] == ' ' {
		field = field[:len(field)-1]
	}
	if !errors.As(err, &e) || e.Param != field ||
		e.Code != tidemark.Invalid && e.Code != tidemark.TooLarge {
		t.Errorf("%s: %v", field, err)
	}
}

func TestSettings_Silent(t *testing.T) {
	at := func(text string) time.Time {
		now, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	night := devices.Settings{
		Quiet: &devices.Quiet{Start: "22:00", End: "07:00", Zone: "Europe/Berlin"},
	}
	noon := devices.Settings{Quiet: &devices.Quiet{Start: "12:00", End: "13:00", Zone: "UTC"}}
	muted := devices.Settings{Mutes: []devices.Mute{
		{Chat: "a"}, {Chat: "b", Until: at("2026-11-27T12:00:00Z")},
	}}
	for _, c := range []struct {
		settings devices.Settings
		chat     tidemark.ChatID
		at       string
		want     bool
	}{
		{night, "a", "2026-11-27T20:59:59Z", false},
		{night, "a", "2026-11-27T21:00:00Z", true},
		{night, "a", "2026-11-27T05:59:59Z", true},
		{night, "a", "2026-11-27T06:00:00Z", false},
		{night, "a", "2026-07-27T20:00:00Z", true}, // in summer
		{noon, "a", "2026-11-27T12:59:59Z", true},
		{noon, "a", "2026-11-27T13:00:00Z", false},
		{noon, "a", "2026-11-27T11:59:59Z", false},
		{muted, "a", "2036-11-27T12:00:00Z", true},
		{muted, "b", "2026-11-27T11:59:59Z", true},
		{muted, "b", "2026-11-27T12:00:00Z", false},
		{muted, "c", "2026-11-27T11:59:59Z", false},
	} {
		if got := c.settings.Silent(c.chat, at(c.at)); got != c.want {
			t.Errorf("%+v of %s at %s: %t", c.settings, c.chat, c.at, got)
		}
	}
}
