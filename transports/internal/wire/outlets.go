package wire

import (
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

// maxURL is the maximum length of an outlet's URL, in bytes.
const maxURL = 2_048

// NewOutlet is the body of POST /admin/outlets. What is absent is zero.
type NewOutlet struct {
	ID, Type, URL string
	// Events ascend. Empty: all.
	Events    []string
	Content   string
	Batch     bool
	FromStart bool
}

// DecodeNewOutlet decodes the body of POST /admin/outlets.
func DecodeNewOutlet(raw []byte) (o NewOutlet, err error) {
	if err := check(raw); err != nil {
		return o, err
	}
	begin := "now"
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "outlet_id":
			return id(v, key, &o.ID)
		case "type":
			return v.text(key, &o.Type)
		case "url":
			return v.url(key, &o.URL)
		case "events":
			return v.texts(key, &o.Events)
		case "content":
			return choice(v, key, &o.Content, "full", "none")
		case "batch":
			return v.boolean(key, &o.Batch)
		case "begin":
			return choice(v, key, &begin, "now", "start")
		}
		return nil
	})
	o.FromStart = begin == "start"
	switch {
	case err != nil:
		return NewOutlet{}, err
	case o.Type == "":
		return o, tidemark.BadParam(tidemark.Invalid, "type", "is missing, such as webhook")
	case o.URL == "":
		return o, tidemark.BadParam(tidemark.Invalid, "url", "is missing")
	}
	return o, nil
}

// OutletChange is the body of PATCH /admin/outlets/{outlet}. What is nil stays as it is.
type OutletChange struct {
	URL     *string
	Events  *[]string
	Content *string
	Batch   *bool
	Paused  *bool
}

// DecodeOutletChange decodes the body of PATCH /admin/outlets/{outlet}.
func DecodeOutletChange(raw []byte) (c OutletChange, err error) {
	if err := check(raw); err != nil {
		return c, err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "url":
			c.URL = new(string)
			return v.url(key, c.URL)
		case "events":
			c.Events = new([]string)
			return v.texts(key, c.Events)
		case "content":
			c.Content = new(string)
			return choice(v, key, c.Content, "full", "none")
		case "batch":
			c.Batch = new(bool)
			return v.boolean(key, c.Batch)
		case "paused":
			c.Paused = new(bool)
			return v.boolean(key, c.Paused)
		}
		return nil
	})
	if err == nil && c == (OutletChange{}) {
		err = tidemark.BadParam(tidemark.Invalid, "url",
			"or events, content, batch or paused is needed")
	}
	return c, err
}

// OutletReplay is the body of POST /admin/outlets/{outlet}/replay: of one chat from a sequence on,
// or of all chats since a time, or of everything, if Chat is "" and Since is zero.
type OutletReplay struct {
	Chat  tidemark.ChatID
	From  tidemark.Sequence
	Since time.Time
}

// DecodeOutletReplay decodes the body of POST /admin/outlets/{outlet}/replay.
func DecodeOutletReplay(raw []byte) (r OutletReplay, err error) {
	if err := check(raw); err != nil {
		return r, err
	}
	all := false
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "chat_id":
			return id(v, key, &r.Chat)
		case "from_sequence":
			return v.sequence(key, 1, &r.From)
		case "from_created_at":
			return v.time(key, &r.Since)
		case "all":
			return v.boolean(key, &all)
		}
		return nil
	})
	ways := 0
	for _, given := range []bool{r.Chat != "", !r.Since.IsZero(), all} {
		if given {
			ways++
		}
	}
	switch {
	case err != nil:
		return OutletReplay{}, err
	case ways != 1:
		return r, tidemark.BadParam(tidemark.Invalid, "chat_id",
			"or from_created_at, or all with true, is needed, and only one of them")
	case r.From > 0 && r.Chat == "":
		return r, tidemark.BadParam(tidemark.Invalid, "from_sequence", "needs a chat_id")
	}
	return r, nil
}

// url decodes a URL. It checks the length only.
func (v value) url(field string, to *string) error {
	if err := v.text(field, to); err != nil {
		return err
	}
	if len(*to) > maxURL {
		return tidemark.BadParam(tidemark.Invalid, field, "has %d bytes, at most %d are allowed",
			len(*to), maxURL)
	}
	return nil
}

// texts decodes an array of strings as a set, which ascends.
func (v value) texts(field string, to *[]string) error {
	list := []string{}
	err := eachElement(v, field, func(i int, v value) error {
		var one string
		if err := v.text(element(field, i), &one); err != nil {
			return err
		}
		list = append(list, one)
		return nil
	})
	slices.Sort(list)
	*to = slices.Compact(list)
	return err
}
