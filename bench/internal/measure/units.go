package measure

import (
	"regexp"
	"slices"
	"strings"
)

// UnitUse holds the request units that a storage operation used, of a database that bills by them
// (DynamoDB).
type UnitUse struct {
	// Operation is the label of tidemark_storage_seconds. "all" is the sum.
	Operation string `json:"operation"`
	// Count is how many of Per there were: calls, or the items that the calls carried.
	Count float64 `json:"count"`
	Per   string  `json:"per"`
	Read  float64 `json:"read"`
	Write float64 `json:"write"`
}

// carried returns the operations whose calls carry several items, with the items' counter and name.
// For them the cost per item is of interest, not the cost per call.
func carried() map[string]struct{ counter, name string } {
	return map[string]struct{ counter, name string }{
		"append":  {"tidemark_sends_total", "message"},
		"advance": {"tidemark_advances_total", "raise"},
		"mark":    {"tidemark_marks_total", "row"},
		"clear":   {"tidemark_clears_total", "row"},
	}
}

// UnitsOf returns the request units in the counters that moved, or nil if there are none.
func UnitsOf(moved map[string]float64) []UnitUse {
	series := regexp.MustCompile(
		`^tidemark_dynamodb_request_units_total\{kind="(read|write)",operation="([a-z_]+)"\}$`)
	found := make(map[string]*UnitUse)
	all := &UnitUse{Operation: "all", Count: moved["tidemark_sends_total"], Per: "message"}
	for name, by := range moved {
		parts := series.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		kind, operation := parts[1], parts[2]
		use, known := found[operation]
		if !known {
			use = &UnitUse{
				Operation: operation,
				Count:     moved[`tidemark_storage_seconds_count{operation="`+operation+`"}`],
				Per:       "call",
			}
			if items, many := carried()[operation]; many {
				use.Count, use.Per = moved[items.counter], items.name
			}
			found[operation] = use
		}
		if kind == "read" {
			use.Read, all.Read = by, all.Read+by
		} else {
			use.Write, all.Write = by, all.Write+by
		}
	}
	if len(found) == 0 {
		return nil
	}
	uses := make([]UnitUse, 0, len(found)+1)
	for _, use := range found {
		uses = append(uses, *use)
	}
	slices.SortFunc(uses,
		func(a, b UnitUse) int { return strings.Compare(a.Operation, b.Operation) })
	return append(uses, *all)
}

// WriteUnits appends the table of the request units.
func WriteUnits(b *strings.Builder, uses []UnitUse) {
	rows := [][]string{{"request units", "of", "read", "write", "read each", "write each"}}
	for _, u := range uses {
		each := []string{"", ""}
		if u.Count > 0 {
			each = []string{Amount(u.Read / u.Count), Amount(u.Write / u.Count)}
		}
		count := Amount(u.Count) + " × " + u.Per
		rows = append(rows, []string{
			u.Operation, count, Amount(u.Read), Amount(u.Write), each[0], each[1],
		})
	}
	Table(b, rows)
}
