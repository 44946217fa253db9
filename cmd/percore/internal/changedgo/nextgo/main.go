// Nextgo writes an overlay that makes this version of Go do what is known of Go 1.28. Its argument is an
// empty directory. .ci/run next tests with it.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/percore/percore/cmd/percore/internal/changedgo"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nextgo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want an empty directory", len(args))
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	return changedgo.Write(args[0], strings.TrimSpace(string(goroot)), changedgo.Next(), nil)
}
