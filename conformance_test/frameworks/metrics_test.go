package frameworks

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/percore/percore"
)

// http2Metrics returns the metrics of HTTP/2 that tell of clients that went too far.
func http2Metrics() string {
	var b strings.Builder
	for _, a := range percore.ReadStats().Adapters {
		if a.Adapter != "http2" {
			continue
		}
		for _, f := range a.Metrics {
			fmt.Fprintf(&b, "%s=%v ", f.Name, f.Value)
		}
	}
	return b.String()
}

// endedByServer returns how many connections the server has ended because the client broke the
// protocol or exceeded a limit, from the text of http2Metrics.
func endedByServer(metrics string) (n float64) {
	for _, metric := range strings.Fields(metrics) {
		name, value, _ := strings.Cut(metric, "=")
		if name == "breaches_total" || name == "attacks_total" {
			v, _ := strconv.ParseFloat(value, 64)
			n += v
		}
	}
	return n
}
