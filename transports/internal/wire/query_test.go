package wire_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

func TestParseLimit_clamped_and_checked(t *testing.T) {
	for s, want := range map[string]int{
		"": 50, "1": 1, "007": 7, "1000": 1000, "1001": 1000, "99999999999999999999999": 1000,
	} {
		if got, err := wire.ParseLimit(s); got != want || err != nil {
			t.Errorf("ParseLimit(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"0", "00", "-1", "-", "1.5", "x", "1e3", " 1", "+1", "0x10"} {
		_, err := wire.ParseLimit(s)
		failure{tidemark.Invalid, "limit"}.check(t, err)
	}
}

func TestParseSequence_zero_only_where_it_is_a_position(t *testing.T) {
	for s, want := range map[string]tidemark.Sequence{
		"0": 0, "1": 1, "9007199254740991": tidemark.MaxSequence,
	} {
		got, err := wire.ParseSequence(s, "after_sequence", 0, tidemark.Invalid)
		if got != want || err != nil {
			t.Errorf("ParseSequence(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"-1", "9007199254740992", "x", "", "-", "1.0"} {
		_, err := wire.ParseSequence(s, "after_sequence", 0, tidemark.Invalid)
		failure{tidemark.Invalid, "after_sequence"}.check(t, err)
	}
	for s, code := range map[string]tidemark.Code{
		"0": tidemark.InvalidSequence, "-5": tidemark.InvalidSequence,
		"9007199254740992": tidemark.InvalidSequence,
		"x":                tidemark.Invalid, "1.5": tidemark.Invalid,
	} {
		_, err := wire.ParseSequence(s, "for_sequence", 1, tidemark.InvalidSequence)
		failure{code, "for_sequence"}.check(t, err)
	}
}

func TestOpenQuery(t *testing.T) {
	tests := []struct {
		query string
		want  wire.Stream
		fail  failure
	}{
		{"", wire.Stream{Statuses: true}, ok},
		{"device_id=d&session_id=s&after_event_id=7&status_updates=false",
			wire.Stream{Device: "d", Session: "s", After: 7}, ok},
		{"session_id=%00strange&status_updates=true",
			wire.Stream{Session: "\x00strange", Statuses: true}, ok},
		{"from_a_later_version=1", wire.Stream{Statuses: true}, ok},
		{"device_id=a+b", wire.Stream{}, failure{tidemark.Invalid, "device_id"}},
		{"after_event_id=-1", wire.Stream{}, failure{tidemark.Invalid, "after_event_id"}},
		{"after_event_id=9007199254740991", wire.Stream{After: 1<<53 - 1, Statuses: true}, ok},
		{"after_event_id=9007199254740992", wire.Stream{},
			failure{tidemark.Invalid, "after_event_id"}},
		{"after_event_id=x", wire.Stream{}, failure{tidemark.Invalid, "after_event_id"}},
		{"status_updates=1", wire.Stream{}, failure{tidemark.Invalid, "status_updates"}},
		{"status_updates=maybe", wire.Stream{}, failure{tidemark.Invalid, "status_updates"}},
	}
	for _, tt := range tests {
		q, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.ParseStream(q)
		tt.fail.check(t, err)
		if err == nil && !cmp.Equal(tt.want, got) {
			t.Errorf("ParseStream(%q): -want +got:\n%s", tt.query, cmp.Diff(tt.want, got))
		}
	}
}

func TestParsePosition_last_dot(t *testing.T) {
	tests := []struct {
		s       string
		session tidemark.SessionID
		id      uint64
		ok      bool
	}{
		{"abc.42", "abc", 42, true},
		{"a.b.42", "a.b", 42, true},
		{"abc.0", "abc", 0, true},
		{"abc.18446744073709551615", "abc", 1<<64 - 1, true},
		{"abc.18446744073709551616", "", 0, false},
		{"abc.", "", 0, false},
		{"abc.-1", "", 0, false},
		{"abc.+1", "", 0, false},
		{"abc.1x", "", 0, false},
		{".42", "", 0, false},
		{"42", "", 0, false},
		{"", "", 0, false},
	}
	for _, tt := range tests {
		session, id, ok := wire.ParsePosition(tt.s)
		if session != tt.session || id != tt.id || ok != tt.ok {
			t.Errorf("ParsePosition(%q) = %q, %d, %t", tt.s, session, id, ok)
		}
		if ok && string(wire.AppendPosition(nil, session, id)) != tt.s {
			t.Errorf("AppendPosition does not give %q back", tt.s)
		}
	}
}
