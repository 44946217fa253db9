package percore_test

import (
	"expvar"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/percore/percore"
)

// A listener's metrics, and those of the process.
func ExampleReadStats() {
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	stats := percore.ReadStats()
	for _, l := range stats.Listeners {
		fmt.Println(l.Network, "has", l.Conns, "connections of", l.Accepted)
	}
	for _, g := range stats.Loops.Groups {
		for _, l := range g.PerLoop {
			_, _ = fmt.Fprintln(io.Discard, "loop", l.Loop, "has", l.Descriptors, "descriptors and", l.Events, "events")
		}
	}
}

// Package expvar shows the metrics at /debug/vars.
func ExampleReadStats_expvar() {
	expvar.Publish("percore", expvar.Func(func() any { return percore.ReadStats() }))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go http.Serve(ln, nil) // expvar has registered with the default ServeMux
	defer ln.Close()
	resp, err := http.Get("http://" + ln.Addr().String() + "/debug/vars")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(strings.Contains(string(body), `"percore": {"Conns":`), err)
	// Output: true <nil>
}
