package dynamodb

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed supervise.sh
var supervise string

// errPortTaken is how the emulator ends if somebody else listens on its port.
var errPortTaken = errors.New("the emulator's port is taken")

// start starts an emulator with its data in file, or in memory.
func start(file string) (_ *Server, err error) {
	s, err := prepare()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end())
		}
	}()
	s.file = file
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		s.endpoint = "http://127.0.0.1:" + strconv.Itoa(s.port)
		if err = s.run(ctx); !errors.Is(err, errPortTaken) {
			return s, err
		}
	}
}

// prepare makes the directory, and starts the supervisor, which ends with the directory.
func prepare() (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tidemark-dynamodb-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // the supervisor compares it with what the system says
		return nil, err
	}
	s := &Server{program: program, dir: dir}
	input, hold, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	defer input.Close()
	s.hold = hold
	s.supervisor = exec.Command("/bin/sh", "-c", supervise, "sh", dir)
	s.supervisor.Dir = "/"
	s.supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.supervisor.Stdin = input
	if err := s.supervisor.Start(); err != nil {
		return nil, errors.Join(err, hold.Close(), os.Remove(dir))
	}
	return s, nil
}

// find returns the program: that of the PATH, or the one that scripts/dynamodb-deps has put into .build.
func find() (string, error) {
	if path, err := exec.LookPath("dynoxide"); err == nil {
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		path := filepath.Join(dir, ".build/dynoxide/node_modules/@dynoxide/linux-x64/dynoxide")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("DynamoDB's emulator dynoxide is not installed; run: make dynamodb-deps (or name another DynamoDB in %s)", Variable)
}

// freePort returns a port where nothing listens at this moment. It is below those that the system gives to connections, lest one of them takes it while
// the emulator is down.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 15_000 + rand.IntN(17_000)
		var listener net.Listener
		if listener, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, err
}

// run starts the emulator, and waits until it serves.
func (s *Server) run(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before := len(s.log())
	command := exec.Command(s.program, "serve", "--host", "127.0.0.1", "--port", strconv.Itoa(s.port))
	if s.file != "" {
		command.Args = append(command.Args, "--db-path", s.file)
	}
	command.Dir = s.dir
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of the reach of signals to our terminal
	if err := command.Start(); err != nil {
		return err
	}
	s.pid = command.Process.Pid
	for !s.serves() {
		if s.reaped() {
			said := s.log()[before:]
			if strings.Contains(said, "already in use") {
				return errPortTaken
			}
			return fmt.Errorf("starting the emulator: it ended at once:\n%s", said)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("starting the emulator: it is not ready in time:\n%s", s.log()[before:])
		}
		pause()
	}
	return nil
}

// serves reports whether our emulator answers, and nobody else.
func (s *Server) serves() bool {
	if !strings.Contains(s.log(), "listening on "+s.endpoint) {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	response, err := client.Get(s.endpoint)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return err == nil && strings.HasPrefix(string(text), "healthy")
}

// end ends the emulator and removes its directory.
func (s *Server) end() error {
	err := s.hold.Close()
	err = errors.Join(err, s.supervisor.Wait())
	if s.pid != 0 {
		err = errors.Join(err, s.wait(10*time.Second))
	}
	return err
}
