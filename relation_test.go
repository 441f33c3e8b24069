package tidemark_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// relationTo returns a good draft that changes message 3.
func relationTo(kind tidemark.Kind) tidemark.Draft {
	d := goodDraft()
	d.Kind, d.Relation = kind, &tidemark.Relation{Sequence: 3}
	if kind == tidemark.KindRedact {
		d.Content = ""
	}
	return d
}

func TestDraft_Check_relations(t *testing.T) {
	edit, redact := tidemark.KindEdit, tidemark.KindRedact
	for _, test := range []struct {
		name   string
		kind   tidemark.Kind
		change func(*tidemark.Draft)
		want   string // the parameter at fault, or ""
	}{
		{"edit", edit, func(*tidemark.Draft) {}, ""},
		{"redaction", redact, func(*tidemark.Draft) {}, ""},
		{"edit to attachments alone", edit, func(d *tidemark.Draft) {
			d.Content, d.Attachments = "", json.RawMessage(`[{}]`)
		}, ""},
		{"edit to nothing", edit, func(d *tidemark.Draft) { d.Content = "" }, "content"},
		{"edit without a relation", edit, func(d *tidemark.Draft) { d.Relation = nil },
			"relation"},
		{"redaction without a relation", redact, func(d *tidemark.Draft) { d.Relation = nil },
			"relation"},
		{"edit of 0", edit, func(d *tidemark.Draft) { d.Relation.Sequence = 0 },
			"relation.sequence"},
		{"edit of 2^53", edit,
			func(d *tidemark.Draft) { d.Relation.Sequence = tidemark.MaxSequence + 1 },
			"relation.sequence"},
		{"list with an emoji", redact, func(d *tidemark.Draft) {
			d.Relation = &tidemark.Relation{Sequences: []tidemark.Sequence{1}, Emoji: "x"}
		}, "relation.emoji"},
		{"edit of a list", edit, func(d *tidemark.Draft) {
			d.Relation = &tidemark.Relation{Sequences: []tidemark.Sequence{1}}
		}, "relation.sequences"},
		{"list beside a message", redact, func(d *tidemark.Draft) {
			d.Relation = &tidemark.Relation{Sequence: 1, Sequences: []tidemark.Sequence{1}}
		}, "relation.sequences"},
		{"message with a relation", tidemark.KindMessage, func(*tidemark.Draft) {}, "relation"},
		{"system line with a relation", tidemark.KindSystem, func(*tidemark.Draft) {},
			"relation"},
		{"control message with a relation", tidemark.KindControl, func(*tidemark.Draft) {},
			"relation"},
		{"redaction with content", redact, func(d *tidemark.Draft) { d.Content = "x" },
			"content"},
		{"redaction with attachments", redact,
			func(d *tidemark.Draft) { d.Attachments = json.RawMessage(`[{}]`) }, "attachments"},
		{"redaction with metadata", redact,
			func(d *tidemark.Draft) { d.Metadata = json.RawMessage(`{}`) }, "metadata"},
		{"redaction with mentions", redact,
			func(d *tidemark.Draft) { d.Mentions.All = true }, "mentions"},
		{"another kind", "poll", func(*tidemark.Draft) {}, "kind"},
	} {
		d := relationTo(test.kind)
		test.change(&d)
		err := d.Check()
		if got := tidemark.ParamOf(err); got != test.want || (err == nil) != (test.want == "") {
			t.Errorf("%s: got %v, want an error of %q", test.name, err, test.want)
		}
	}
}

func TestDraft_MayRevise(t *testing.T) {
	own, other := message(tidemark.KindMessage, "u"), message(tidemark.KindMessage, "v")
	system, edit := message(tidemark.KindSystem, "u"), message(tidemark.KindEdit, "u")
	redacted, often := message(tidemark.KindMessage, "u"), message(tidemark.KindMessage, "u")
	redacted.Revision = &tidemark.Revision{Sequence: 4, Kind: tidemark.KindRedact}
	often.Revision = &tidemark.Revision{
		Sequence: 4, Kind: tidemark.KindEdit, Edits: tidemark.MaxEdits,
	}
	for _, test := range []struct {
		name         string
		target       *tidemark.Message
		role         tidemark.Role
		backend      bool
		edit, redact tidemark.Code
	}{
		{"nothing", nil, tidemark.Owner, true, tidemark.NotFound, tidemark.NotFound},
		{"own", own, tidemark.Ordinary, false, "", ""},
		{"a line of the system in their name", system, tidemark.Ordinary, false, tidemark.Denied,
			tidemark.Denied},
		{"the same, by a backend", system, tidemark.Ordinary, true, "", ""},
		{"another's", other, tidemark.Ordinary, false, tidemark.Denied, tidemark.Denied},
		{"another's, by an admin", other, tidemark.Admin, false, tidemark.Denied, ""},
		{"another's, by an owner", other, tidemark.Owner, false, tidemark.Denied, ""},
		{"another's, by a backend", other, tidemark.Ordinary, true, "", ""},
		{"a relation", edit, tidemark.Owner, true, tidemark.Conflict, tidemark.Conflict},
		{"redacted", redacted, tidemark.Ordinary, false, tidemark.Conflict, ""},
		{"edited often", often, tidemark.Ordinary, false, tidemark.Conflict, ""},
	} {
		for kind, want := range map[tidemark.Kind]tidemark.Code{
			tidemark.KindEdit: test.edit, tidemark.KindRedact: test.redact,
		} {
			d := relationTo(kind)
			d.ByBackend = test.backend
			err := d.MayRevise([]*tidemark.Message{test.target}, test.role, tidemark.Group)
			if got := tidemark.CodeOf(err); got != want {
				t.Errorf("%s of %s: got %v, want code %q", kind, test.name, err, want)
			}
		}
	}
}

