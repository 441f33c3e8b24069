package tidemark_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

func TestMentions_text_is_read_as_it_was_written(t *testing.T) {
	for text, m := range map[string]tidemark.Mentions{
		"":        {},
		"*":       {All: true},
		"a":       tidemark.NewMentions(false, []tidemark.UserID{"a"}),
		"* a b.c": tidemark.NewMentions(true, []tidemark.UserID{"b.c", "a", "a"}),
	} {
		if got := m.Text(); got != text {
			t.Errorf("%+v is written as %q, want %q", m, got, text)
		}
		if diff := cmp.Diff(m, tidemark.ParseMentions(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		if m.None() != (text == "") {
			t.Errorf("%q: None is %v", text, m.None())
		}
	}
}

func TestMentions_name_users(t *testing.T) {
	for _, test := range []struct {
		m    tidemark.Mentions
		want string
	}{
		{tidemark.Mentions{}, ""},
		{tidemark.NewMentions(false, []tidemark.UserID{"c", "a"}), "a c"},
		{tidemark.Mentions{All: true}, "a b c"},
	} {
		var named []string
		for _, user := range []string{"a", "b", "c"} {
			if test.m.Name(tidemark.UserID(user)) {
				named = append(named, user)
			}
		}
		if got := strings.Join(named, " "); got != test.want {
			t.Errorf("%+v names %q, want %q", test.m, got, test.want)
		}
	}
}

func TestMentions_limits(t *testing.T) {
	many := make([]tidemark.UserID, tidemark.MaxMentions+1)
	for i := range many {
		many[i] = tidemark.UserID(strings.Repeat("u", i+1))
	}
	for name, test := range map[string]struct {
		users []tidemark.UserID
		want  tidemark.Code
	}{
		"as many as possible": {many[1:], ""},
		"too many":            {many, tidemark.Invalid},
		"no id":               {[]tidemark.UserID{"a b"}, tidemark.Invalid},
		"all, as an id":       {[]tidemark.UserID{"*"}, tidemark.Invalid},
		"not ascending":       {[]tidemark.UserID{"b", "a"}, tidemark.Invalid},
		"twice":               {[]tidemark.UserID{"a", "a"}, tidemark.Invalid},
	} {
		d := goodDraft()
		d.Mentions.Users = test.users
		if err := d.Check(); tidemark.CodeOf(err) != test.want {
			t.Errorf("%s: got %v, want the code %q", name, err, test.want)
		}
	}
}
