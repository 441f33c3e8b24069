package jsonl

import (
	"encoding/json"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/internal/input"
)

// place is where a parser is in its file.
//
//	place     a line may be      then
//	begin     the version        between
//	between   the version        between
//	between   chat               within
//	within    member, message,   within
//	          read
//	within    end                between
type place int

const (
	begin place = iota
	between
	within
)

// places has where the types are allowed. A version is allowed at the beginning, too.
var places = map[string]place{
	"tidemark": between, "chat": between, "member": within, "message": within, "read": within,
	"end": within,
}

// parser parses the lines of a file.
type parser struct {
	name  string
	line  int
	place place
}

// The lines of each type. Their fields are in docs/import.md.
type (
	versionLine struct {
		Type    string `json:"type"`
		Version int    `json:"version"`
	}
	chatLine struct {
		Type     string               `json:"type"`
		ID       string               `json:"chat_id"`
		ChatType tidemark.ChatType    `json:"chat_type"`
		Name     string               `json:"name"`
		History  tidemark.HistoryMode `json:"history"`
		Members  []string             `json:"member_ids"`
		Metadata json.RawMessage      `json:"metadata"`
		Created  input.Time           `json:"created_at"`
	}
	memberLine struct {
		Type   string        `json:"type"`
		User   string        `json:"user_id"`
		Change string        `json:"change"`
		Role   tidemark.Role `json:"role"`
		At     input.Time    `json:"at"`
	}
	messageLine struct {
		Type        string          `json:"type"`
		ID          string          `json:"message_id"`
		Sender      string          `json:"sender_id"`
		Created     input.Time      `json:"created_at"`
		Kind        tidemark.Kind   `json:"kind"`
		Content     string          `json:"content"`
		ContentType string          `json:"content_type"`
		Attachments json.RawMessage `json:"attachments"`
		Metadata    json.RawMessage `json:"metadata"`
		Mentions    struct {
			All   bool     `json:"all"`
			Users []string `json:"user_ids"`
		} `json:"mentions"`
		Deleted bool `json:"deleted"`
	}
	readLine struct {
		Type     string  `json:"type"`
		User     string  `json:"user_id"`
		Message  string  `json:"message_id"`
		Position *uint64 `json:"position"`
	}
	endLine struct {
		Type string `json:"type"`
	}
)

// parse returns the record of a line, or nil for the version.
func (p *parser) parse(line []byte) (importer.Record, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := input.Decode(line, &kind); err != nil {
		return nil, p.wrong(err)
	}
	record, err := p.record(kind.Type, line)
	if err != nil {
		return nil, p.wrong(err)
	}
	return record, nil
}

func (p *parser) record(kind string, line []byte) (importer.Record, error) {
	switch at, known := places[kind]; {
	case !known:
		return nil, tidemark.BadParam(tidemark.Invalid, "type",
			"must be tidemark, chat, member, message, read or end")
	case p.place == begin && kind == "tidemark":
	case p.place == begin:
		return nil, tidemark.Errorf(tidemark.Invalid,
			`the first line must be {"type":"tidemark","version":%d}`, version)
	case p.place == within && at == between:
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the type %s is not possible here: the chat before it has no end", kind)
	case at != p.place:
		return nil, tidemark.Errorf(tidemark.Invalid, "the type %s is possible in a chat only",
			kind)
	}
	switch kind {
	case "tidemark":
		return nil, p.version(line)
	case "chat":
		p.place = within
		return chatOf(line)
	case "member":
		return memberOf(line)
	case "message":
		return messageOf(line)
	case "read":
		return readOf(line)
	}
	p.place = between
	return importer.End{}, input.DecodeStrictly(line, &endLine{})
}

// end returns an error if the file must not end here.
func (p *parser) end() error {
	switch p.place {
	case begin:
		return tidemark.Errorf(tidemark.Invalid, "%s is empty", p.name)
	case within:
		return tidemark.Errorf(tidemark.Invalid, "%s ends within a chat: its line of the type end "+
			"is missing, so the file may not be complete", p.name)
	}
	return nil
}

func (p *parser) version(line []byte) error {
	var v versionLine
	if err := input.DecodeStrictly(line, &v); err != nil {
		return err
	}
	if v.Version != version {
		return tidemark.BadParam(tidemark.Invalid, "version",
			"is %d; this program reads version %d", v.Version, version)
	}
	p.place = between
	return nil
}

func chatOf(line []byte) (importer.Record, error) {
	var c chatLine
	if err := input.DecodeStrictly(line, &c); err != nil {
		return nil, err
	}
	return importer.Chat{
		ID: c.ID, Type: c.ChatType, Name: c.Name, Metadata: c.Metadata, History: c.History,
		CreatedAt: c.Created.Time, Members: c.Members,
	}, nil
}

func memberOf(line []byte) (importer.Record, error) {
	var m memberLine
	if err := input.DecodeStrictly(line, &m); err != nil {
		return nil, err
	}
	if m.Change != "joined" && m.Change != "left" {
		return nil, tidemark.BadParam(tidemark.Invalid, "change", "must be joined or left")
	}
	return importer.Member{
		User: m.User, Left: m.Change == "left", Role: m.Role, At: m.At.Time,
	}, nil
}

func messageOf(line []byte) (importer.Record, error) {
	var m messageLine
	if err := input.DecodeStrictly(line, &m); err != nil {
		return nil, err
	}
	r := importer.Message{
		ID: m.ID, Author: m.Sender, At: m.Created.Time, Mentioned: m.Mentions.Users,
		Says: tidemark.Draft{
			Kind: m.Kind, Content: m.Content, ContentType: m.ContentType,
			Attachments: m.Attachments, Metadata: m.Metadata,
			Mentions: tidemark.Mentions{All: m.Mentions.All},
		},
	}
	if m.Deleted {
		r.Lack = importer.Deleted
	}
	if m.ID == "" {
		return nil, tidemark.BadParam(tidemark.Invalid, "message_id", "is missing")
	}
	return r, nil
}

func readOf(line []byte) (importer.Record, error) {
	var r readLine
	if err := input.DecodeStrictly(line, &r); err != nil {
		return nil, err
	}
	if (r.Message == "") == (r.Position == nil) {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"a line of the type read has either a message_id or a position")
	}
	record := importer.Read{User: r.User, Message: r.Message}
	if r.Position != nil {
		record.Position = *r.Position
	}
	return record, nil
}
