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
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return usagef("--listen %q is not HOST:PORT: %w", c.Listen, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return usageError{err}
	}
	response, err := new(http.Transport).RoundTrip(request) // never through a proxy
	if err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("the server's answer was cut off: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server is not ready: %s: %s",
			response.Status, strings.TrimSpace(string(answer)))
	}
	_, err = fmt.Fprintln(std.out, strings.TrimSpace(string(answer)))
	return err
}
