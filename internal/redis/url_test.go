package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
)

func TestParseURL(t *testing.T) {
	for _, tc := range []struct {
		url    string
		want   redis.Address
		prints string
	}{
		{"redis://h", redis.Address{Addrs: []string{"h:6379"}}, "redis://h:6379"},
		{"redis://h:1/2", redis.Address{Addrs: []string{"h:1"}, DB: 2}, "redis://h:1/2"},
		{"redis://h:1/", redis.Address{Addrs: []string{"h:1"}}, "redis://h:1"},
		{
			"rediss://:pa55@h",
			redis.Address{Addrs: []string{"h:6379"}, TLS: true}, "rediss://h:6379",
		},
		{
			"redis://u:pa55%40%2F%3F@h:1",
			redis.Address{Addrs: []string{"h:1"}, User: "u"}, "redis://h:1",
		},
		{
			"redis://u:pa55@pa55/pa55@h:1",
			redis.Address{Addrs: []string{"h:1"}, User: "u"}, "redis://h:1",
		},
		{"redis://[::1]:1", redis.Address{Addrs: []string{"[::1]:1"}}, "redis://[::1]:1"},
		{"redis://[::1]", redis.Address{Addrs: []string{"[::1]:6379"}}, "redis://[::1]:6379"},
		{
			"redis+sentinel://a,b:1/main",
			redis.Address{Kind: redis.Sentinel, Addrs: []string{"a:26379", "b:1"}, Master: "main"},
			"redis+sentinel://a:26379,b:1/main",
		},
		{
			"rediss+sentinel://u:pa55@a/main/3",
			redis.Address{
				Kind:   redis.Sentinel,
				Addrs:  []string{"a:26379"},
				Master: "main",
				DB:     3,
				User:   "u",
				TLS:    true,
			},
			"rediss+sentinel://a:26379/main/3",
		},
		{
			"redis+sentinel://:pa55@a/main/3?sentinel_user=w&sentinel_password=pa55%26",
			redis.Address{Kind: redis.Sentinel, Addrs: []string{"a:26379"}, Master: "main", DB: 3},
			"redis+sentinel://a:26379/main/3",
		},
		{
			"redis+cluster://a:1,b:2,c:3",
			redis.Address{Kind: redis.Cluster, Addrs: []string{"a:1", "b:2", "c:3"}},
			"redis+cluster://a:1,b:2,c:3",
		},
		{
			"rediss+cluster://u:pa55@a/0",
			redis.Address{Kind: redis.Cluster, Addrs: []string{"a:6379"}, User: "u", TLS: true},
			"rediss+cluster://a:6379",
		},
	} {
		got, err := redis.ParseURL(tc.url)
		if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(redis.Address{})); err != nil ||
			diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tc.url, err, diff)
		}
		if got.String() != tc.prints || strings.Contains(fmt.Sprint(got), "pa55") {
			t.Errorf("%s prints as %s, want %s", tc.url, got, tc.prints)
		}
	}
}

func TestParseURL_refuses_without_the_password(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"", "begins with redis://"},
		{"localhost:6379", "begins with redis://"},
		{"pa55", "begins with redis://"},
		{"http://h", "no scheme of Redis"},
		{"redis+foo://h", "no scheme of Redis"},
		{"redis://", "not host:port"},
		{"redis://:pa55@", "not host:port"},
		{"redis://h:x", "not host:port"},
		{"redis://h:0", "not host:port"},
		{"redis://h:70000", "not host:port"},
		{"redis://h/x", "no number of a database"},
		{"redis://h/-1", "no number of a database"},
		{"redis://a,b", "several hosts"},
		{"redis://pa55@h", "not user:password"},
		{"redis://u:pa55%@h", "not user:password"},
		{"redis://u:pa55?x@h", "%3F"},
		{"redis://h?db=1", "no options"},
		{"redis://h?sentinel_password=pa55", "no options"},
		{"redis+sentinel://h/m?sentinel_password=pa55&sentinel_password=pa55", "no options"},
		{"redis+sentinel://h/m?password=pa55", "no options"},
		{"redis+sentinel://h/m?sentinel_password=pa55%", "no options"},
		{"redis+sentinel://h/m?sentinel_password=pa55#", "%23"},
		{"redis+sentinel://h", "name of their master"},
		{"redis+sentinel://h/m/x", "no number of a database"},
		{"redis+cluster://h/1", "no numbered databases"},
	} {
		_, err := redis.ParseURL(tc.url)
		if tidemark.CodeOf(err) != tidemark.Invalid || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "pa55") {
			t.Errorf("%q: %v, want %q and no password", tc.url, err, tc.want)
		}
	}
}

// What precedes the @ is shown nowhere, and a printed address parses as the same.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"redis://u:SECRET@h:1/2", "redis+sentinel://u:SECRET@a,b/m/1",
		"rediss+cluster://:SECRET@a,b:2", "redis://u:SE/CRET@h", "redis://[::1]", "redis://SECRET@",
		"redis://u:SECRET@h,i", "redis+sentinel://h//", "redis+sentinel://h/m?sentinel_password=x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		address, err := redis.ParseURL(raw)
		shown := address.String()
		if err != nil {
			shown = err.Error()
		}
		scheme, rest, _ := strings.Cut(raw, "://")
		login, hosts := rest[:strings.LastIndex(rest, "@")+1], rest[strings.LastIndex(rest, "@")+1:]
		secret := strings.Contains(login, "SECRET") && !strings.Contains(scheme+hosts, "SECRET")
		if secret && strings.Contains(shown, "SECRET") {
			t.Errorf("%q shows its secret: %s", raw, shown)
		}
		if err != nil {
			return
		}
		again, err := redis.ParseURL(shown)
		if err != nil || again.String() != shown || again.Kind != address.Kind ||
			again.DB != address.DB || again.TLS != address.TLS {
			t.Errorf("%q prints as %s, which is %+v, %v", raw, shown, again, err)
		}
	})
}
