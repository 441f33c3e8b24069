package tidemark_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// annotation returns a good draft that annotates message 3.
func annotation(kind tidemark.Kind) tidemark.Draft {
	d := relationTo(kind)
	d.Content = ""
	if kind == tidemark.KindReact {
		d.Relation.Emoji = "👍"
	}
	return d
}

// typeOf returns the type of a chat.
func typeOf(direct bool) tidemark.ChatType {
	if direct {
		return tidemark.Direct
	}
	return tidemark.Group
}

func TestKind_what_it_does(t *testing.T) {
	for kind, want := range map[tidemark.Kind][5]bool{
		tidemark.KindMessage: {true, true, false, false, false},
		tidemark.KindSystem:  {false, true, false, false, false},
		tidemark.KindControl: {false, false, false, false, false},
		tidemark.KindEdit:    {false, false, true, true, false},
		tidemark.KindRedact:  {false, false, true, true, false},
		tidemark.KindReact:   {false, false, true, false, true},
		tidemark.KindPin:     {false, false, true, false, true},
		"another":            {false, false, false, false, false},
	} {
		got := [5]bool{
			kind.Counts(), kind.Shown(), kind.Relates(), kind.Revises(), kind.Annotates(),
		}
		if got != want {
			t.Errorf("%s counts, is shown, relates, revises, annotates: got %v, want %v", kind, got,
				want)
		}
	}
}

func TestDraft_Check_annotations(t *testing.T) {
	react, pin := tidemark.KindReact, tidemark.KindPin
	emoji := func(s string) func(*tidemark.Draft) {
		return func(d *tidemark.Draft) { d.Relation.Emoji = s }
	}
	for _, test := range []struct {
		name   string
		kind   tidemark.Kind
		change func(*tidemark.Draft)
		want   string // the parameter at fault, or ""
	}{
		{"reaction", react, func(*tidemark.Draft) {}, ""},
		{"pin", pin, func(*tidemark.Draft) {}, ""},
		{"family of seven code points", react, emoji("👨‍👩‍👧‍👦"), ""},
		{"flag of tags", react, emoji("🏴󠁧󠁢󠁥󠁮󠁧󠁿"), ""},
		{"name of an emoji", react, emoji(":party-parrot:"), ""},
		{"short text", react, emoji("+1"), ""},
		{"keycap", react, emoji("1\ufe0f\u20e3"), ""},
		{"flag of two letters", react, emoji("🇺🇦"), ""},
		{"skin tone", react, emoji("👍🏽"), ""},
		{"skin tone alone", react, emoji("🏽"), ""},
		{"heart with a selector", react, emoji("❤\ufe0f"), ""},
		{"emoji of a later Unicode", react, emoji("\U0001fadd"), ""},
		{"symbol of a font", react, emoji("\ue000"), ""},
		{"joiner alone", react, emoji("\u200d"), "relation.emoji"},
		{"space of no width", react, emoji("\u200b"), "relation.emoji"},
		{"direction", react, emoji("\u202e"), "relation.emoji"},
		{"selectors alone", react, emoji("\ufe0f\ufe0e"), "relation.emoji"},
		{"keycap without a key", react, emoji("\ufe0f\u20e3"), "relation.emoji"},
		{"tags alone", react, emoji("\U000e0067\U000e007f"), "relation.emoji"},
		{"soft hyphen", react, emoji("\u00ad"), "relation.emoji"},
		{"fillers", react, emoji("\u3164\u115f\uffa0"), "relation.emoji"},
		{"blank of Braille", react, emoji("\u2800"), "relation.emoji"},
		{"as long as allowed", react, emoji(strings.Repeat("x", tidemark.MaxEmoji)), ""},
		{"too long", react, emoji(strings.Repeat("x", tidemark.MaxEmoji+1)), "relation.emoji"},
		{"too many bytes", react, emoji(strings.Repeat("👍", 17)), "relation.emoji"},
		{"no emoji", react, emoji(""), "relation.emoji"},
		{"no UTF-8", react, emoji("a\xff"), "relation.emoji"},
		{"space", react, emoji("a b"), "relation.emoji"},
		{"another space", react, emoji("\u2003"), "relation.emoji"},
		{"line separator", react, emoji("\u2028"), "relation.emoji"},
		{"control character", react, emoji("a\x07"), "relation.emoji"},
		{"U+0000", react, emoji("\x00"), "relation.emoji"},
		{"pin with an emoji", pin, emoji("👍"), "relation.emoji"},
		{"edit with an emoji", tidemark.KindEdit,
			func(d *tidemark.Draft) { d.Content, d.Relation.Emoji = "x", "👍" }, "relation.emoji"},
		{"redaction with an emoji", tidemark.KindRedact, emoji("👍"), "relation.emoji"},
		{"reaction without a relation", react, func(d *tidemark.Draft) { d.Relation = nil },
			"relation"},
		{"pin without a relation", pin, func(d *tidemark.Draft) { d.Relation = nil },
			"relation"},
		{"reaction to 0", react, func(d *tidemark.Draft) { d.Relation.Sequence = 0 },
			"relation.sequence"},
		{"reaction with content", react, func(d *tidemark.Draft) { d.Content = "x" }, "content"},
		{"pin with content", pin, func(d *tidemark.Draft) { d.Content = "x" }, "content"},
		{"pin with attachments", pin,
			func(d *tidemark.Draft) { d.Attachments = json.RawMessage(`[{}]`) }, "attachments"},
		{"reaction with metadata", react,
			func(d *tidemark.Draft) { d.Metadata = json.RawMessage(`{}`) }, "metadata"},
		{"pin with mentions", pin, func(d *tidemark.Draft) { d.Mentions.All = true }, "mentions"},
	} {
		d := annotation(test.kind)
		test.change(&d)
		err := d.Check()
		if got := tidemark.ParamOf(err); got != test.want || (err == nil) != (test.want == "") {
			t.Errorf("%s: got %v, want an error of %q", test.name, err, test.want)
		}
	}
}

