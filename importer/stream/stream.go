// Package stream reads channel exports of Stream Chat. docs/import.md says which, and where they
// are described. It was not tried on an export of a real application.
package stream

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"iter"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/internal/files"
	"github.com/tidemark-im/tidemark/importer/internal/input"
)

// What is read of an export. A file has channels, each with these fields.
type (
	channel struct {
		CID     string     `json:"cid"`
		ID      string     `json:"id"`
		Name    string     `json:"name"`
		Created input.Time `json:"created_at"`
	}
	user struct {
		ID string `json:"id"`
	}
	member struct {
		UserID      string     `json:"user_id"`
		User        user       `json:"user"`
		Role        string     `json:"role"`
		ChannelRole string     `json:"channel_role"`
		Status      string     `json:"status"`
		Created     input.Time `json:"created_at"`
	}
	read struct {
		User     user       `json:"user"`
		LastRead input.Time `json:"last_read"`
	}
	message struct {
		ID          string       `json:"id"`
		Text        string       `json:"text"`
		Type        string       `json:"type"`
		User        user         `json:"user"`
		Attachments []attachment `json:"attachments"`
		Mentioned   []user       `json:"mentioned_users"`
		Parent      string       `json:"parent_id"`
		Quoted      string       `json:"quoted_message_id"`
		Created     input.Time   `json:"created_at"`
		Deleted     *input.Time  `json:"deleted_at"`
	}
	attachment struct {
		Title    string  `json:"title"`
		Fallback string  `json:"fallback"`
		Asset    string  `json:"asset_url"`
		Image    string  `json:"image_url"`
		Preview  string  `json:"og_scrape_url"`
		Mime     string  `json:"mime_type"`
		Size     float64 `json:"file_size"`
	}
)

// distinct is the beginning of the id of a channel that its members identify.
const distinct = "!members-"

// Records returns the records of export files.
func Records(ctx context.Context, paths []string) iter.Seq2[importer.Record, error] {
	return files.Source{
		Layout: files.Layout{Within: "channels"}, Index: index, Parse: parse,
	}.Records(ctx, paths)
}

// index returns a function that notes a value.
func index(export *files.Export) func(files.Item) error {
	var room *files.Room
	group := 0
	return func(item files.Item) error {
		if item.Group != group {
			room, group = nil, item.Group
		}
		switch item.Key {
		case "channel":
			var err error
			room, err = begin(export, item.Raw)
			return err
		case "type", "data", "item":
			return tidemark.Errorf(tidemark.Invalid, "it looks like an export of version v2, "+
				"with one entity a line; export the channels without a version")
		case "messages", "members", "read":
		default:
			return nil
		}
		if room == nil {
			return tidemark.Errorf(tidemark.Invalid,
				"a channel begins with its %s; its field channel must come first", item.Key)
		}
		return add(room, &item)
	}
}

// begin notes a channel.
func begin(export *files.Export, raw json.RawMessage) (*files.Room, error) {
	var c channel
	if err := decode(raw, &c); err != nil {
		return nil, err
	}
	if c.CID == "" {
		return nil, tidemark.Errorf(tidemark.Invalid, "a channel has no cid")
	}
	room := export.Room(c.CID)
	room.Name = c.Name
	room.CreatedAt, room.All = c.Created.Time, true
	if strings.HasPrefix(c.ID, distinct) {
		room.Pair()
	}
	return room, nil
}

// add notes an element of a channel.
func add(room *files.Room, item *files.Item) error {
	switch item.Key {
	case "messages":
		m, err := parse(item.Raw)
		if err == nil {
			room.Add(item, &m, m.At.UnixMicro(), tie(m.ID))
		}
		return err
	case "members":
		var m member
		if err := decode(item.Raw, &m); err != nil {
			return err
		}
		id := m.UserID
		if id == "" {
			id = m.User.ID
		}
		if m.Status == "" || m.Status == "member" {
			room.Changes = append(room.Changes, importer.Member{
				User: id, Role: m.roleOf(), At: m.Created.Time,
			})
		}
	case "read":
		var r read
		if err := decode(item.Raw, &r); err != nil {
			return err
		}
		if room.Reads == nil {
			room.Reads = map[string]int64{}
		}
		room.Reads[r.User.ID] = r.LastRead.UnixMicro()
	}
	return nil
}

// tie tells messages of one time apart. Their ids are random, so they have no order.
func tie(id string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // A hash does not fail.
	return int64(h.Sum64())
}

// roleOf returns the role of a member.
func (m *member) roleOf() tidemark.Role {
	switch {
	case m.Role == "owner":
		return tidemark.Owner
	case m.Role == "moderator", m.Role == "admin", m.ChannelRole == "channel_moderator":
		return tidemark.Admin
	}
	return tidemark.Ordinary
}

// parse returns a message.
func parse(raw json.RawMessage) (importer.Message, error) {
	var m message
	if err := decode(raw, &m); err != nil {
		return importer.Message{}, err
	}
	if m.ID == "" || m.Created.IsZero() {
		return importer.Message{}, tidemark.Errorf(tidemark.Invalid,
			"a message has no id or no created_at")
	}
	r := importer.Message{ID: m.ID, Author: m.User.ID, At: m.Created.Time}
	r.Says.Content = m.Text
	r.Says.Attachments = links(m.Attachments)
	r.Says.Metadata = m.metadata()
	if m.Type == "system" || r.Author == "" {
		r.Says.Kind = tidemark.KindSystem
	}
	for _, u := range m.Mentioned[:min(len(m.Mentioned), tidemark.MaxMentions)] {
		r.Mentioned = append(r.Mentioned, u.ID)
	}
	switch {
	case m.Type == "deleted" || m.Deleted != nil:
		r.Lack = importer.Deleted
	case r.Says.Content == "" && r.Says.Attachments == nil:
		r.Lack = importer.Empty
	}
	return r, nil
}

// metadata returns which messages a reply belongs to.
func (m *message) metadata() json.RawMessage {
	of := map[string]string{}
	if m.Parent != "" {
		of["parent_id"] = m.Parent
	}
	if m.Quoted != "" {
		of["quoted_message_id"] = m.Quoted
	}
	if len(of) == 0 {
		return nil
	}
	return importer.Metadata("stream", of)
}

// links returns attachments that are links. The previews of links in the text are left out.
func links(all []attachment) json.RawMessage {
	var found []importer.Link
	for _, a := range all {
		link := importer.Link{URL: a.Asset, Name: a.Title, ContentType: a.Mime}
		if link.URL == "" {
			link.URL = a.Image
		}
		if link.Name == "" {
			link.Name = a.Fallback
		}
		if link.Size = importer.Bytes(a.Size); a.Preview == "" {
			found = append(found, link)
		}
	}
	return importer.Links(found)
}

// decode decodes a value of an export.
func decode(raw json.RawMessage, to any) error {
	return files.Decode("Stream", raw, to)
}
