package measure

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnits_are_of_what_calls_carry(t *testing.T) {
	moved := map[string]float64{
		`tidemark_dynamodb_request_units_total{kind="write",operation="append"}`:  41,
		`tidemark_dynamodb_request_units_total{kind="read",operation="append"}`:   1,
		`tidemark_dynamodb_request_units_total{kind="write",operation="advance"}`: 5,
		`tidemark_dynamodb_request_units_total{kind="read",operation="rosters"}`:  1.5,
		`tidemark_storage_seconds_count{operation="append"}`:                      2,
		`tidemark_storage_seconds_count{operation="rosters"}`:                     3,
		"tidemark_sends_total":    10,
		"tidemark_advances_total": 4,
	}
	want := []UnitUse{
		{Operation: "advance", Count: 4, Per: "raise", Write: 5},
		{Operation: "append", Count: 10, Per: "message", Read: 1, Write: 41},
		{Operation: "rosters", Count: 3, Per: "call", Read: 1.5},
		{Operation: "all", Count: 10, Per: "message", Read: 2.5, Write: 46},
	}
	got := UnitsOf(moved)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var b strings.Builder
	WriteUnits(&b, got)
	for _, row := range []string{"10 × message", "3 × call", "4.1", "4.6"} {
		if !strings.Contains(b.String(), row) {
			t.Errorf("the table lacks %q:\n%s", row, b.String())
		}
	}
	if got := UnitsOf(map[string]float64{"tidemark_sends_total": 1}); got != nil {
		t.Errorf("got %+v of a storage that bills nothing", got)
	}
}
