//go:build quickjobs

package main

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

// Programs for tests write what they have in memory into a file, when they get SIGUSR1. No release
// has this: a dump shows every message and secret.
func init() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			dumpHeap(os.Getenv("HEAP_DUMP"))
		}
	}()
}

// dumpHeap writes the objects that the process can still reach. The file appears when it is whole.
func dumpHeap(path string) {
	file, err := os.Create(path + ".part")
	if err != nil {
		panic(err)
	}
	runtime.GC()
	runtime.GC() // The first one keeps what is in pools.
	debug.WriteHeapDump(file.Fd())
	if err := file.Close(); err != nil {
		panic(err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		panic(err)
	}
}
