package outlet

import "testing"

// TestEventID_known_values: receivers have stored these ids, so they never change.
func TestEventID_known_values(t *testing.T) {
	for _, tc := range []struct {
		of      Type
		subject []string
		want    string
	}{
		{
			MessagePersisted, []string{"c", "1", "m"},
			"evt_jskodlyhjhs6dsao3teaxz362qmwxeavpju3bovnssitmhll4mua",
		},
		{ChatUpdated, nil, "evt_uftfwhvs67o2b4v7kc3xcnul2xjhrwkmuolmdnubazndqsjt73tq"},
		{
			"batch", []string{"evt_a", "evt_b"},
			"evt_sg7wi4ij2vzpj5pxoelczvqrxlswvssn7yzgaqtqksh5gxvwu6za",
		},
	} {
		if got := EventID(tc.of, tc.subject...); got != tc.want {
			t.Errorf("EventID(%q, %q) = %s, want %s", tc.of, tc.subject, got, tc.want)
		}
	}
}

// TestEventID_of_other_parts: the same bytes, divided differently, are another subject.
func TestEventID_of_other_parts(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{
		{"t", "ab", "c"}, {"t", "a", "bc"}, {"t", "abc"}, {"t", "abc", ""}, {"t", "", "abc"},
		{"ta", "b", "c"}, {"t"}, {"t", ""}, {"t", "", ""}, {"", "t"},
		{"t", "a\x00\x00\x00\x00\x00\x00\x00\x01b"},
	} {
		id := EventID(Type(parts[0]), parts[1:]...)
		if other, found := seen[id]; found {
			t.Errorf("%q and %q have the id %s", parts, other, id)
		}
		seen[id] = parts
	}
}