// message returns message 3 with everything that a message may have.
func message(kind tidemark.Kind, sender tidemark.UserID) *tidemark.Message {
	return &tidemark.Message{
		ChatID: "c", Sequence: 3, MessageID: "m3", SenderID: sender, ClientMessageID: "k3",
		Content: "secret", ContentType: "text/secret", Kind: kind,
		Attachments: json.RawMessage(`[{"secret":1}]`), Metadata: json.RawMessage(`{"secret":1}`),
		Mentions: tidemark.Mentions{Users: []tidemark.UserID{"secret"}},
	}
}

func TestMessage_Revise(t *testing.T) {
	before := message(tidemark.KindMessage, "u")
	edit := relationTo(tidemark.KindEdit)
	edit.Metadata = json.RawMessage(`{"b":2}`)
	edited := before.Revise(&edit, 7)
	want := *before
	want.Content, want.ContentType = "hello", "text/plain"
	want.Attachments, want.Metadata = nil, edit.Metadata
	want.Mentions = tidemark.Mentions{}
	want.Revision = &tidemark.Revision{
		Sequence: 7, Kind: tidemark.KindEdit, By: "u", At: edit.CreatedAt, Edits: 1,
	}
	if diff := cmp.Diff(want, edited); diff != "" {
		t.Errorf("edited (-want +got):\n%s", diff)
	}
	redact := relationTo(tidemark.KindRedact)
	redact.SenderID, redact.ContentType = "admin", "text/secret"
	redacted := before.Revise(&redact, 8)
	if text := string(redacted.AppendJSON(nil)); strings.Contains(text, "secret") {
		t.Errorf("a redacted message still has its text: %s", text)
	}
	if !redacted.Redacted() || edited.Redacted() || before.Redacted() {
		t.Error("Redacted is wrong")
	}
	again := relationTo(tidemark.KindRedact)
	if diff := cmp.Diff(redacted, redacted.Revise(&again, 9)); diff != "" {
		t.Errorf("redacted twice (-want +got):\n%s", diff)
	}
	twice := edited.Revise(&edit, 9)
	if r := twice.Revision; r.Sequence != 9 || r.Edits != 2 {
		t.Errorf("edited twice: got revision %+v", r)
	}
	for _, r := range []*tidemark.Revision{nil, edited.Revision, redacted.Revision} {
		got, err := tidemark.ParseRevision(r.Text())
		if diff := cmp.Diff(r, got); diff != "" || err != nil {
			t.Errorf("parsed (-want +got), %v:\n%s", err, diff)
		}
	}
	if _, err := tidemark.ParseRevision("{"); tidemark.CodeOf(err) != tidemark.Internal {
		t.Errorf("damaged: got %v, want Internal", err)
	}
}

func TestMessage_SameAs_relations(t *testing.T) {
	edit := relationTo(tidemark.KindEdit)
	stored := edit.Message(7, 1)
	if stored.Content != "" {
		t.Errorf("a stored edit has the content %q, want none", stored.Content)
	}
	target := message(tidemark.KindMessage, "u").Revise(&edit, 7)
	stored.Relation.Target = &target
	another := edit
	another.Content = "another"
	elsewhere := edit
	elsewhere.Relation = &tidemark.Relation{Sequence: 2}
	redact := relationTo(tidemark.KindRedact)
	plain := edit
	plain.Kind, plain.Relation = tidemark.KindMessage, nil
	check := func(what string, d tidemark.Draft, want bool) {
		t.Helper()
		if got := stored.SameAs(&d); got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	check("the same", edit, true)
	check("another text", another, false)
	check("another target", elsewhere, false)
	check("another kind", redact, false)
	check("no relation", plain, false)
	later := target.Revise(&redact, 8)
	stored.Relation.Target = &later
	check("another text, after a redaction", another, true)
	check("another target, after a redaction", elsewhere, false)
	original := goodDraft()
	m := original.Message(3, 1)
	m = m.Revise(&redact, 8)
	if other := another; !m.SameAs(&original) || m.SameAs(&other) {
		t.Error("a redacted message is not the same as its draft, or is the same as an edit")
	}
}

func TestParseMessage_relations(t *testing.T) {
	edit := relationTo(tidemark.KindEdit)
	edit.CreatedAt = time.UnixMilli(7).UTC()
	want := edit.Message(7, 1)
	target := message(tidemark.KindMessage, "u")
	target.CreatedAt = edit.CreatedAt
	revised := target.Revise(&edit, 7)
	revised.Revision.Edits = 0 // not on the wire
	want.Relation.Target = &revised
	for _, m := range []tidemark.Message{want, want.WithoutTarget(), revised} {
		got, err := tidemark.ParseMessage(m.AppendJSON(nil))
		if diff := cmp.Diff(m, got); diff != "" || err != nil {
			t.Errorf("parsed (-want +got), %v:\n%s", err, diff)
		}
	}
	raw := string(want.AppendJSON(nil))
	raw = strings.Replace(raw, `"target":{`, `"target":{"sequence":"x",`, 1)
	if _, err := tidemark.ParseMessage([]byte(raw)); err == nil {
		t.Error("a damaged target was parsed")
	}
}
