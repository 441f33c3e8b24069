package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// start starts an emulator with its data in file, or in memory.
func start(file string) (_ *Server, err error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	home, err := process.NewHome(process.Settings{Service: "dynamodb"})
	if err != nil {
		return nil, err
	}
	s := &Server{file: file, home: home}
	s.emulator = &process.Program{
		Home: home, Name: "the emulator", File: "log", Taken: "already in use",
		Command: func() *exec.Cmd {
			args := []string{"serve", "--host", "127.0.0.1", "--port", strconv.Itoa(s.port)}
			if s.file != "" {
				args = append(args, "--db-path", s.file)
			}
			return home.Command(program, args...)
		},
		Serves: s.serves,
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = process.OnFreePort(func(port int) error {
		s.port, s.endpoint = port, "http://127.0.0.1:"+strconv.Itoa(port)
		return s.emulator.Start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// find returns the program: the one in PATH, or the one that scripts/dynamodb-deps has put into
// .build.
func find() (string, error) {
	if path, err := exec.LookPath("dynoxide"); err == nil {
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		path := filepath.Join(dir, ".build/dynamodb/node_modules/@dynoxide/linux-x64/dynoxide")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("DynamoDB's emulator dynoxide is not installed; run: make "+
		"dynamodb-deps (or name another DynamoDB in %s)", Variable)
}

// serves reports whether our emulator answers, and no other process.
func (s *Server) serves(said string) bool {
	if !strings.Contains(said, "listening on "+s.endpoint) {
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
func (s *Server) end() error { return errors.Join(s.home.Close(), s.emulator.Wait(time.Minute)) }
