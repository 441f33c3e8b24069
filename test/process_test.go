package test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/ports"
)

// serveDev serves in development mode with an empty database on a free port until the test ends,
// and returns the address.
func serveDev(t *testing.T) string {
	t.Helper()
	return newProcess(t).serve()
}

// serve starts the server until the test ends, and returns its address.
func (p *process) serve() string {
	p.t.Helper()
	p.t.Cleanup(p.stop)
	p.start()
	return p.address
}

// waitReady polls until the server answers 200, for at most two minutes.
func waitReady(ctx context.Context, url string, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s answered %s", url, response.Status)
		}
		select {
		case exit := <-ended:
			ended <- exit // the cleanup waits for it too
			return fmt.Errorf("serve ended before it was ready: %w", exit)
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w", err)
		case <-tick.C:
		}
	}
}

// freeAddress returns an address of the loopback interface on which no program listens, and that no
// other test gets.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := ports.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// environment returns the caller's environment without TIDEMARK_ variables: the program refuses
// those of the tests.
func environment() []string {
	return slices.DeleteFunc(os.Environ(),
		func(variable string) bool { return strings.HasPrefix(variable, "TIDEMARK_") })
}
