package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
)

// TestOutletFlags_are_checked before anything is opened.
func TestOutletFlags_are_checked(t *testing.T) {
	for name, c := range map[string]struct {
		networks []string
		key      string
		kafka    string
		timeout  time.Duration
		want     string
	}{
		"a short timeout":    {timeout: time.Millisecond, want: "must be 1s to 1m0s"},
		"a long timeout":     {timeout: time.Hour, want: "must be 1s to 1m0s"},
		"a timeout":          {timeout: 2 * time.Second},
		"no scheme":          {kafka: "http://broker:9092", want: "--kafka: "},
		"no broker":          {kafka: "kafka://u:secret@", want: "needs HOST:PORT"},
		"a broker":           {kafka: "kafka://broker"},
		"no network":         {networks: []string{"10.0.0.0"}, want: "is not a network"},
		"a host's address":   {networks: []string{"10.0.0.1/8"}, want: "is not a network"},
		"the second one":     {networks: []string{"10.0.0.0/8", "x"}, want: `"x" is not a network`},
		"a short key":        {key: "0123456789", want: "has 10 bytes"},
		"all is right":       {networks: []string{"fd00::/8"}, key: testSecret},
		"nothing is allowed": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(outletVariable, c.key)
			flags := outletFlags{
				ReachAllowCIDR: c.networks, Kafka: c.kafka, WorkerTimeout: c.timeout,
			}
			set, err := flags.config(false)
			if c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if times := set.reach.Times; times.Dead != 0 && (times.Dead != c.timeout ||
				times.Poll >= times.Trust || 2*times.Trust >= times.Dead) {
				t.Errorf("%v makes the periods %+v", c.timeout, times)
			}
		})
	}
}

// TestOutletFlags_roles: both by default. Other nodes have the other role only if they can.
func TestOutletFlags_roles(t *testing.T) {
	for _, c := range []struct {
		roles   string
		store   string
		gateway bool
		worker  bool
		fails   bool
	}{
		{"", "sqlite:", true, true, false},
		{"gateway,worker", "memory:", true, true, false},
		{"worker", "sqlite:", false, true, true},
		{"gateway", "memory:", true, false, true},
		{"gateway", "postgres://localhost/x", true, false, false},
		{"worker", "dynamodb://eu-central-1/x", false, true, false},
	} {
		flags := outletFlags{}
		if c.roles != "" {
			flags.Roles = strings.Split(c.roles, ",")
		}
		set, err := flags.config(true)
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&outletFlags{Roles: []string{"worker", "boss"}}).config(true)
		if err == nil || !strings.Contains(err.Error(), `"boss"`) {
			t.Errorf("an unknown role: %v", err)
		}
		if set.has(roleGateway) != c.gateway || set.has(roleWorker) != c.worker ||
			set.reach.Aside == c.worker {
			t.Errorf("%q: %+v", c.roles, set)
		}
		store, err := parseStore(c.store)
		if err != nil {
			t.Fatal(err)
		}
		if err := flags.checkStore(store); (err != nil) != c.fails {
			t.Errorf("%q with %s: %v", c.roles, c.store, err)
		}
	}
}

// TestOutletFlags_say_where_webhooks_may_lead: to a private network only if it is allowed, or with
// --dev to this machine. Without a key no secret is sealed.
func TestOutletFlags_say_where_webhooks_may_lead(t *testing.T) {
	t.Setenv(outletVariable, "")
	const here = "http://127.0.0.1:8898/"
	for name, c := range map[string]struct {
		networks []string
		dev      bool
		url      string
		want     bool
	}{
		"this machine":           {url: here},
		"this machine, with dev": {url: here, dev: true, want: true},
		"this machine, allowed":  {url: here, networks: []string{"127.0.0.0/8"}, want: true},
		"the public internet":    {url: "https://example.com/", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			flags := outletFlags{ReachAllowCIDR: c.networks}
			cfg, err := flags.config(c.dev)
			if err != nil {
				t.Fatal(err)
			}
			kind := cfg.reach.Kinds["webhook"]
			o, err := kind.Open(&reach.Spec{URL: c.url}, []string{kind.NewSecret()})
			if (err == nil) != c.want {
				t.Errorf("opened: %v, want %t", err, c.want)
			}
			if err == nil {
				err = o.Close()
			} else if tidemark.CodeOf(err) == tidemark.Invalid {
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
			sealed, err := cfg.reach.Sealer.Seal("a secret")
			if c.dev == (err != nil) || err != nil && tidemark.CodeOf(err) != tidemark.Denied {
				t.Errorf("sealed %q, %v", sealed, err)
			}
		})
	}
}

// TestOutletFlags_say_where_Kafka_is: an outlet cannot choose the brokers, and without the flag
// none can be created.
func TestOutletFlags_say_where_Kafka_is(t *testing.T) {
	t.Setenv(outletVariable, "")
	for _, c := range []struct{ flag, url, want string }{
		{"", "kafka:tidemark", "type"},
		{"kafka://broker:9092", "kafka:tidemark", ""},
		{"kafka://broker:9092", "kafka://elsewhere:9092", "url"},
	} {
		cfg, err := (&outletFlags{Kafka: c.flag}).config(false)
		if err != nil {
			t.Fatal(err)
		}
		kind := cfg.reach.Kinds["kafka"]
		if kind.NewSecret != nil {
			t.Error("an outlet of Kafka has a secret")
		}
		o, err := kind.Open(&reach.Spec{URL: c.url}, nil)
		var refused *tidemark.Error
		errors.As(err, &refused)
		if (refused == nil) != (c.want == "") || refused != nil && refused.Param != c.want {
			t.Errorf("%+v: opened: %v", c, err)
		}
		if err == nil {
			err = o.Close()
			if err != nil {
				t.Error(err)
			}
		}
	}
}
