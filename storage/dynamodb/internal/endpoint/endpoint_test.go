package endpoint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

const key = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"

func TestParse_reads_what_a_url_says(t *testing.T) {
	for raw, want := range map[string]Endpoint{
		"dynamodb://eu-central-1": {
			Region:              "eu-central-1",
			Prefix:              "tidemark-",
			PointInTimeRecovery: true,
			DeletionProtection:  true,
			Name:                "dynamodb://eu-central-1/tidemark-",
		},
		"dynamodb://eu-central-1/": {
			Region:              "eu-central-1",
			Prefix:              "tidemark-",
			PointInTimeRecovery: true,
			DeletionProtection:  true,
			Name:                "dynamodb://eu-central-1/tidemark-",
		},
		"dynamodb://us-gov-west-1/chat.prod_": {
			Region:              "us-gov-west-1",
			Prefix:              "chat.prod_",
			PointInTimeRecovery: true,
			DeletionProtection:  true,
			Name:                "dynamodb://us-gov-west-1/chat.prod_",
		},
		"dynamodb://r/p?kms_key=" + key: {
			Region:              "r",
			Prefix:              "p",
			PointInTimeRecovery: true,
			DeletionProtection:  true,
			Key:                 key,
			Name:                "dynamodb://r/p",
		},
		"dynamodb://r/p?deletion_protection=off&point_in_time_recovery=off": {
			Region: "r",
			Prefix: "p",
			Name:   "dynamodb://r/p",
		},
		"dynamodb://local/p?endpoint=http://127.0.0.1:8000": {
			Region:   "local",
			Prefix:   "p",
			Endpoint: "http://127.0.0.1:8000",
			Name:     "dynamodb://local/p?endpoint=http://127.0.0.1:8000",
		},
		"dynamodb://local/?endpoint=http%3A%2F%2F[::1]:8000/": {
			Region:   "local",
			Prefix:   "tidemark-",
			Endpoint: "http://[::1]:8000",
			Name:     "dynamodb://local/tidemark-?endpoint=http://[::1]:8000",
		},
		"dynamodb://r/p?endpoint=http://h&deletion_protection=on&point_in_time_recovery=on": {
			Region:              "r",
			Prefix:              "p",
			Endpoint:            "http://h",
			PointInTimeRecovery: true,
			DeletionProtection:  true,
			Name:                "dynamodb://r/p?endpoint=http://h",
		},
		"dynamodb://r/p?endpoint=https://vpce-1.dynamodb.eu-central-1.vpce.amazonaws.com": {
			Region:              "r",
			Prefix:              "p",
			Endpoint:            "https://vpce-1.dynamodb.eu-central-1.vpce.amazonaws.com",
			PointInTimeRecovery: true,
			DeletionProtection:  true,
			Name: "dynamodb://r/p?endpoint=" +
				"https://vpce-1.dynamodb.eu-central-1.vpce.amazonaws.com",
		},
	} {
		got, err := Parse(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestParse_says_what_to_write_and_shows_nothing(t *testing.T) {
	for raw, want := range map[string]string{
		"":                            "dynamodb://REGION/PREFIX",
		"dynamodb:HIDDEN":             "dynamodb://REGION/PREFIX",
		"dynamodb:/HIDDEN/x":          "begins with a Region",
		"dynamodb:///HIDDEN":          "begins with a Region",
		"dynamodb://%zHIDDEN/x":       "dynamodb://REGION/PREFIX",
		"dynamodb://r/p#HIDDEN":       "dynamodb://REGION/PREFIX",
		"postgres://r/HIDDEN":         "dynamodb://REGION/PREFIX",
		"dynamodb://HIDDEN@r/p":       "holds no credentials",
		"dynamodb://ABCD:HIDDEN@r/p":  "holds no credentials",
		"dynamodb://ABCD:HIDDEN/p":    "dynamodb://REGION/PREFIX",
		"dynamodb://127.0.0.1:8000/p": "give an address as ?endpoint=",
		"dynamodb://Eu_HIDDEN/p":      "begins with a Region",
		"dynamodb://-r/p":             "begins with a Region",
		"dynamodb://r/HIDDEN/x":       "no second slash",
		"dynamodb://r/pHIDDENö":       "A-Z a-z 0-9",
		"dynamodb://r/a%20HIDDEN":     "A-Z a-z 0-9",
		"dynamodb://r/?HIDDEN=1": "unknown parameter; known are: endpoint, " +
			"point_in_time_recovery, deletion_protection, kms_key",
		"dynamodb://r/?Endpoint=http://":                         "unknown parameter",
		"dynamodb://r/?endpoint=http://a&endpoint=http://HIDDEN": "endpoint is twice",
		"dynamodb://r/?a=%zzHIDDEN":                              "special characters",
		"dynamodb://r/?endpoint=":                                "http://HOST:PORT",
		"dynamodb://r/?endpoint=127.0.0.1:8000":                  "http://HOST:PORT",
		"dynamodb://r/?endpoint=ftp://HIDDEN":                    "http://HOST:PORT",
		"dynamodb://r/?endpoint=http://u:HIDDEN@h":               "http://HOST:PORT",
		"dynamodb://r/?endpoint=http://h/HIDDEN":                 "http://HOST:PORT",
		"dynamodb://r/?endpoint=http://h?x=HIDDEN":               "http://HOST:PORT",
		"dynamodb://r/?endpoint=http://:1":                       "http://HOST:PORT",
		"dynamodb://r/?deletion_protection=HIDDEN": "deletion_protection in the URL of " +
			"DynamoDB is on or off",
		"dynamodb://r/?point_in_time_recovery=": "point_in_time_recovery in the URL of " +
			"DynamoDB is on or off",
		"dynamodb://r/?kms_key=":                                  "the ARN of a key",
		"dynamodb://r/?kms_key=alias/HIDDEN":                      "the ARN of a key",
		"dynamodb://r/?kms_key=arn:aws:kms:r:111122223333:alias/": "the ARN of a key",
		"dynamodb://r/" + strings.Repeat("p", maxPrefix+1):        "at most 200 characters",
	} {
		got, err := Parse(raw)
		switch {
		case err == nil:
			t.Errorf("%s: got %+v, want an error", raw, got)
		case tidemark.CodeOf(err) != tidemark.Invalid ||
			!strings.Contains(tidemark.DetailOf(err), want):
			t.Errorf("%s: got %v, want INVALID with %q", raw, err, want)
		case strings.Contains(err.Error(), "HIDDEN") || strings.Contains(err.Error(), "ABCD"):
			t.Errorf("%s: the error shows a secret: %v", raw, err)
		}
	}
}

func TestTable_prefixes_the_name(t *testing.T) {
	target, err := Parse("dynamodb://r/p_" + strings.Repeat("x", maxPrefix-2))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := target.Table("messages"), target.Prefix+"messages"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := len(target.Table("pending_deliveries")); got > 255 {
		t.Errorf("a name of %d characters, and DynamoDB takes 255", got)
	}
}

func TestNamed_keeps_code_and_cause(t *testing.T) {
	target, err := Parse("dynamodb://r/p")
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Named(nil); err != nil {
		t.Errorf("got %v for no error", err)
	}
	cause := tidemark.Errorf(tidemark.Conflict, "within")
	got := target.Named(tidemark.Wrap(tidemark.Unavailable, cause, "it is late"))
	if want := "UNAVAILABLE: dynamodb://r/p: it is late: CONFLICT: within"; got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
