package measure

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRedisCommands_are_read_from_what_Redis_answers(t *testing.T) {
	const info = "# Commandstats\r\n" +
		"cmdstat_evalsha:calls=7,usec=30,usec_per_call=4.29,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_client|setname:calls=2,usec=5,usec_per_call=2.50\r\n"
	bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
	text, err := readBulk(bufio.NewReader(strings.NewReader(bulk)))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"redis_calls{evalsha}": 7, "redis_seconds{evalsha}": 30e-6,
		"redis_calls{client|setname}": 2, "redis_seconds{client|setname}": 5e-6,
	}
	if diff := cmp.Diff(want, parseCommands(text)); diff != "" {
		t.Error(diff)
	}
	for _, answer := range []string{
		"", "-NOAUTH Authentication required.\r\n", "$-1\r\n", "$999999999\r\n", "$10\r\nshort",
	} {
		if text, err := readBulk(bufio.NewReader(strings.NewReader(answer))); err == nil {
			t.Errorf("%q: %q, want an error", answer, text)
		}
	}
}
