package health_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/internal/health"
)

func TestWrites_trouble_of_a_kind_lasts_until_one_of_it_succeeds(t *testing.T) {
	full := tidemark.Errorf(tidemark.Unavailable, "the disk is full")
	bug := tidemark.Errorf(tidemark.Internal, "a bug")
	refused := tidemark.Errorf(tidemark.NotFound, "there is no such chat")
	left := tidemark.Wrap(tidemark.Unavailable, context.Canceled, "the caller left")
	for _, tc := range []struct {
		name  string
		sends []error // the results of the writes of one kind
		acks  []error // then those of another kind
		after time.Duration
		want  bool
	}{
		{"nothing", nil, nil, 0, false},
		{"a failure", []error{full}, nil, 0, true},
		{"a bug", []error{bug}, nil, 0, true},
		{"a failure, and a success", []error{full, nil}, nil, 0, false},
		{"a failure, and a refusal", []error{full, refused}, nil, 0, false},
		{"a failure, and a success of another kind", []error{full}, []error{nil}, 0, true},
		{"a failure, and a caller who left", []error{full, left}, nil, 0, true},
		{"a caller who left", []error{left}, nil, 0, false},
		{"a failure a while ago", []error{full}, nil, 5 * time.Second, true},
		{"a failure long ago", []error{full}, nil, 5*time.Second + 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w health.Writes
				for kind, errs := range map[string][]error{"sends": tc.sends, "acks": tc.acks} {
					for _, err := range errs {
						if got := w.Written(kind, err); got != err {
							t.Errorf("Written(%v) returned %v", err, got)
						}
					}
				}
				err := w.Trouble(time.Now().Add(tc.after))
				if got := tidemark.CodeOf(err) == tidemark.Unavailable; got != tc.want {
					t.Errorf("Trouble says %v, want trouble: %v", err, tc.want)
				}
			})
		})
	}
}
