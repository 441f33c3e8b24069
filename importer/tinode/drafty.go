package tinode

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
)

// head is what is read of the head of a message.
type head struct {
	Replace  string   `json:"replace"`
	Mentions []string `json:"mentions"`
}

// headOf returns the head of a message.
func headOf(raw json.RawMessage) (h head) {
	_ = json.Unmarshal(raw, &h) // What is of another type is not used.
	return h
}

// drafty is what is read of Drafty, the format of Tinode's messages.
type drafty struct {
	Text     string   `json:"txt"`
	Entities []entity `json:"ent"`
}

type entity struct {
	Type string `json:"tp"`
	Data struct {
		Mime string  `json:"mime"`
		Ref  string  `json:"ref"`
		Name string  `json:"name"`
		Size float64 `json:"size"`
		// Val is a text in mentions, and of any type in others.
		Val json.RawMessage `json:"val"`
	} `json:"data"`
}

// says sets what a message says by its head and its content in the database. Both are JSON, or nil.
func says(r *importer.Message, rawHead, content json.RawMessage) {
	rawHead, content = bytes.TrimSpace(rawHead), bytes.TrimSpace(content)
	named := headOf(rawHead).Mentions
	var text string
	var d drafty
	switch {
	case json.Unmarshal(content, &text) == nil:
		r.Says.Content = text
	case len(content) > 0 && content[0] == '{' && json.Unmarshal(content, &d) == nil:
		r.Says.Content = d.Text
		r.Says.Attachments = links(d.Entities)
		named = append(named, mentions(d.Entities)...)
	case len(content) > 0:
		r.Says.Content, r.Says.ContentType = string(content), "application/json"
	}
	if r.Says.Content == "" && r.Says.Attachments == nil {
		r.Lack = importer.Empty
	}
	r.Mentioned = named[:min(len(named), tidemark.MaxMentions)]
	r.Says.Metadata = metadata(rawHead, content)
}

// links returns the attachments of entities that are links. What is in the message itself is none.
func links(entities []entity) json.RawMessage {
	var all []importer.Link
	for _, e := range entities {
		switch e.Type {
		case "AU", "EX", "IM", "VD":
			all = append(all, importer.Link{
				URL: e.Data.Ref, Name: e.Data.Name, ContentType: e.Data.Mime,
				Size: importer.Bytes(e.Data.Size),
			})
		}
	}
	return importer.Links(all)
}

// mentions returns the users that entities name.
func mentions(entities []entity) (users []string) {
	for _, e := range entities {
		var user string
		if e.Type == "MN" && json.Unmarshal(e.Data.Val, &user) == nil &&
			strings.HasPrefix(user, "usr") {
			users = append(users, user)
		}
	}
	return users
}

// metadata returns what Tinode had of a message, as far as it fits.
func metadata(rawHead, content json.RawMessage) json.RawMessage {
	type original struct {
		Head    json.RawMessage `json:"head,omitempty"`
		Content json.RawMessage `json:"content,omitempty"`
	}
	kept := original{Head: object(rawHead), Content: object(content)}
	for _, o := range []original{kept, {Head: kept.Head}, {Content: kept.Content}} {
		if o.Head == nil && o.Content == nil {
			continue
		}
		if raw := importer.Metadata("tinode", o); raw != nil {
			return raw
		}
	}
	return nil
}

// object returns a value if it is an object.
func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return raw
}
