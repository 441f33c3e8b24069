package sqlite

import "testing"

// openTest opens a database that t closes.
func openTest(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatalf("Open(%q): %v", path, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}
