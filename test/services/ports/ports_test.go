package ports

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// taker names the port that TestMain takes instead of running the tests.
const taker = "TIDEMARK_TEST_TAKES_PORT"

func TestMain(m *testing.M) {
	port, err := strconv.Atoi(os.Getenv(taker))
	if err != nil {
		os.Exit(m.Run())
	}
	err = reserved.take(port)
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EACCES):
		os.Exit(3)
	case err != nil:
		os.Exit(4)
	}
}

// takenElsewhere reports whether another process cannot take the port.
func takenElsewhere(t *testing.T, port int) bool {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), taker+"="+strconv.Itoa(port))
	err := command.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

func TestFree_is_of_one_caller(t *testing.T) {
	port, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	if reserved.take(port) == nil {
		t.Error("another caller of this process took it")
	}
	if !takenElsewhere(t, port) {
		t.Error("another process took it")
	}
	// A program may use it, and end.
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if !takenElsewhere(t, port) {
		t.Error("another process took it after it was used")
	}
	free := port%17_000 + 15_000 // another one
	if takenElsewhere(t, free) && takenElsewhere(t, free+1) {
		t.Error("another process can take no port at all")
	}
}
