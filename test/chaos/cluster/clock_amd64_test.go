package cluster

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// clockVariable makes TestMain a program that reads the clock without end.
const clockVariable = "TIDEMARK_TEST_READS_THE_CLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(clockVariable) != "" {
		readClock()
	}
	os.Exit(m.Run())
}

// readClock reads the clock again and again. It prints the Unix time for each line that it reads.
// It waits for signals, as Tidemark does, so one of its threads blocks most of them.
func readClock() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	go func() {
		for {
			_ = time.Now()
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().Unix())
	}
	os.Exit(0)
}

// Without the wait, about one program in some hundred crashes. So the test looks whether overwrite
// refuses at times.
func TestSetClock_waits_until_no_thread_reads_the_clock(t *testing.T) {
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), clockVariable+"=1")
	program.Stderr = os.Stderr
	ask, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	told, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ask.Close()
		if err := program.Wait(); err != nil {
			t.Errorf("the program ended by itself: %v", err)
		}
	})
	clock := func() time.Duration {
		var seconds int64
		if _, err := fmt.Fprintln(ask); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(told, &seconds); err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(seconds, 0))
	}
	clock() // so the program runs
	for _, apart := range []time.Duration{time.Hour, -2 * time.Hour} {
		if err := setClock(program.Process.Pid, apart); err != nil {
			t.Fatal(err)
		}
		if is := clock(); (is - apart).Abs() > time.Minute {
			t.Errorf("the clock is apart by %v, and was set apart by %v", is, apart)
		}
	}

	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", program.Process.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = memory.Close() }()
	f, err := findGettime(program.Process.Pid, memory)
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		written, err := f.overwrite(program.Process.Pid, memory, gettime(0))
		if err != nil {
			t.Fatal(err)
		}
		if !written {
			return
		}
	}
	t.Error("overwrite has written at each of 10,000 moments, also while a thread read the clock")
}
