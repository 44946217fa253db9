package semantics

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A Date renders the time for answers, once per second. It is safe for concurrent use.
type Date struct{ last atomic.Pointer[rendered] }

// rendered is a second since 1970 and its text. It is immutable.
type rendered struct {
	unix int64
	text string
}

// Append appends now in [http.TimeFormat].
func (d *Date) Append(b []byte, now time.Time) []byte { return append(b, d.Text(now)...) }

// Text returns now in [http.TimeFormat].
func (d *Date) Text(now time.Time) string {
	r := d.last.Load()
	if r == nil || r.unix != now.Unix() {
		r = &rendered{unix: now.Unix(), text: now.UTC().Format(http.TimeFormat)}
		d.last.Store(r)
	}
	return r.text
}
