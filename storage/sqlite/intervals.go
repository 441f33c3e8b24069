package sqlite

import (
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// formatIntervals writes intervals as "1-5,9-", the form of members.intervals.
func formatIntervals(intervals tidemark.Intervals) string {
	var b []byte
	for i, interval := range intervals {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendUint(b, uint64(interval.From), 10), '-')
		if interval.To != 0 {
			b = strconv.AppendUint(b, uint64(interval.To), 10)
		}
	}
	return string(b)
}

// parseIntervals reads what formatIntervals wrote. Anything else is an Internal error.
func parseIntervals(text string) (tidemark.Intervals, error) {
	if text == "" {
		return nil, nil
	}
	var intervals tidemark.Intervals
	for part := range strings.SplitSeq(text, ",") {
		from, to, found := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 64)
		var last uint64
		if err == nil && to != "" {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		if err != nil || !found {
			return nil, tidemark.Errorf(tidemark.Internal, "the database holds the intervals %q, which are none", text)
		}
		intervals = append(intervals, tidemark.Interval{From: tidemark.Sequence(first), To: tidemark.Sequence(last)})
	}
	return intervals, nil
}
