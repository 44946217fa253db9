package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/percore/percore/cmd/percore/internal/bench/page"
)

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

// picture draws the ratios of CPU time that the tables of a section have. The section must have compared
// percore with net.
func picture(w io.Writer, results, section string) error {
	_, tables, ok := strings.Cut(results, "==== "+section+"\n")
	if !ok {
		return fmt.Errorf("there is no section %q", section)
	}
	tables, _, _ = strings.Cut(tables, "\n==== ")
	if !strings.Contains(tables, "percore+fastpath / net\n") {
		return fmt.Errorf("the section %s does not compare percore+fastpath with net", section)
	}
	var bars []page.Bar
	for _, p := range pictured {
		_, table, ok := strings.Cut(tables, "\n"+p.scenario+"\n")
		match := cpuRatio.FindStringSubmatch(table)
		if !ok || match == nil {
			return fmt.Errorf("the section %s has no table of %s", section, p.scenario)
		}
		ratio, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			return err
		}
		bars = append(bars, page.Bar{Name: p.name, Value: ratio})
	}
	return page.SVG(w, "CPU time per request, percore ÷ net, 64 connections", bars)
}
