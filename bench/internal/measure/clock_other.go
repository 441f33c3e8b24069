//go:build !linux

package measure

import (
	"errors"
	"time"
)

// CPUClock fails: only Linux has such a clock here.
func CPUClock(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
