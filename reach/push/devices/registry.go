package devices

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Registry stores the devices and settings of all users. It is safe for concurrent use, also by
// several processes.
type Registry struct{ store storage.Documents }

// New returns a registry on a store.
func New(store storage.Documents) *Registry { return &Registry{store} }

// User is what is known of a user. One who never registered anything has neither.
type User struct {
	Devices  []Device
	Settings Settings
}

// profile is the document of a user.
type profile struct {
	// Last is the number of the latest registration.
	Last     uint64   `json:"last"`
	Devices  []Device `json:"devices,omitempty"`
	Settings Settings `json:"settings,omitzero"`
}

// owner is the document of an address.
type owner struct {
	User         tidemark.UserID   `json:"user_id"`
	Device       tidemark.DeviceID `json:"device_id"`
	Registration uint64            `json:"registration"`
}

// kinds is over how many kinds of documents users and addresses are spread. A kind is a partition
// of some databases.
const kinds = 64

func keyOf(prefix, name string) storage.DocumentKey {
	h := fnv.New32a()
	h.Write([]byte(name))
	return storage.DocumentKey{
		Kind: fmt.Sprintf("push.%s.%d", prefix, h.Sum32()%kinds), Name: name,
	}
}

func keyOfUser(user tidemark.UserID) storage.DocumentKey { return keyOf("users", string(user)) }

func keyOfPlace(place string) storage.DocumentKey { return keyOf("places", place) }

// Put registers a device, in place of an earlier registration of it and of its address by anybody.
// A registration that exists stays as it is. It returns the registration.
//
// Errors: Invalid (Device.Check), Conflict (there are MaxDevices others).
func (r *Registry) Put(
	ctx context.Context, user tidemark.UserID, d Device,
) (registered Device, err error) {
	if err := d.Check(); err != nil {
		return Device{}, err
	}
	err = r.edit(ctx, user, func(p *profile) error {
		for i := range p.Devices {
			if d.same(&p.Devices[i]) {
				registered = p.Devices[i]
				return nil
			}
		}
		p.Devices = slices.DeleteFunc(p.Devices, func(other Device) bool {
			return other.ID == d.ID || other.place() == d.place()
		})
		if len(p.Devices) >= MaxDevices {
			return tidemark.Errorf(tidemark.Conflict,
				"%d devices are registered, which is the most; remove one first", MaxDevices)
		}
		p.Last++
		registered = d
		registered.Registration = p.Last
		registered.RegisteredAt = time.Now().UTC().Truncate(time.Millisecond)
		p.Devices = append(p.Devices, registered)
		return nil
	})
	if err != nil {
		return Device{}, err
	}
	//rule:push_has_one_owner.last-one-owns-the-address
	err = r.own(ctx, &registered, owner{user, d.ID, registered.Registration})
	return registered, err
}

// own notes whose an address is.
func (r *Registry) own(ctx context.Context, d *Device, whose owner) error {
	value, err := json.Marshal(whose)
	if err != nil {
		return err
	}
	key := keyOfPlace(d.place())
	_, _, err = storage.EditDocument(ctx, r.store, key,
		func([]byte) ([]byte, error) { return value, nil })
	return err
}

// Drop ends the registration of a device, if there is one.
func (r *Registry) Drop(ctx context.Context, user tidemark.UserID, id tidemark.DeviceID) error {
	return r.drop(ctx, user, func(d *Device) bool { return d.ID == id })
}

// DropRegistration ends one registration, and not a later one of the same device.
func (r *Registry) DropRegistration(
	ctx context.Context, user tidemark.UserID, id tidemark.DeviceID, registration uint64,
) error {
	return r.drop(ctx, user, func(d *Device) bool {
		return d.ID == id && d.Registration == registration
	})
}

func (r *Registry) drop(
	ctx context.Context, user tidemark.UserID, ends func(*Device) bool,
) error {
	return r.edit(ctx, user, func(p *profile) error {
		p.Devices = slices.DeleteFunc(p.Devices, func(d Device) bool { return ends(&d) })
		return nil
	})
}

// PutSettings replaces the settings of a user, and returns them as they are stored. Errors: Invalid
// (Settings.Check).
func (r *Registry) PutSettings(
	ctx context.Context, user tidemark.UserID, s Settings,
) (Settings, error) {
	if err := s.Check(); err != nil {
		return Settings{}, err
	}
	return s, r.edit(ctx, user, func(p *profile) error {
		p.Settings = s
		return nil
	})
}

// Of returns what is known of users, in their order. It has only devices whose addresses are
// theirs.
func (r *Registry) Of(ctx context.Context, users []tidemark.UserID) ([]User, error) {
	keys := make([]storage.DocumentKey, len(users))
	for i, user := range users {
		keys[i] = keyOfUser(user)
	}
	found, err := r.store.DocumentsOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	all := make([]User, len(users))
	var places []storage.DocumentKey
	for i, d := range found {
		p, err := parse(d.Value)
		if err != nil {
			return nil, err
		}
		all[i] = User{p.Devices, p.Settings}
		for j := range p.Devices {
			places = append(places, keyOfPlace(p.Devices[j].place()))
		}
	}
	if len(places) == 0 {
		return all, nil
	}
	owners, err := r.store.DocumentsOf(ctx, places)
	if err != nil {
		return nil, err
	}
	for i, user := range users {
		all[i].Devices = slices.DeleteFunc(all[i].Devices, func(d Device) bool {
			var whose owner
			err := json.Unmarshal(orNull(owners[0].Value), &whose)
			owners = owners[1:]
			//rule:push_has_one_owner.only-devices-of-the-owner
			return err != nil || whose != owner{user, d.ID, d.Registration}
		})
	}
	return all, nil
}

func orNull(value []byte) []byte {
	if value == nil {
		return []byte("null")
	}
	return value
}

func parse(value []byte) (p profile, err error) {
	if value == nil {
		return profile{}, nil
	}
	if err := json.Unmarshal(value, &p); err != nil {
		return profile{}, tidemark.Wrap(tidemark.Internal, err,
			"the registrations of a user are damaged")
	}
	return p, nil
}

// edit changes the document of a user in one step. change may run several times.
func (r *Registry) edit(
	ctx context.Context, user tidemark.UserID, change func(*profile) error,
) error {
	_, _, err := storage.EditDocument(ctx, r.store, keyOfUser(user),
		func(before []byte) ([]byte, error) {
			p, err := parse(before)
			if err != nil {
				return nil, err
			}
			if err := change(&p); err != nil {
				return nil, err
			}
			return json.Marshal(p)
		})
	return err
}
