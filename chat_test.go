package tidemark_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
)

func TestDirectKey_is_one_for_a_pair_and_another_for_every_other(t *testing.T) {
	id := rapid.Map(rapid.StringMatching(`[A-Za-z0-9_.:-]{1,4}`),
		func(s string) tidemark.UserID { return tidemark.UserID(s) })
	rapid.Check(t, func(t *rapid.T) {
		a, b, c, d := id.Draw(t, "a"), id.Draw(t, "b"), id.Draw(t, "c"), id.Draw(t, "d")
		key := tidemark.DirectKey(a, b)
		if other := tidemark.DirectKey(b, a); other != key {
			t.Fatalf("got %q for (a, b) and %q for (b, a)", key, other)
		}
		samePair := a == c && b == d || a == d && b == c
		if other := tidemark.DirectKey(c, d); (other == key) != samePair {
			t.Fatalf("got %q for (a, b) and %q for (c, d)", key, other)
		}
	})
}

func TestRoster_Member_finds_current_members_only(t *testing.T) {
	r := &tidemark.Roster{Members: []tidemark.Member{
		{UserID: "B"}, {UserID: "a"}, {UserID: "a.", Role: tidemark.Owner}, {UserID: "c"},
	}}
	for user, want := range map[tidemark.UserID]bool{
		"B": true, "a": true, "a.": true, "c": true,
		"": false, "b": false, "A": false, "d": false,
	} {
		got, found := r.Member(user)
		if found != want || want && got.UserID != user {
			t.Errorf("Member(%q): got %+v, %v, want found %v", user, got, found, want)
		}
	}
	if got, _ := r.Member("a."); got.Role != tidemark.Owner {
		t.Errorf("got role %q of the owner", got.Role)
	}
	if _, found := (&tidemark.Roster{}).Member("a"); found {
		t.Error("an empty roster has a member")
	}
}

func TestCheckChatName_limits(t *testing.T) {
	for name, want := range map[string]tidemark.Code{
		"":                       "",
		"Łódź":                   "",
		strings.Repeat("x", 256): "",
		strings.Repeat("x", 257): tidemark.TooLarge,
		strings.Repeat("é", 129): tidemark.TooLarge,
		"a\xffb":                 tidemark.Invalid,
		"a\x00b":                 tidemark.Invalid,
	} {
		if got := tidemark.CodeOf(tidemark.CheckChatName(name)); got != want {
			t.Errorf("CheckChatName(%.20q): got code %q, want %q", name, got, want)
		}
	}
}
