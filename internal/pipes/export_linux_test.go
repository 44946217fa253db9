package pipes

import "time"

// These exports are for the tests, which are in another package because testnet imports this one.

// Limits of the pool.
const (
	OpenMax  = openMax
	IdleMax  = idleMax
	Capacity = capacityBytes
)

// A Pool is a pool other than the process's.
type Pool struct{ pool }

// NewPool returns a pool whose timer fires long after the tests are over.
func NewPool() *Pool { return &Pool{pool{pause: time.Hour}} }

// Get gets a pipe from the pool.
func (p *Pool) Get() (*Pipe, error) { return p.get() }

// Put takes a pipe back.
func (p *Pool) Put(q *Pipe) { p.put(q) }

// Drain closes the idle pipes.
func (p *Pool) Drain() { p.drain() }

// Trim is the timer's function.
func (p *Pool) Trim() { p.trim() }

// Count returns how many pipes are open, and how many of them are unused.
func (p *Pool) Count() (open, idle int) { return p.count() }

// Timed reports whether the timer runs.
func (p *Pool) Timed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timed
}
