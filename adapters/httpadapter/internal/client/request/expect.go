package request

import (
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// Asking lets a body wait until the server wants it, for a request with Expect. The zero value doesn't
// wait.
type Asking struct {
	answer  chan bool     // whether the body is sent; nil: it is
	timeout time.Duration // what the server may take to say so

	told atomic.Bool // answer has it
}

// Ask makes the body wait.
func (a *Asking) Ask(timeout time.Duration) {
	a.answer, a.timeout = make(chan bool, 1), timeout
}

// Await waits until the server has decided, or the timeout has passed. It reports whether to send the
// body.
func (a *Asking) Await(trace *httptrace.ClientTrace) bool {
	if a.answer == nil {
		return true
	}
	if trace != nil && trace.Wait100Continue != nil {
		trace.Wait100Continue()
	}
	timer := time.NewTimer(a.timeout)
	defer timer.Stop()
	select {
	case sends := <-a.answer:
		return sends
	case <-timer.C:
		return true
	}
}

// IsOpen reports whether the server was asked, and has not said yet whether it wants the body.
func (a *Asking) IsOpen() bool {
	return a.answer != nil && !a.told.Load()
}

// Proceed tells Await whether to send the body. Only the first call counts.
func (a *Asking) Proceed(sends bool) {
	if a.answer != nil && !a.told.Swap(true) {
		a.answer <- sends
	}
}
