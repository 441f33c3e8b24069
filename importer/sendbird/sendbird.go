// Package sendbird reads data exports of Sendbird: the JSON files of the types channels and
// messages. docs/import.md says where they are described. It was not tried on an export of a real
// application.
package sendbird

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/internal/files"
)

// What is read of an export.
type (
	channel struct {
		URL      string           `json:"channel_url"`
		Name     string           `json:"name"`
		Created  int64            `json:"created_at"`
		Distinct bool             `json:"is_distinct"`
		Members  *[]member        `json:"members"`
		Reads    map[string]int64 `json:"read_receipt"`
		// Message is there in a message only.
		Message json.RawMessage `json:"message_id"`
	}
	user struct {
		ID string `json:"user_id"`
	}
	member struct {
		user
		Role  string `json:"role"`
		State string `json:"state"`
	}
	message struct {
		ID          int64  `json:"message_id"`
		Type        string `json:"type"`
		Channel     string `json:"channel_url"`
		User        *user  `json:"user"`
		Text        string `json:"message"`
		Data        string `json:"data"`
		CustomType  string `json:"custom_type"`
		File        file   `json:"file"`
		Files       []file `json:"files"`
		MentionType string `json:"mention_type"`
		Mentioned   []user `json:"mentioned_users"`
		Removed     bool   `json:"is_removed"`
		Parent      int64  `json:"parent_message_id"`
		Created     int64  `json:"created_at"`
	}
	file struct {
		URL  string  `json:"url"`
		Name string  `json:"name"`
		Type string  `json:"type"`
		Size float64 `json:"size"`
	}
)

// Records returns the records of export files. The channels and messages may be in any files and in
// any order.
func Records(ctx context.Context, paths []string) iter.Seq2[importer.Record, error] {
	return files.Source{
		Layout: files.Layout{Values: true}, Index: index, Parse: parse,
	}.Records(ctx, paths)
}

// index returns a function that notes a value.
func index(export *files.Export) func(files.Item) error {
	return func(item files.Item) error {
		switch item.Key {
		case "", "messages", "channels":
		default:
			return nil
		}
		var c channel
		if err := decode(item.Raw, &c); err != nil {
			return err
		}
		if c.URL == "" {
			return tidemark.Errorf(tidemark.Invalid, "an element has no channel_url")
		}
		if c.Message == nil {
			return c.add(export.Room(c.URL))
		}
		m, err := parse(item.Raw)
		if err == nil {
			id, _ := strconv.ParseInt(m.ID, 10, 64) // parse has made it of a number.
			export.Room(c.URL).Add(&item, &m, m.At.UnixMilli(), id)
		}
		return err
	}
}

// add notes a channel.
func (c *channel) add(room *files.Room) error {
	room.Name = c.Name
	if room.CreatedAt = timeOf(c.Created); c.Distinct {
		room.Pair()
	}
	if c.Members == nil {
		return nil
	}
	room.All = true
	for _, m := range *c.Members {
		if m.State != "" && m.State != "joined" {
			continue // invited
		}
		role := tidemark.Ordinary
		if m.Role == "operator" {
			role = tidemark.Admin
		}
		room.Changes = append(room.Changes, importer.Member{User: m.ID, Role: role})
	}
	if c.Reads != nil {
		room.Reads = c.Reads
	}
	return nil
}

// timeOf returns the time of a number of seconds or milliseconds since 1970. Channels have seconds,
// and messages have milliseconds.
func timeOf(n int64) time.Time {
	const year5000 = 95_617_584_000 // in seconds
	switch {
	case n == 0:
		return time.Time{}
	case n < year5000:
		return time.Unix(n, 0).UTC()
	}
	return time.UnixMilli(n).UTC()
}

// parse returns a message.
func parse(raw json.RawMessage) (importer.Message, error) {
	var m message
	if err := decode(raw, &m); err != nil {
		return importer.Message{}, err
	}
	if m.ID == 0 || m.Created == 0 {
		return importer.Message{}, tidemark.Errorf(tidemark.Invalid,
			"a message has no message_id or no created_at")
	}
	r := importer.Message{ID: strconv.FormatInt(m.ID, 10), At: timeOf(m.Created)}
	if m.User != nil {
		r.Author = m.User.ID
	}
	r.Says.Content = m.Text
	if r.Says.Metadata = m.metadata(); m.Type == "ADMM" || r.Author == "" {
		r.Says.Kind = tidemark.KindSystem
	}
	var links []importer.Link
	for _, f := range append(m.Files, m.File) {
		links = append(links, importer.Link{
			URL: f.URL, Name: f.Name, ContentType: f.Type, Size: importer.Bytes(f.Size),
		})
	}
	r.Says.Attachments = importer.Links(links)
	r.Says.Mentions.All = m.MentionType == "channel"
	for _, u := range m.Mentioned[:min(len(m.Mentioned), tidemark.MaxMentions)] {
		r.Mentioned = append(r.Mentioned, u.ID)
	}
	switch {
	case m.Removed:
		r.Lack = importer.Deleted
	case r.Says.Content == "" && r.Says.Attachments == nil:
		r.Lack = importer.Empty
	}
	return r, nil
}

// metadata returns what applications have said of a message.
func (m *message) metadata() json.RawMessage {
	said := map[string]string{}
	for key, value := range map[string]string{"data": m.Data, "custom_type": m.CustomType} {
		if value != "" {
			said[key] = value
		}
	}
	if m.Parent != 0 {
		said["parent_message_id"] = strconv.FormatInt(m.Parent, 10)
	}
	if len(said) == 0 {
		return nil
	}
	return importer.Metadata("sendbird", said)
}

// decode decodes a value of an export.
func decode(raw json.RawMessage, to any) error {
	return files.Decode("Sendbird", raw, to)
}
