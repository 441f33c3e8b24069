package sqlite

import (
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
)

// kindMentions returns the column kind_mentions of a message that is no plain one. It has the kind,
// the target of a relation, whom the message names, and the revision: "edit 5",
// `react 5 {"sequence":7,…}`, `message alice bob {"sequence":7,…}`.
func kindMentions(m *tidemark.Message) string {
	parts := []string{string(m.Kind)}
	if m.Relation != nil {
		parts = append(parts, strconv.FormatUint(uint64(storage.RelatedTo(m.Relation)), 10))
	}
	for _, part := range []string{m.Mentions.Text(), m.Revision.Text()} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// parseKindMentions sets what kindMentions has written. No id has a brace, so the first one begins
// the revision.
func parseKindMentions(m *tidemark.Message, text string) error {
	kind, rest, _ := strings.Cut(text, " ")
	if m.Kind = tidemark.Kind(kind); m.Kind.Relates() {
		var number string
		number, rest, _ = strings.Cut(rest, " ")
		target, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return tidemark.Wrap(tidemark.Internal, err, "the target of a message is damaged")
		}
		m.Relation = &tidemark.Relation{Sequence: tidemark.Sequence(target)}
	}
	names, revision := rest, ""
	if at := strings.IndexByte(rest, '{'); at >= 0 {
		names, revision = strings.TrimSuffix(rest[:at], " "), rest[at:]
	}
	m.Mentions = tidemark.ParseMentions(names)
	var err error
	m.Revision, err = tidemark.ParseRevision(revision)
	return err
}

// relate stores a message with a relation whose key is new, and does what it says to its targets.
// from is nil if the server sends it.
func (w *writer) relate(c *chat, from *sender, d *tidemark.Draft) (storage.Appended, error) {
	member, _, err := w.member(c, d.SenderID)
	if err != nil {
		return storage.Appended{}, err
	}
	var targets []*tidemark.Message
	for _, n := range d.Targets() {
		target, err := w.target(c, n)
		if err != nil {
			return storage.Appended{}, err
		}
		targets = append(targets, target)
	}
	if err := w.mayRelate(c, d, targets, member.Role); err != nil {
		return storage.Appended{}, err
	}
	m := d.Message(c.head+1, c.version)
	if _, err := w.insert(c, &m); err != nil {
		return storage.Appended{}, err
	}
	appended, err := w.appended(c, from, d, m)
	if err != nil {
		return storage.Appended{}, err
	}
	if d.Kind.Annotates() {
		//rule:annotations_counted.stands-in-step-of-message-in-sqlite
		return appended, w.annotate(c, &m)
	}
	for _, target := range targets {
		if target.Kind.Annotates() {
			//rule:annotations_counted.ends-in-step-of-redaction-in-sqlite
			if err := w.unannotate(c, target); err != nil {
				return storage.Appended{}, err
			}
		}
		revised := target.Revise(d, m.Sequence)
		//rule:redacted_stays.target-in-step-of-relation-in-sqlite
		if err := w.revise(c, &revised); err != nil {
			return storage.Appended{}, err
		}
		if d.Relation.Sequences == nil {
			appended.Message.Relation.Target = &revised
		}
	}
	return appended, nil
}

// target returns a message as the running transaction has it, or nil if the chat has none, or it
// has expired.
func (w *writer) target(c *chat, n tidemark.Sequence) (*tidemark.Message, error) {
	if n < c.floor || n > c.head {
		return nil, nil
	}
	m, found, err := w.c.message(c.key, c.id, n)
	if err == nil && !found {
		err = health.Missing(c.id, n)
	}
	return &m, err
}

// revise writes what a relation has changed in a message. secure_delete overwrites the old text in
// the file (configure).
func (w *writer) revise(c *chat, m *tidemark.Message) error {
	//rule:redacted_stays.overwrite-content-in-sqlite
	q, err := w.c.prepared(`UPDATE messages
		SET content_type = ?, kind_mentions = ?, attachments = ?, metadata = ?, content = ?
		WHERE chat = ? AND sequence = ?`)
	if err != nil {
		return err
	}
	q.string(1, m.ContentType)
	q.string(2, kindMentions(m))
	if q.null(3); m.Attachments != nil {
		q.string(3, string(m.Attachments))
	}
	if q.null(4); m.Metadata != nil {
		q.string(4, string(m.Metadata))
	}
	q.string(5, storage.ContentOf(m))
	q.integer(6, c.key)
	q.integer(7, int64(m.Sequence))
	return q.run()
}
