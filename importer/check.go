package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
)

// draft returns a message as it is appended next, and whether it is a stub.
func (m *move) draft(r *Message) (d tidemark.Draft, stub bool, err error) {
	position := m.at + 1
	if err := m.i.checkTime("created_at", r.At); err != nil {
		return d, false, err
	}
	says := r.Says
	if stub = r.Lack != ""; stub {
		says = r.Lack.stub()
	}
	if says.Kind == "" {
		says.Kind = tidemark.KindMessage
	}
	author, err := m.author(r.Author, says.Kind)
	if err != nil {
		return d, false, err
	}
	mentioned := make([]tidemark.UserID, len(r.Mentioned))
	for i, name := range r.Mentioned {
		if mentioned[i], err = m.i.user(name); err != nil {
			return d, false, err
		}
	}
	if stub {
		mentioned = nil
	}
	d = m.complete(&says, author, position, r)
	d.Mentions = tidemark.NewMentions(says.Mentions.All, mentioned)
	if err = check(&d); tidemark.CodeOf(err) == tidemark.TooLarge && m.i.cfg.SkipOversize {
		says = Oversize.stub()
		d, err, stub = m.complete(&says, author, position, r), nil, true
	}
	return d, stub, err
}

// complete returns the draft that says something at a position.
func (m *move) complete(
	says *tidemark.Draft, author tidemark.UserID, position tidemark.Sequence, r *Message,
) tidemark.Draft {
	at := r.At.UTC().Truncate(time.Millisecond)
	d := tidemark.Draft{
		ChatID: m.id, SenderID: author, ClientMessageID: keyOf(position, r.ID),
		Kind: says.Kind, Content: text(says.Content), ContentType: says.ContentType,
		Attachments: array(says.Attachments), Metadata: object(says.Metadata),
		MessageID: messageID(m.id, position, at), CreatedAt: at, ByBackend: true,
		Importing: true,
	}
	if d.ContentType == "" {
		d.ContentType = tidemark.DefaultContentType
	}
	return d
}

// user returns the id of a user of the source. Denied: the user was erased.
func (i *Importer) user(name string) (tidemark.UserID, error) {
	user, err := ID[tidemark.UserID](name)
	if err != nil || i.cfg.Erased == nil {
		return user, err
	}
	//rule:erased_nowhere.not-by-an-import
	if err := i.cfg.Erased(user); err != nil {
		return "", tidemark.Wrap(tidemark.CodeOf(err), err,
			"the source names "+string(user)+", who was erased; take them out of it")
	}
	return user, nil
}

// author returns who sends a message. A member stands for an author whom the source does not name.
func (m *move) author(name string, kind tidemark.Kind) (tidemark.UserID, error) {
	switch {
	case name != "":
		return m.i.user(name)
	case kind.Counts():
		return "", tidemark.BadParam(tidemark.Invalid, "sender_id", "is missing")
	}
	if user, found := m.roll.anyone(); found {
		return user, nil
	}
	return nobody, nil
}

// nobody stands for the unknown author of a message in a chat without members. They are a member
// until the end of the import.
const nobody tidemark.UserID = "tidemark.import"

// text returns a text in which characters that cannot be stored are replaced: U+0000, and what is
// no UTF-8.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// check returns an error if a draft cannot be stored as it is.
func check(d *tidemark.Draft) error {
	if d.Kind.Relates() {
		return tidemark.BadParam(tidemark.Invalid, "kind",
			"is %s, and only messages, lines of the system and control messages are imported",
			d.Kind)
	}
	if err := d.Check(); err != nil {
		return err
	}
	if err := checkValue("metadata", d.Metadata); err != nil {
		return err
	}
	return checkAttachments(d.Attachments)
}

// checkAttachments checks attachments as the API does.
func checkAttachments(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	if err := checkValue("attachments", raw); err != nil {
		return err
	}
	var all []*struct {
		Name        *string `json:"name"`
		ContentType *string `json:"content_type"`
		Size        *uint64 `json:"size"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return tidemark.BadParam(tidemark.Invalid, "attachments", "must be a JSON array of "+
			"objects; name and content_type are strings, and size is a number of bytes")
	}
	if len(all) > tidemark.MaxAttachments {
		return tidemark.BadParam(tidemark.TooLarge, "attachments", "has %d objects, at most %d "+
			"are allowed", len(all), tidemark.MaxAttachments)
	}
	for _, one := range all {
		if one == nil {
			return tidemark.BadParam(tidemark.Invalid, "attachments", "has a null")
		}
	}
	// All who see such a message may download the file. Only its owner may allow that.
	files, err := tidemark.FilesOf(raw)
	//rule:no_file_outside_membership.imports-name-no-files
	if err == nil && files != nil {
		err = tidemark.BadParam(tidemark.Invalid, "attachments", "names a file by s3_ref; files "+
			"of this server cannot be imported, so give their address as url")
	}
	return err
}

// checkValue returns Invalid if a JSON value nests too deeply, or has a number that a double cannot
// hold. Common libraries could not read it.
func checkValue(field string, raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		if number, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return tidemark.BadParam(tidemark.Invalid, field, "has the %s, which is too large",
				number.Value)
		}
		return tidemark.BadParam(tidemark.Invalid, field, "cannot be read as JSON")
	}
	if depth(value) > tidemark.MaxDepth {
		return tidemark.BadParam(tidemark.Invalid, field, "nests more than %d objects and arrays",
			tidemark.MaxDepth)
	}
	return nil
}

// cut returns the beginning of a text, of at most most bytes.
func cut(s string, most int) string {
	if s = text(s); len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// depth returns how many objects and arrays nest in a value.
func depth(value any) int {
	deepest := 0
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			deepest = max(deepest, depth(inner))
		}
	case []any:
		for _, inner := range v {
			deepest = max(deepest, depth(inner))
		}
	default:
		return 0
	}
	return deepest + 1
}

// object returns a JSON object, or nil for one that says nothing.
func object(raw json.RawMessage) json.RawMessage { return unless(raw, "{}") }

// array returns a JSON array, or nil for an empty one.
func array(raw json.RawMessage) json.RawMessage { return unless(raw, "[]") }

func unless(raw json.RawMessage, nothing string) json.RawMessage {
	trimmed := string(bytes.TrimSpace(raw))
	if trimmed == "" || trimmed == "null" || trimmed == nothing {
		return nil
	}
	return raw
}

// place says where an error is.
func place(chat tidemark.ChatID, position tidemark.Sequence) string {
	if position == 0 {
		return fmt.Sprintf("before the first message of the chat %s: ", chat)
	}
	return fmt.Sprintf("message %d of the chat %s: ", position, chat)
}
