package tlsfiles

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/percore/percore"
)

// counters count for the whole process.
var counters struct {
	loaded, failed atomic.Uint64 // files that have changed
	full, resumed  atomic.Uint64 // handshakes
}

// opened are the process's Files, for the ends of their certificates.
var opened struct {
	sync.Mutex
	files []weak.Pointer[Files]
}

func init() { percore.RegisterAdapter("tls", metrics) }

// enlist adds f to the Files that metrics reads, until the garbage collector takes it.
func enlist(f *Files) {
	opened.Lock()
	defer opened.Unlock()
	gone := func(p weak.Pointer[Files]) bool { return p.Value() == nil }
	opened.files = append(slices.DeleteFunc(opened.files, gone), weak.Make(f))
}

// firstEnd returns the Unix time at which the first of the certificates ends, or 0 if there is none.
func firstEnd() (end int64) {
	opened.Lock()
	defer opened.Unlock()
	for _, p := range opened.files {
		if f := p.Value(); f != nil {
			if t := notAfter(f.cert.Load()); !t.Equal(time.Time{}) && (end == 0 || t.Unix() < end) {
				end = t.Unix()
			}
		}
	}
	return end
}

// metrics returns what percore.ReadStats shows.
func metrics() []percore.Metric {
	const (
		reloads    = "Changed files of certificates and session ticket keys, by whether they could be used"
		handshakes = "Handshakes that have ended well, by whether the client has resumed a session"
	)
	n := &counters
	return []percore.Metric{
		{Name: "certificate_not_after_timestamp_seconds", Help: "The end of the certificate that ends first; 0 without TLS", Value: float64(firstEnd())},
		{Name: "reloads_total", Help: reloads, Label: "result", Of: "ok", Value: float64(n.loaded.Load())},
		{Name: "reloads_total", Help: reloads, Label: "result", Of: "failed", Value: float64(n.failed.Load())},
		{Name: "handshakes_total", Help: handshakes, Label: "kind", Of: "full", Value: float64(n.full.Load())},
		{Name: "handshakes_total", Help: handshakes, Label: "kind", Of: "resumed", Value: float64(n.resumed.Load())},
	}
}