func TestDraft_MayAnnotate(t *testing.T) {
	shown, system := message(tidemark.KindMessage, "v"), message(tidemark.KindSystem, "v")
	redacted := message(tidemark.KindMessage, "u")
	redacted.Revision = &tidemark.Revision{Sequence: 4, Kind: tidemark.KindRedact}
	edited := message(tidemark.KindMessage, "u")
	edited.Revision = &tidemark.Revision{Sequence: 4, Kind: tidemark.KindEdit, Edits: 1}
	const denied, conflict = tidemark.Denied, tidemark.Conflict
	for _, test := range []struct {
		name            string
		target          *tidemark.Message
		role            tidemark.Role
		direct, backend bool
		react, pin      tidemark.Code
	}{
		{"nothing", nil, tidemark.Owner, false, true, tidemark.NotFound, tidemark.NotFound},
		{"a message", shown, tidemark.Owner, false, false, "", ""},
		{"by an admin", shown, tidemark.Admin, false, false, "", ""},
		{"by a member", shown, tidemark.Ordinary, false, false, "", denied},
		{"by a backend", shown, tidemark.Ordinary, false, true, "", ""},
		{"in a direct chat", shown, tidemark.Ordinary, true, false, "", ""},
		{"a line of the system", system, tidemark.Admin, false, false, "", ""},
		{"an edited message", edited, tidemark.Admin, false, false, "", ""},
		{"a redacted message", redacted, tidemark.Admin, false, false, conflict, conflict},
		{"the same, by a member", redacted, tidemark.Ordinary, false, false, conflict, denied},
		{"an edit", message(tidemark.KindEdit, "u"), tidemark.Admin, false, true, conflict,
			conflict},
		{"a reaction", message(tidemark.KindReact, "u"), tidemark.Admin, false, true, conflict,
			conflict},
		{"a control message", message(tidemark.KindControl, "u"), tidemark.Admin, false, true,
			conflict, conflict},
	} {
		for kind, want := range map[tidemark.Kind]tidemark.Code{
			tidemark.KindReact: test.react, tidemark.KindPin: test.pin,
		} {
			d := annotation(kind)
			d.ByBackend = test.backend
			err := d.MayAnnotate(test.target, test.role, typeOf(test.direct))
			if got := tidemark.CodeOf(err); got != want {
				t.Errorf("%s of %s: got %v, want code %q", kind, test.name, err, want)
			}
		}
	}
}

