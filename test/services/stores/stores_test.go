package stores

import (
	"fmt"
	"strings"
	"testing"
)

// told is a test that says what it would fail with.
type told struct{ testing.TB }

func (t told) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func TestOpen_an_unknown_store_fails(t *testing.T) {
	t.Setenv(Variable, "mongodb")
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, `"mongodb"`) || !strings.Contains(said, Variable) {
			t.Errorf("got %q, want the variable and its value", said)
		}
	}()
	Open(told{t})
}
