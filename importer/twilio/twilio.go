// Package twilio reads pages of the REST API of Twilio Conversations, which has no export.
// docs/import.md says how to get them. It was not tried on pages of a real account.
package twilio

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/internal/files"
	"github.com/tidemark-im/tidemark/importer/internal/input"
)

// What is read of a page.
type (
	conversation struct {
		SID     string     `json:"sid"`
		Name    string     `json:"friendly_name"`
		Created input.Time `json:"date_created"`
	}
	participant struct {
		Conversation string     `json:"conversation_sid"`
		Identity     string     `json:"identity"`
		Created      input.Time `json:"date_created"`
		LastRead     *int64     `json:"last_read_message_index"`
		Binding      struct {
			Address string `json:"address"`
		} `json:"messaging_binding"`
	}
	message struct {
		SID          string     `json:"sid"`
		Conversation string     `json:"conversation_sid"`
		Index        *int64     `json:"index"`
		Author       string     `json:"author"`
		Body         string     `json:"body"`
		Attributes   string     `json:"attributes"`
		Media        []media    `json:"media"`
		Created      input.Time `json:"date_created"`
	}
	media struct {
		SID  string  `json:"sid"`
		Name string  `json:"filename"`
		Type string  `json:"content_type"`
		Size float64 `json:"size"`
	}
)

// system is the author of messages that nobody has written.
const system = "system"

// Records returns the records of files with pages: of conversations, participants, and messages.
// They may be in any files and in any order.
func Records(ctx context.Context, paths []string) iter.Seq2[importer.Record, error] {
	return files.Source{Index: index, Parse: parse}.Records(ctx, paths)
}

// index returns a function that notes a value.
func index(export *files.Export) func(files.Item) error {
	return func(item files.Item) error {
		switch item.Key {
		case "conversations":
			var c conversation
			if err := decode(item.Raw, &c, &c.SID); err != nil {
				return err
			}
			room := export.Room(c.SID)
			room.Name = c.Name
			room.CreatedAt = c.Created.Time
		case "participants":
			var p participant
			if err := decode(item.Raw, &p, &p.Conversation); err != nil {
				return err
			}
			p.add(export.Room(p.Conversation))
		case "messages":
			var m message
			if err := decode(item.Raw, &m, &m.Conversation); err != nil {
				return err
			}
			r, err := parse(item.Raw)
			if err != nil {
				return err
			}
			export.Room(m.Conversation).Add(&item, &r, *m.Index, 0)
		}
		return nil
	}
}

// add notes a participant. Only those who use the SDK have an identity. Others have an address,
// such as a telephone number.
func (p *participant) add(room *files.Room) {
	user := p.Identity
	if user == "" {
		user = p.Binding.Address
	}
	if user == "" {
		return
	}
	room.All = true
	room.Changes = append(room.Changes, importer.Member{User: user, At: p.Created.Time})
	if room.Reads == nil {
		room.Reads = map[string]int64{}
	}
	if p.LastRead != nil {
		room.Reads[user] = *p.LastRead
	}
}

// parse returns a message.
func parse(raw json.RawMessage) (importer.Message, error) {
	var m message
	if err := decode(raw, &m, &m.SID); err != nil {
		return importer.Message{}, err
	}
	if m.Index == nil || m.Created.IsZero() {
		return importer.Message{}, tidemark.Errorf(tidemark.Invalid,
			"the message %s has no index or no date_created", m.SID)
	}
	r := importer.Message{ID: m.SID, Author: m.Author, At: m.Created.Time}
	if r.Says.Content = m.Body; m.Author == system || m.Author == "" {
		r.Author, r.Says.Kind = "", tidemark.KindSystem
	}
	var links []importer.Link
	for _, f := range m.Media {
		links = append(links, importer.Link{
			Ref: f.SID, Name: f.Name, ContentType: f.Type, Size: importer.Bytes(f.Size),
		})
	}
	r.Says.Attachments = importer.Links(links)
	if m.Attributes != "" && m.Attributes != "{}" {
		r.Says.Metadata = importer.Metadata("twilio", map[string]string{
			"attributes": m.Attributes,
		})
	}
	if r.Says.Content == "" && r.Says.Attachments == nil {
		r.Lack = importer.Empty
	}
	return r, nil
}

// decode decodes an element of a page. Its id must not be empty.
func decode(raw json.RawMessage, to any, id *string) error {
	if err := files.Decode("Twilio", raw, to); err != nil {
		return err
	}
	if *id == "" {
		return tidemark.Errorf(tidemark.Invalid, "an element has no sid of its conversation")
	}
	return nil
}
