package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// healthWithin is how long the server may take to answer.
const healthWithin = 3 * time.Second

// healthCommand checks whether the server on this machine is ready.
// It serves containers that have no other program for that.
type healthCommand struct {
	Listen string `default:"127.0.0.1:8080" env:"TIDEMARK_LISTEN" placeholder:"HOST:PORT" help:"Address of the server; without a HOST, the loopback interface."`
	Config string `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"The YAML file of serve; only its listen is used."`
}

// Run requests /readyz and prints the answer. Any status but 200 is a failure.
func (c *healthCommand) Run(ctx context.Context, std streams) error {
	status, answer, err := askReady(ctx, c.Listen)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("the server is not ready: %d %s: %s",
			status, http.StatusText(status), answer)
	}
	_, err = fmt.Fprintln(std.out, answer)
	return err
}

// askReady returns the answer to /readyz of the server that listens at an address.
func askReady(ctx context.Context, listen string) (status int, answer string, err error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return 0, "", usagef("--listen %q is not HOST:PORT: %w", listen, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return 0, "", usageError{err}
	}
	response, err := new(http.Transport).RoundTrip(request) // never through a proxy
	if err != nil {
		return 0, "", fmt.Errorf("the server does not answer: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return 0, "", fmt.Errorf("the server's answer was cut off: %w", err)
	}
	return response.StatusCode, strings.TrimSpace(string(body)), nil
}
