package transports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/attachments/attachmentstest"
	"github.com/tidemark-im/tidemark/reach/reachtest"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// TestPaths_are_decoded: an escape that a path does not need changes nothing. Clients in JavaScript
// write a colon as %3A.
func TestPaths_are_decoded(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	team(s, t)
	ids := map[string]bool{
		"team": true, "team-2": true, "cid": true, "gone": true, "crm": true, "old": true,
		"1": true, reachtest.ParkedEvent: true, attachmentstest.Picture: true,
	}
	seen := make(map[string]bool)
	requests := good()
	for _, operation := range inOrder(requests) {
		e := requests[operation]
		path, query, asks := strings.Cut(e.path, "?")
		segments := strings.Split(path, "/")
		for i, segment := range segments {
			if ids[segment] {
				segments[i] = fmt.Sprintf("%%%02X%s", segment[0], segment[1:])
				seen[segment] = true
			}
		}
		if e.path = strings.Join(segments, "/"); asks {
			e.path += "?" + query
		}
		e.try(t, s)
	}
	if len(seen) != len(ids) {
		t.Errorf("only the ids %v were in paths", seen)
	}
}
