package pipes

import "time"

// For the tests, which are outside of the package since testnet drains its pool.

// Limits of the pool.
const (
	OpenMax  = openMax
	IdleMax  = idleMax
	Capacity = capacityBytes
)

// A Pool is a pool other than that of the process.
type Pool struct{ pool }

// NewPool returns a pool whose timer goes off when the tests are long over.
func NewPool() *Pool { return &Pool{pool{pause: time.Hour}} }

// Get lends a pipe.
func (p *Pool) Get() (*Pipe, error) { return p.get() }

// Put takes a pipe back.
func (p *Pool) Put(q *Pipe) { p.put(q) }

// Drain closes the idle pipes.
func (p *Pool) Drain() { p.drain() }

// Trim is the timer's function.
func (p *Pool) Trim() { p.trim() }

// Count returns how many pipes are open, and how many of these are unused.
func (p *Pool) Count() (open, idle int) { return p.count() }

// Timed reports whether the timer runs.
func (p *Pool) Timed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timed
}
