package request

import (
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// Asking is what a request with Expect waits for before its body is sent. The zero value doesn't wait.
type Asking struct {
	answer  chan bool     // whether the body is sent; nil: it is
	timeout time.Duration // what the server may take to say so

	told atomic.Bool // answer has it
}

// Ask makes the body wait.
func (a *Asking) Ask(timeout time.Duration) {
	a.answer, a.timeout = make(chan bool, 1), timeout
}

// Await waits until the server wants the body, or says nothing for the timeout. It reports false if the
// body must not be sent.
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

// Proceed says, once, whether the body is sent, if the server was asked.
func (a *Asking) Proceed(sends bool) {
	if a.answer != nil && !a.told.Swap(true) {
		a.answer <- sends
	}
}
