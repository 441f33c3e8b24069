package wire

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                              0,
		"7":                             7 * time.Second,
		"-7":                            0,
		"soon":                          0,
		"86400":                         MaxWait,
		"99999999999999":                MaxWait,
		"Fri, 27 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Fri, 27 Nov 2026 11:00:30 GMT": 0,
		"Sat, 28 Nov 2026 12:00:30 GMT": MaxWait,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("RetryAfter(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestBusy_waits_at_least(t *testing.T) {
	answer := Answer{Status: 429, Header: http.Header{"Retry-After": {"5"}}}
	if got := Busy(answer, time.Now(), time.Minute).Wait; got != time.Minute {
		t.Errorf("the wait is %v, want a minute", got)
	}
	if got := Busy(answer, time.Now(), time.Second).Wait; got != 5*time.Second {
		t.Errorf("the wait is %v, want 5 s", got)
	}
}
