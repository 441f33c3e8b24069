//go:build linux || darwin

package main

import "syscall"

// openFiles returns how many files the process may have open, 0 if that is not limited or not known. The runtime has raised the limit as far as it may.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return limit.Cur
}
