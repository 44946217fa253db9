package client

import (
	"net/http/httptrace"
	"sync"
	"time"
)

// asking is what a request with Expect waits for before its body is sent. The zero value doesn't wait.
type asking struct {
	answer  chan bool     // whether the body is sent; nil: it is
	timeout time.Duration // what the server may take to say so

	mu   sync.Mutex
	told bool // guarded by mu: answer has it
}

// ask makes the body wait.
func (a *asking) ask(timeout time.Duration) {
	a.answer, a.timeout = make(chan bool, 1), timeout
}

// await waits until the server wants the body, or says nothing for the timeout. It reports false if the
// body must not be sent.
func (a *asking) await(trace *httptrace.ClientTrace) bool {
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

// isOpen reports whether the server was asked, and has not said yet whether it wants the body.
func (a *asking) isOpen() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answer != nil && !a.told
}

// proceed says, once, whether the body is sent, if the server was asked.
func (a *asking) proceed(sends bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answer != nil && !a.told {
		a.told = true
		a.answer <- sends
	}
}

// headerTimeout is a ResponseHeaderTimeout that begins when a body is sent.
type headerTimeout struct {
	after time.Duration // 0: none

	mu       sync.Mutex
	answered bool // guarded by mu: the answer's header has come
}

// start makes the caller wait for the answer no longer than the timeout.
func (h *headerTimeout) start(from link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.after > 0 && !h.answered {
		_ = from.SetReadDeadline(time.Now().Add(h.after))
	}
}

// setAnswered says that the answer's header has come. A deadline that was set stays.
func (h *headerTimeout) setAnswered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answered = true
}
