package measure

import (
	"strconv"
	"strings"
)

// Goroutines returns the number of goroutines in the Prometheus text format, 0 if it is not there.
func Goroutines(body string) float64 {
	_, rest, _ := strings.Cut("\n"+body, "\ngo_goroutines ")
	value, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseFloat(value, 64)
	return n
}

// ParseMetrics parses the Prometheus text format: name and labels, a space, the value.
// It leaves out histogram buckets, and the runtime's own metrics (go_, process_, promhttp_).
// They say nothing about the load.
func ParseMetrics(body string) map[string]float64 {
	metrics := make(map[string]float64)
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		end := strings.LastIndexByte(line, '}') + 1
		if end == 0 {
			end = strings.IndexByte(line, ' ')
		}
		if end <= 0 {
			continue
		}
		name := line[:end]
		if strings.Contains(name, "_bucket") || hasAnyPrefix(name, "go_", "process_", "promhttp_") {
			continue
		}
		fields := strings.Fields(line[end:])
		if len(fields) == 0 {
			continue
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			continue
		}
		metrics[name] = value
	}
	return metrics
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// Difference returns after − before for every metric that changed.
func Difference(before, after map[string]float64) map[string]float64 {
	moved := make(map[string]float64)
	for name, value := range after {
		if d := value - before[name]; d != 0 {
			moved[name] = d
		}
	}
	return moved
}
