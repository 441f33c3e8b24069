package transporttest_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// TestResume_lossless_over_random_transports makes TIDEMARK_RESUME_RUNS runs (default 100) with the
// seed TIDEMARK_SEED (default: the time).
func TestResume_lossless_over_random_transports(t *testing.T) {
	transporttest.RunRandomResume(t, number(t, "TIDEMARK_RESUME_RUNS", 100),
		uint64(number(t, "TIDEMARK_SEED", int(time.Now().UnixNano()))))
}

func number(t *testing.T, variable string, otherwise int) int {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is not a number: %v", variable, err)
	}
	return n
}
