package stores

import (
	"fmt"
	"strings"
	"testing"
)

// panicking is a test whose Fatalf panics with the message.
type panicking struct{ testing.TB }

func (t panicking) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func TestOpen_an_unknown_store_fails(t *testing.T) {
	t.Setenv(Variable, "mongodb")
	defer func() {
		said := fmt.Sprint(recover())
		if !strings.Contains(said, `"mongodb"`) || !strings.Contains(said, Variable) {
			t.Errorf("got %q, want the variable and its value", said)
		}
	}()
	Open(panicking{t})
}
