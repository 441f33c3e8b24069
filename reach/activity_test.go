package reach

import "testing"

// TestActivity: what comes while a chat is worked on needs further work, once.
func TestActivity(t *testing.T) {
	for _, tc := range []struct {
		name string
		news int
		want bool
	}{
		{"without news", 0, false}, {"with news", 1, true}, {"with much news", 3, true},
	} {
		var a activity
		a.begin()
		for range tc.news {
			a.news()
		}
		if a == resting {
			t.Errorf("%s: the chat rests during the work", tc.name)
		}
		if got := a.end(); got != tc.want {
			t.Errorf("%s: the work is needed once more: %t, want %t", tc.name, got, tc.want)
		}
		if a.begin(); a.end() || a != resting {
			t.Errorf("%s: the news count for later work, too", tc.name)
		}
	}
}