func TestDraft_MayRevise_annotations(t *testing.T) {
	own, other := message(tidemark.KindReact, "u"), message(tidemark.KindReact, "v")
	ownPin, otherPin := message(tidemark.KindPin, "u"), message(tidemark.KindPin, "v")
	undone := message(tidemark.KindReact, "u")
	undone.Revision = &tidemark.Revision{Sequence: 4, Kind: tidemark.KindRedact}
	const denied, conflict = tidemark.Denied, tidemark.Conflict
	for _, test := range []struct {
		name            string
		target          *tidemark.Message
		role            tidemark.Role
		direct, backend bool
		edit, redact    tidemark.Code
	}{
		{"own reaction", own, tidemark.Ordinary, false, false, conflict, ""},
		{"another's reaction", other, tidemark.Ordinary, false, false, denied, denied},
		{"another's reaction, by an admin", other, tidemark.Admin, false, false, denied, ""},
		{"another's reaction, by a backend", other, tidemark.Ordinary, false, true, conflict, ""},
		{"own reaction, in a direct chat", own, tidemark.Ordinary, true, false, conflict, ""},
		{"another's reaction, by the owner of a direct chat", other, tidemark.Owner, true, false,
			denied, denied},
		{"reaction that was undone", undone, tidemark.Ordinary, false, false, conflict, conflict},
		{"own pin, by a member", ownPin, tidemark.Ordinary, false, false, conflict, denied},
		{"another's pin, by an admin", otherPin, tidemark.Admin, false, false, denied, ""},
		{"another's pin, in a direct chat", otherPin, tidemark.Ordinary, true, false, denied, ""},
		{"another's pin, by a backend", otherPin, tidemark.Ordinary, false, true, conflict, ""},
		{"another's message, by the owner of a direct chat", message(tidemark.KindMessage, "v"),
			tidemark.Owner, true, false, denied, denied},
		{"another's message, by a backend in a direct chat", message(tidemark.KindMessage, "v"),
			tidemark.Owner, true, true, "", ""},
	} {
		for kind, want := range map[tidemark.Kind]tidemark.Code{
			tidemark.KindEdit: test.edit, tidemark.KindRedact: test.redact,
		} {
			d := relationTo(kind)
			d.ByBackend = test.backend
			err := d.MayRevise([]*tidemark.Message{test.target}, test.role, typeOf(test.direct))
			if got := tidemark.CodeOf(err); got != want {
				t.Errorf("%s of %s: got %v, want code %q", kind, test.name, err, want)
			}
		}
	}
}

