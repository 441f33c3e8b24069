package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tidemark-im/tidemark/test/services/versitygw"
)

// TestDoctor_looks_at_what_is_outside: at Kafka, push providers over TLS, and the place of files.
// It sends no notification, and leaves no file.
func TestDoctor_looks_at_what_is_outside(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	topics := kfake.MustCluster(kfake.SeedTopics(4, "tidemark.fanout"))
	t.Cleanup(topics.Close)
	fakes := startProviders(t)
	store := versitygw.Shared(t)
	for name, value := range versitygw.Environment() {
		p.env = append(p.env, name+"="+value)
	}
	bucket := store.NewBucket(t, "https://app.example.com")
	p.env = append(p.env, fakes.env...)
	kafka := "kafka://" + strings.Join(topics.ListenAddrs(), ",")
	full := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(full, nil, 0o600))
	away := slices.Clone(fakes.flags)
	away[slices.Index(away, "--push-apns-url")+1] = "https://127.0.0.1:1"
	for name, tt := range map[string]struct {
		flags []string
		want  []string
		wrong bool
	}{
		"all is well": {
			append([]string{
				"--kafka", kafka, "--fanout", "kafka", "--attachments", bucket,
				"--allow-origin", "https://app.example.com",
			}, fakes.flags...),
			[]string{
				"ok       kafka          3 brokers answer; the topic tidemark.fanout has 4",
				"ok       push apns      it answers", "ok       push fcm       it answers",
				"note     push webpush", "ok       files          the bucket",
			}, false,
		},
		"no topic, no page, no directory": {
			[]string{
				"--kafka", kafka, "--fanout", "kafka:other", "--attachments", "dir:" + full,
			},
			[]string{
				"PROBLEM  kafka          the topic other.fanout does not exist; create it",
				"PROBLEM  files          the directory",
			}, true,
		},
		"a page that may not upload": {
			[]string{"--attachments", bucket, "--allow-origin", "https://other.example.com"},
			[]string{
				"PROBLEM  files          pages of https://other.example.com cannot upload",
				"add a CORS rule",
			}, true,
		},
		"a bucket that is not there": {
			[]string{"--attachments", strings.Replace(bucket, "bucket-", "missing-", 1)},
			[]string{"PROBLEM  files          the upload of a file to the bucket missing-"}, true,
		},
		"a directory": {
			[]string{"--attachments", "dir:" + t.TempDir(), "--kafka", kafka},
			[]string{"can be written to", "the topics of outlets are not checked"}, false,
		},
		"a provider that is away": {
			away, []string{"PROBLEM  push apns      it cannot be reached"}, true,
		},
	} {
		said, err := p.command(append([]string{
			"doctor", "--dev", "--store", "memory:", "--listen", freeAddress(t),
		}, tt.flags...)...)
		if (err != nil) != tt.wrong {
			t.Errorf("%s: it ends with %v", name, err)
		}
		for _, words := range tt.want {
			if !strings.Contains(said, words) {
				t.Errorf("%s: it does not say %q:\n%s", name, words, said)
			}
		}
	}
	if n := len(fakes.apns.Received()) + len(fakes.fcm.Received()); n > 0 {
		t.Errorf("%d notifications were sent", n)
	}
	if left := store.Objects(t, bucket); len(left) > 0 {
		t.Errorf("there is left: %q", left)
	}
}
