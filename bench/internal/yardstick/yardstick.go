// Package yardstick measures what this machine does now for a fixed piece of work.
//
// Machines are shared, and change their speed within a day. So a figure of one day compares with
// that of another only as a multiple of what the yardstick showed beside it. The yardstick does not
// touch the server that is measured.
package yardstick

import (
	"slices"
	"time"
)

// Figure is the cost of one operation: the median, least and greatest of some rounds.
type Figure struct {
	Median   float64 `json:"median"`
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
	Rounds   int     `json:"rounds"`
	// Missing says why nothing was measured. It is empty if there is a figure.
	Missing string `json:"missing,omitempty"`
}

// Reading is one reading of the yardstick.
type Reading struct {
	// Socket is the CPU time in µs, user and system, of one write and one read of 200 bytes over a
	// TCP connection on the loopback interface.
	Socket Figure `json:"socket_microseconds"`
	// Sync is the time in ms of one write of 4 KiB and its fdatasync.
	Sync Figure `json:"fdatasync_milliseconds"`
	// Row is the CPU time in µs, of client and Postgres, of one row of a prepared statement that
	// inserts 64. It is nil without a Postgres.
	Row *Figure `json:"row_microseconds,omitempty"`
}

// Without returns a Figure that was not measured.
func Without(err error) Figure { return Figure{Missing: err.Error()} }

// leastRounds is how many rounds are made even if they take longer than they may.
const leastRounds = 3

// Rounds calls round until most rounds are made or the deadline has passed, but at least three
// times. A round returns the cost of one operation. The first call warms up, and does not count.
func Rounds(most int, deadline time.Time, round func() (float64, error)) Figure {
	var costs []float64
	for i := 0; i <= most && (i <= leastRounds || time.Now().Before(deadline)); i++ {
		cost, err := round()
		if err != nil {
			return Without(err)
		}
		if i > 0 {
			costs = append(costs, cost)
		}
	}
	slices.Sort(costs)
	return Figure{
		Median:   costs[len(costs)/2],
		Least:    costs[0],
		Greatest: costs[len(costs)-1],
		Rounds:   len(costs),
	}
}
