package main

import (
	"strings"
	"testing"
)

// TestPushFlags_hosts: a text that names no host would refuse all endpoints of browsers.
func TestPushFlags_hosts(t *testing.T) {
	for host, right := range map[string]bool{
		"push.example.com": true, ".example.com": true, "xn--mlut-moa5l.de": true,
		"203.0.113.7": true, "2001:db8::7": true,
		"": false, ".": false, "https://push.example.com": false, "push.example.com/": false,
		"push.example.com:443": false, "*.example.com": false, "a b": false, "ümläut.de": false,
	} {
		flags := pushFlags{
			PushSubject: "mailto:operator@tidemark.im", PushHost: []string{"a.example.com", host},
		}
		_, err := flags.settings(testSecret, nil)
		if right != (err == nil) || err != nil && !strings.Contains(err.Error(), "--push-host") {
			t.Errorf("%q: got %v, want that it is a host: %t", host, err, right)
		}
	}
}
