package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPUClock returns the user and system time of a process with all its threads, exact to the
// nanosecond. /proc has the same to 10 ms. It does not include children. It fails if the process
// has ended.
func CPUClock(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of the kernel, as in clock_getcpuclockid(3)
	var t unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|scheduler), &t) //nolint:gosec // a pid has 22 bits
	return time.Duration(t.Nano()), err
}
