// Command report draws the README's picture, of a section's tables in a file of results:
//
//	go run ./cmd/percore/report 2026-11-29-amd-readme cmd/percore/results/amd-epyc.txt >docs/cpu.svg
package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/template"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: report SECTION FILE")
		os.Exit(2)
	}
	if err := draw(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// pictured are the scenarios of the README's picture.
var pictured = []struct{ scenario, name string }{
	{"http/keepalive/conns=64", "HTTP/1.1"},
	{"https/keepalive/conns=64", "HTTP/1.1 over TLS"},
	{"h2/keepalive/conns=64/streams=1", "HTTP/2 over TLS"},
	{"grpc/unary/128B/conns=64/callers=64", "grpc.Server"},
	{"client/http/calls=64", "http.Client"},
	{"proxy/client/conns=64", "ReverseProxy"},
	{"client/grpc/128B/conns=64/calls=64", "gRPC client"},
}

// cpuRatio finds the ratio of the CPU times in a line of a table with two arms.
var cpuRatio = regexp.MustCompile(`(?m)^  cpu/op .* ([0-9]+\.[0-9]+) \[`)

// draw draws the ratios of CPU time that the tables of a section have. The section must have compared
// percore with net.
func draw(w io.Writer, section, file string) error {
	results, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, tables, ok := strings.Cut(string(results), "==== "+section+"\n")
	if !ok {
		return fmt.Errorf("there is no section %q", section)
	}
	tables, _, _ = strings.Cut(tables, "\n==== ")
	if !strings.Contains(tables, "percore+fastpath / net\n") {
		return fmt.Errorf("the section %s does not compare percore+fastpath with net", section)
	}
	type bar struct {
		Name, Ratio string
		Y, Length   int
	}
	var bars []bar
	for i, p := range pictured {
		_, table, ok := strings.Cut(tables, "\n"+p.scenario+"\n")
		match := cpuRatio.FindStringSubmatch(table)
		if !ok || match == nil {
			return fmt.Errorf("the section %s has no table of %s", section, p.scenario)
		}
		ratio, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			return err
		}
		bars = append(bars, bar{p.name, fmt.Sprintf("%.2f", ratio), 34 + 26*i, int(560 * ratio)})
	}
	return svg.Execute(w, bars)
}

// svg is a picture of bars that needs nothing but the file itself, and has the colors of the reader's
// mode, light or dark. A ratio of 1 is 560 long.
var svg = template.Must(template.New("").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="768" height="246" viewBox="0 0 768 246">
<style>
:root{--ink:#24292f;--grid:#d8dee4;--bar:#0072b2}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--grid:#3d444d;--bar:#56b4e9}}
text{font:13px Arial,Helvetica,sans-serif;fill:var(--ink)}rect{fill:var(--bar)}path{stroke:var(--grid)}
</style>
<text x="384" y="18" text-anchor="middle" style="font-size:16px">CPU time per request, percore ÷ net, 64 connections</text>
<path d="M140,28V220M420,28V220"/><path d="M700,28V220" style="stroke:var(--ink)"/>
{{range .}}<text x="132" y="{{.Y}}" dy="15" text-anchor="end">{{.Name}}</text>
<rect x="140" y="{{.Y}}" width="{{.Length}}" height="19"/>
<text x="{{.Length}}" y="{{.Y}}" dx="146" dy="15">{{.Ratio}}</text>
{{end}}<text x="140" y="238" text-anchor="middle">0</text>
<text x="420" y="238" text-anchor="middle">0.5</text>
<text x="700" y="238" text-anchor="middle">net = 1</text>
</svg>
`))
