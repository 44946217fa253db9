// Command report makes a page with charts of a benchmark's measurements. The page needs no network
// and has no script:
//
//	percore bench -json bench.json
//	go run ./cmd/percore/report bench.json >bench.html
//
// It is a separate program because it needs a library that draws charts. This way percore serve
// compiles without that library.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/page"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(1)
	}
}

// run writes a page for the measurements in the file that args names.
func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("name one file that percore bench -json has written")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var rep bench.Report
	if err := json.Unmarshal(data, &rep); err != nil {
		return fmt.Errorf("%s is not a file of percore bench -json: %w", args[0], err)
	}
	return page.HTML(out, &rep)
}
