package stores

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOutside_calls_take_no_time_in_a_bubble: connections of a bubble are kept open. Time passes as
// soon as no call is running, and not before.
func TestOutside_calls_take_no_time_in_a_bubble(t *testing.T) {
	const slow = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // missing bytes are noticed below
		<-time.After(slow)
		w.Header().Set("Said", r.Header.Get("Say"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, strings.ToUpper(string(body)))
	}))
	defer server.Close()
	b := newOutside()
	go b.run()
	defer b.close()
	synctest.Test(t, func(t *testing.T) {
		client := http.Client{Transport: b}
		for range 3 {
			began := time.Now()
			var calls sync.WaitGroup
			for range 4 {
				calls.Go(func() {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
						server.URL, strings.NewReader("tea"))
					if err != nil {
						t.Error(err)
						return
					}
					request.Header.Set("Say", "five")
					response, err := client.Do(request)
					if err != nil {
						t.Error(err)
						return
					}
					defer response.Body.Close()
					body, err := io.ReadAll(response.Body)
					if err != nil || string(body) != "TEA" ||
						response.Header.Get("Said") != "five" ||
						response.StatusCode != http.StatusTeapot {
						t.Errorf("got %d %q %v, %v",
							response.StatusCode, body, response.Header, err)
					}
				})
			}
			calls.Wait()
			if took := time.Since(began); took != 0 {
				t.Errorf("the calls took %v", took)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestOutside_a_call_is_given_up_by_its_context: the caller goes on at once, and the call ends as
// well.
func TestOutside_a_call_is_given_up_by_its_context(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(left)
	}))
	defer server.Close()
	b := newOutside()
	go b.run()
	defer b.close()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.RoundTrip(request); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that the call was cancelled", err)
		}
	})
	<-left
}
