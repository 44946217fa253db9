package semantics

import (
	"net/http"
	"sync/atomic"
	"time"
)

// Date returns the time in [http.TimeFormat], for the field of answers. It renders each second once, for
// all servers of the process.
func Date() string { return rendered.text(time.Now()) }

var rendered dates

// dates has the last second that was rendered. It is safe for concurrent use.
type dates struct{ last atomic.Pointer[date] }

// date is a second since 1970 and its text. It is immutable.
type date struct {
	unix int64
	text string
}

func (d *dates) text(now time.Time) string {
	last := d.last.Load()
	if last == nil || last.unix != now.Unix() {
		last = &date{unix: now.Unix(), text: now.UTC().Format(http.TimeFormat)}
		d.last.Store(last)
	}
	return last.text
}
