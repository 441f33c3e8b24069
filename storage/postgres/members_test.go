package postgres

import (
	"testing"
	"time"
)

// RemoveMember waits for a Mark that is under way, and removes its row too. Otherwise the row would
// exist when the user comes back.
func TestRemoveMember_row_that_is_marked_meanwhile_goes(t *testing.T) {
	s, r := withRival(t, patient)
	r.do("INSERT INTO pending_deliveries VALUES ('ben', 'c', 1)")
	result := make(chan error, 1)
	go func() {
		_, err := s.RemoveMember(t.Context(), "c", "ben", time.UnixMilli(3))
		result <- err
	}()
	r.commit()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if rows, _, err := s.PendingOf(t.Context(), "ben", "", 10); err != nil || len(rows) != 0 {
		t.Errorf("the user left, and has the rows %+v, %v", rows, err)
	}
}
