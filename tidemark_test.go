package tidemark_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
)

func TestValidID_is_1_to_128_bytes_of_the_allowed_characters(t *testing.T) {
	for id, want := range map[string]bool{
		"":                                     false,
		"a":                                    true,
		"AZaz09_.:-":                           true,
		strings.Repeat("x", 128):               true,
		strings.Repeat("x", 129):               false,
		"a b":                                  false,
		"a|b":                                  false,
		"a/b":                                  false,
		"a\x00":                                false,
		"é":                                    false,
		"a\n":                                  false,
		".":                                    false,
		"..":                                   false,
		"erased:1":                             false,
		"erased":                               true,
		"...":                                  true,
		".a":                                   true,
		"018f4b2e-7c1a-7def-8123-456789abcdef": true,
	} {
		if got := tidemark.ValidID(tidemark.UserID(id)); got != want {
			t.Errorf("ValidID(%q): got %v, want %v", id, got, want)
		}
		got := tidemark.CodeOf(tidemark.CheckID("user_id", id))
		if (got == "") != want || !want && got != tidemark.Invalid {
			t.Errorf("CheckID(%q): got code %q", id, got)
		}
	}
}

func TestCheckID_names_the_field_and_abbreviates_the_value(t *testing.T) {
	got := tidemark.DetailOf(tidemark.CheckID("chat_id", strings.Repeat("x", 5_000)))
	if !strings.HasPrefix(got, "chat_id ") || !strings.Contains(got, "(5000 bytes)") ||
		len(got) > 200 {
		t.Errorf("got detail %q, want a short one that names the field and the length", got)
	}
}

func TestCodeOf_and_DetailOf_find_the_first_Error_in_the_chain(t *testing.T) {
	own := tidemark.Errorf(tidemark.Conflict, "the id %s is taken", "x")
	for _, test := range []struct {
		name string
		err  error
		code tidemark.Code
	}{
		{"nil", nil, ""},
		{"own", own, tidemark.Conflict},
		{"around own", fmt.Errorf("outer: %w", own), tidemark.Conflict},
		{"own around own", tidemark.Wrap(tidemark.Internal, own, "outer"), tidemark.Internal},
		{"foreign", errors.New("disk on fire"), tidemark.Internal},
		{"cancelled", fmt.Errorf("reading: %w", context.Canceled), tidemark.Unavailable},
		{"out of time", context.DeadlineExceeded, tidemark.Unavailable},
		{
			"own around cancelled",
			tidemark.Wrap(tidemark.NotFound, context.Canceled, "gone"), tidemark.NotFound,
		},
		{"wrapped nil", tidemark.Wrap(tidemark.Internal, nil, "nothing"), ""},
	} {
		if got := tidemark.CodeOf(test.err); got != test.code {
			t.Errorf("%s: got code %q, want %q", test.name, got, test.code)
		}
	}
	if got := tidemark.DetailOf(fmt.Errorf("outer: %w", own)); got != "the id x is taken" {
		t.Errorf("got detail %q", got)
	}
	if got := tidemark.DetailOf(errors.New("disk on fire")); strings.Contains(got, "fire") {
		t.Errorf("got detail %q, want one that hides the foreign error", got)
	}
	if got := tidemark.Wrap(tidemark.Internal, own, "outer"); !errors.Is(got, own) {
		t.Errorf("the cause of %v is lost", got)
	}
}

func TestAfter_and_First_convert_between_inclusive_and_exclusive(t *testing.T) {
	for first, after := range map[tidemark.Sequence]tidemark.Sequence{
		0: 0, 1: 0, 2: 1, tidemark.MaxSequence: tidemark.MaxSequence - 1,
	} {
		if got := tidemark.After(first); got != after {
			t.Errorf("After(%d): got %d, want %d", first, got, after)
		}
		if got := tidemark.First(after); first > 0 && got != first {
			t.Errorf("First(%d): got %d, want %d", after, got, first)
		}
	}
}
