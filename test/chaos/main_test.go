package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/test/chaos/cluster"
)

// Variables that name the program, once it is built, and its directory.
const (
	binaryVariable = "CHAOS_BINARY"
	dirVariable    = "CHAOS_DIR"
)

// TestMain builds the program. If possible, it goes on in a network namespace of its own, where it
// can drop packets without an effect on the machine.
func TestMain(m *testing.M) { os.Exit(inNetwork(m)) }

func inNetwork(m *testing.M) int {
	if cluster.Isolated() {
		defer func() { _ = os.RemoveAll(os.Getenv(dirVariable)) }()
		if err := cluster.Prepare(); err != nil {
			fmt.Println("chaos:", err)
			return 1
		}
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "tidemark-chaos-")
	if err != nil {
		fmt.Println("chaos:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "tidemark")
	if given := os.Getenv(binaryVariable); given != "" { // a binary to examine
		binary = given
	} else if out, err := exec.Command("go", "build", "-o", binary,
		"github.com/tidemark-im/tidemark/cmd/tidemark").CombinedOutput(); err != nil {
		fmt.Printf("chaos: go build: %v\n%s", err, out)
		return 1
	}
	err = errors.Join(os.Setenv(binaryVariable, binary), os.Setenv(dirVariable, dir))
	if err != nil {
		fmt.Println("chaos:", err)
		return 1
	}
	if direct() { // The network namespaces lead to services only, and not to other nodes.
		return m.Run()
	}
	fmt.Printf("chaos: NO NETWORK NAMESPACES HERE (%v): partitions are made by toxiproxy, which "+
		"cuts streams and loses no packets; run this as root\n", cluster.Enter())
	return m.Run()
}
