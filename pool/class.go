package pool

import (
	"runtime"
	"sync"
)

// class holds the buffers of one capacity, or those of one kind that has none in
// common.
//
//	          bytes            resident    overflow
//	2^10..20  the capacity     p.resident  p.overflow
//	oversize  0, it varies     p.nothing   p.nothing   never kept
//	growable  what one of      p.growable  p.nothing   keeps headers; the bytes
//	          them may keep                            are in p.growings
type class struct {
	// Immutable after init.
	pool     *Pool
	bytes    int
	resident *budget
	overflow *budget

	// cache holds *Buffer that nobody references. It is safe for concurrent use.
	cache sync.Pool

	_ [64]byte // what follows is written on every miss, the above hardly ever

	registry
}

func (c *class) init(p *Pool, bytes int, resident, overflow *budget) {
	c.pool, c.bytes, c.resident, c.overflow = p, bytes, resident, overflow
}

// allocate makes a buffer of the given capacity. No one references it yet.
func (c *class) allocate(capacity int) *Buffer {
	data := make([]byte, capacity)
	rec := c.newRecord(addressOf(data), capacity)
	b := &Buffer{view: data, refs: &rec.state, home: rec, anchor: &data[0]}
	// On the memory and not on the header: whoever still holds the bytes, rightly or
	// not, keeps them from being counted as gone.
	runtime.AddCleanup(&data[0], (*record).collected, rec)
	return b
}

// newRecord registers a buffer about to be made, as a resident if there is room.
func (c *class) newRecord(address uintptr, capacity int) *record {
	rec := &record{class: c, address: address}
	rec.bytes.Store(int64(capacity))
	// Asked for before it is registered and returned after it is deregistered: the
	// registered residents never add up to more than their budget.
	rec.resident = c.bytes > 0 && c.resident.take(c.bytes)
	c.register(rec)
	return rec
}

// put takes back a buffer that has lost its last reference.
func (c *class) put(b *Buffer) {
	b = b.retire()
	if !b.home.resident && !c.overflow.take(max(c.bytes, 1)) { // p.nothing grants no byte
		c.drop(b.home)
		// Until here, or its cleanup might run first, take it for one that was kept,
		// and give back a share that it never got.
		runtime.KeepAlive(b)
		return
	}
	// The share is taken before another P can find the buffer and return it.
	c.cache.Put(b)
}

// drop forgets a buffer that may not be kept and leaves it to the collector.
func (c *class) drop(rec *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deregisterLocked(rec)
}

// collected is the cleanup of a buffer's memory: no one can reach it any more.
// Either it was waiting in the cache and sync.Pool let go of it, or its user lost
// it, or it was dropped and there is nothing left to do.
func (r *record) collected() {
	c := r.class
	c.mu.Lock()
	defer c.mu.Unlock() // to the end: whoever counts finds the share given back, too
	if !c.deregisterLocked(r) {
		return
	}
	switch {
	case r.resident:
		c.resident.give(c.bytes)
	case r.references() == 0: // so it was put, and took its share
		c.overflow.give(c.bytes)
	}
}

// foldGets moves part of a record's count of gets, which has reached half of its
// range, to its class, where there is room.
func (c *class) foldGets(rec *record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec.state.And(^uint64(foldAt))
	c.mu.gets += foldAt / oneGet
}
