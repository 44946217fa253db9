// Package drain has the functions that a program registers with a server, to be called when the
// server tells its clients to go elsewhere.
package drain

import "sync"

// Hooks are functions that are called once, each on a goroutine of its own. The zero value has none. All
// methods are safe for concurrent use.
type Hooks struct {
	mu sync.Mutex

	// guarded by mu
	waiting []func()
	called  bool
}

// Add adds a function, or calls it if Call was called.
func (h *Hooks) Add(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.called {
		go f()
	} else {
		h.waiting = append(h.waiting, f)
	}
}

// Call calls the functions, and those that are added later. Further calls have no effect.
func (h *Hooks) Call() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.waiting {
		go f()
	}
	h.waiting, h.called = nil, true
}
