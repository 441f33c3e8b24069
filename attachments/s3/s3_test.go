package s3_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/attachments/s3"
	"github.com/tidemark-im/tidemark/test/services/versitygw"
)

// TestS3 runs the suite on a real server of the protocol.
func TestS3(t *testing.T) {
	server := versitygw.Shared(t)
	attachmentstest.Run(t, func(t *testing.T) attachmentstest.Place {
		at, err := s3.Parse(server.Bucket(t))
		if err != nil {
			t.Fatal(err)
		}
		bucket, err := s3.New(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return attachmentstest.Place{Bytes: bucket, Base: server.URL()}
	})
}

// TestOrigin: pages name it in their policy.
func TestOrigin(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	at := "s3.eu-central-1.amazonaws.com"
	for raw, want := range map[string]string{
		"s3://eu-central-1/files/a":                           "https://files." + at,
		"s3://eu-central-1/my.files":                          "https://" + at,
		"s3://eu-central-1/files?endpoint=http://127.0.0.1:7": "http://127.0.0.1:7",
	} {
		location, err := s3.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		bucket, err := s3.New(t.Context(), location)
		if err != nil {
			t.Fatal(err)
		}
		if got := bucket.Origin(); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for raw, want := range map[string]s3.Location{
		"s3://eu-central-1/files":   {Region: "eu-central-1", Bucket: "files"},
		"s3://eu-central-1/files/":  {Region: "eu-central-1", Bucket: "files"},
		"s3://us-east-1/my.files/a": {Region: "us-east-1", Bucket: "my.files", Prefix: "a/"},
		"s3://us-east-1/files/a/b/?endpoint=https://s3.example.com": {
			Region: "us-east-1", Bucket: "files", Prefix: "a/b/",
			Endpoint: "https://s3.example.com",
		},
	} {
		got, err := s3.Parse(raw)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", raw, err, diff)
		}
	}
	for _, raw := range []string{
		"s3:", "s3://", "s3://eu-central-1", "s3://eu-central-1/", "s3://eu-central-1/UPPER",
		"s3://key:secret@eu-central-1/files", "s3://eu-central-1/files/a b",
		"s3://eu-central-1/files/../x", "s3://eu-central-1/files?endpoint=ftp://x",
		"s3://eu-central-1/files?endpoint=https://x/y", "s3://eu-central-1/files?secret=1",
		"http://eu-central-1/files",
	} {
		if _, err := s3.Parse(raw); err == nil || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
