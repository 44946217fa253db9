// Command report makes a page with charts of a benchmark's measurements. The page needs no network
// and has no script:
//
//	percore bench -json bench.json
//	go run ./cmd/percore/report bench.json >bench.html
//
// It also draws the README's picture, of tables that results has:
//
//	go run ./cmd/percore/report -picture 2026-11-29-amd-readme cmd/percore/results/amd-epyc.txt >docs/cpu.svg
//
// It is a separate program because it needs a library that draws charts. This way percore serve
// compiles without that library.
package main

import (
	"encoding/json"
	"errors"
	"flag"
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

// run writes a page for the measurements in the file that args names, or the picture of its tables.
func run(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	section := fs.String("picture", "", "draw the README's picture of the tables with this `title` in a file of results")
	if err := fs.Parse(args); err != nil {
		return err
	}
	args = fs.Args()
	if len(args) != 1 {
		return errors.New("name one file that percore bench -json has written, or with -picture one of results")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	if *section != "" {
		return picture(out, string(data), *section)
	}
	var rep bench.Report
	if err := json.Unmarshal(data, &rep); err != nil {
		return fmt.Errorf("%s is not a file of percore bench -json: %w", args[0], err)
	}
	return page.HTML(out, &rep)
}
