package cluster

import (
	"os/exec"
	"runtime"
)

// startLocked starts a command from a thread that lives until the command has ended. It sends both
// results.
func startLocked(command *exec.Cmd, started, ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := command.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	ended <- command.Wait()
}