func TestStanding_Allows(t *testing.T) {
	for _, test := range []struct {
		name     string
		kind     tidemark.Kind
		standing tidemark.Standing
		want     string // the parameter at fault, or ""
	}{
		{"the first reaction", tidemark.KindReact, tidemark.Standing{}, ""},
		{"the last reaction", tidemark.KindReact,
			tidemark.Standing{Count: tidemark.MaxReactions - 1}, ""},
		{"a reaction too many", tidemark.KindReact,
			tidemark.Standing{Count: tidemark.MaxReactions}, "relation.sequence"},
		{"the same emoji", tidemark.KindReact, tidemark.Standing{Same: 41, Count: 1},
			"relation.emoji"},
		{"the first pin", tidemark.KindPin, tidemark.Standing{}, ""},
		{"the last pin", tidemark.KindPin, tidemark.Standing{Count: tidemark.MaxPins - 1}, ""},
		{"a pin too many", tidemark.KindPin, tidemark.Standing{Count: tidemark.MaxPins},
			"relation.sequence"},
		{"pinned already", tidemark.KindPin, tidemark.Standing{Same: 41, Count: 1},
			"relation.sequence"},
	} {
		d := annotation(test.kind)
		err := test.standing.Allows(&d)
		if got := tidemark.ParamOf(err); got != test.want || (err == nil) != (test.want == "") {
			t.Errorf("%s: got %v, want an error of %q", test.name, err, test.want)
		}
		if err == nil {
			continue
		}
		if code := tidemark.CodeOf(err); code != tidemark.Conflict {
			t.Errorf("%s: got code %q, want Conflict", test.name, code)
		}
		says := strings.Contains(tidemark.DetailOf(err), "message 41")
		if says != (test.standing.Same != 0) {
			t.Errorf("%s: %v; want the sequence of what stands, if it says the same", test.name,
				err)
		}
	}
}

// TestMessage_Revise_annotations: who counts reactions must know which one was undone.
func TestMessage_Revise_annotations(t *testing.T) {
	for _, kind := range []tidemark.Kind{tidemark.KindReact, tidemark.KindPin} {
		draft, redact := annotation(kind), relationTo(tidemark.KindRedact)
		draft.CreatedAt = time.UnixMilli(7).UTC()
		stored := draft.Message(5, 2)
		if stored.Content != "" || stored.Size() != len(draft.Relation.Emoji) {
			t.Errorf("%s: content %q of %d bytes", kind, stored.Content, stored.Size())
		}
		undone := stored.Revise(&redact, 9)
		if !undone.Redacted() {
			t.Errorf("%s: the redacted one is %+v", kind, undone)
		}
		if diff := cmp.Diff(draft.Relation, undone.Relation); diff != "" {
			t.Errorf("%s: relation of the redacted one (-want +got):\n%s", kind, diff)
		}
		undone.Revision.At = draft.CreatedAt
		for _, m := range []tidemark.Message{stored, stored.WithoutTarget(), undone} {
			got, err := tidemark.ParseMessage(m.AppendJSON(nil))
			if diff := cmp.Diff(m, got); diff != "" || err != nil {
				t.Errorf("%s: parsed (-want +got), %v:\n%s", kind, err, diff)
			}
		}
		redaction := redact.Message(9, 2)
		redaction.Relation.Target = &undone
		got, err := tidemark.ParseMessage(redaction.AppendJSON(nil))
		if err != nil || cmp.Diff(undone.Relation, got.Relation.Target.Relation) != "" {
			t.Errorf("%s: its redaction is parsed as %+v, %v", kind, got, err)
		}
	}
}

func TestMessage_SameAs_annotations(t *testing.T) {
	draft := annotation(tidemark.KindReact)
	stored := draft.Message(5, 2)
	redact := relationTo(tidemark.KindRedact)
	undone := stored.Revise(&redact, 9)
	for name, test := range map[string]struct {
		change func(*tidemark.Draft)
		want   bool
	}{
		"the same":         {func(*tidemark.Draft) {}, true},
		"content type":     {func(d *tidemark.Draft) { d.ContentType = "text/html" }, true},
		"another emoji":    {func(d *tidemark.Draft) { d.Relation.Emoji = "👎" }, false},
		"another sequence": {func(d *tidemark.Draft) { d.Relation.Sequence = 2 }, false},
		"a pin": {func(d *tidemark.Draft) {
			d.Kind, d.Relation.Emoji = tidemark.KindPin, ""
		}, false},
	} {
		other := annotation(tidemark.KindReact)
		test.change(&other)
		for _, m := range []tidemark.Message{stored, undone} {
			if got := m.SameAs(&other); got != test.want {
				t.Errorf("%s, redacted %v: got %v, want %v", name, m.Redacted(), got, test.want)
			}
		}
	}
}
