package push

import (
	"strings"
	"testing"
	"time"
)

// TestCollapseName_is_opaque: it differs by secret, user, device and chat, fits every provider, and
// is the same on all nodes.
func TestCollapseName_is_opaque(t *testing.T) {
	secret := []byte("0123456789abcdef")
	names := map[string]string{
		"one":          CollapseName(secret, "bob", "phone", "chat"),
		"user":         CollapseName(secret, "eve", "phone", "chat"),
		"device":       CollapseName(secret, "bob", "tablet", "chat"),
		"chat":         CollapseName(secret, "bob", "phone", "chat2"),
		"summary":      CollapseName(secret, "bob", "phone", ""),
		"other bounds": CollapseName(secret, "bobp", "hone", "chat"),
		"secret":       CollapseName([]byte("0123456789abcdeF"), "bob", "phone", "chat"),
	}
	seen := make(map[string]string)
	for what, name := range names {
		if !validName(name) || len(name) != MaxName || strings.Contains(name, "chat") {
			t.Errorf("%s: the name is %q", what, name)
		}
		if other, there := seen[name]; there {
			t.Errorf("%s and %s have one name", what, other)
		}
		seen[name] = what
	}
	if again := CollapseName(secret, "bob", "phone", "chat"); again != names["one"] {
		t.Errorf("the name is %q, and %q another time", names["one"], again)
	}
}

// TestDrops_not_what_registered_since: an app that was installed again keeps its registration.
func TestDrops_not_what_registered_since(t *testing.T) {
	died := time.Now()
	dead := Result{Outcome: DropTarget, DeadSince: died}
	for name, tc := range map[string]struct {
		result     Result
		registered time.Time
		want       bool
	}{
		"registered before":      {dead, died.Add(-1), true},
		"registered then":        {dead, died, true},
		"registered since":       {dead, died.Add(1), false},
		"no time":                {Result{Outcome: DropTarget}, died.Add(time.Hour), true},
		"another outcome":        {Result{Outcome: Refused}, died.Add(-1), false},
		"retry with a time of 0": {Result{Outcome: Retry}, time.Time{}, false},
	} {
		if got := tc.result.Drops(Target{Registered: tc.registered}); got != tc.want {
			t.Errorf("%s: Drops = %t, want %t", name, got, tc.want)
		}
	}
}

func TestLifetime_of_silence_is_zero(t *testing.T) {
	for kind, want := range map[Kind]time.Duration{
		Banner: time.Hour, Summary: time.Hour, Badge: 0, Clear: 0,
	} {
		n := Notification{Kind: kind, TTL: time.Hour + time.Millisecond}
		if got := n.Lifetime(); got != want {
			t.Errorf("the lifetime of a %s is %v, want %v", kind, got, want)
		}
	}
}
