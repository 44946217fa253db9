package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// bareClass is the bare slices of one capacity. They are apart from the buffers of
// Get: a *[]byte doesn't lead to a record, so that these are counted all together.
type bareClass struct {
	cache sync.Pool // *[]byte

	_         [64]byte // the counters are written by all processors, the above by each its own part
	misses    atomic.Int64
	gets      atomic.Int64
	collected atomic.Int64 // of misses: those that the collector has taken
	_         [64]byte
	puts      atomic.Int64
	_         [64]byte

	lost int64 // guarded by roster.mu; see addToLocked
}

// GetBytes is Default().GetBytes(n).
func GetBytes(n int) *[]byte { return shared.GetBytes(n) }

// PutBytes is Default().PutBytes(bytes).
func PutBytes(bytes *[]byte) { shared.PutBytes(bytes) }

// GetBytes returns n bytes, of the capacities that Get has, which are the caller's until PutBytes.
func (p *Pool) GetBytes(n int) *[]byte {
	class := classOf(n)
	if class == oversize {
		b := make([]byte, n)
		return &b
	}
	c := &p.bare[class]
	b, hit := c.cache.Get().(*[]byte)
	if !hit {
		b = new([]byte)
		*b = make([]byte, classBytesMin<<class)
		c.misses.Add(1)
		runtime.AddCleanup(b, func(c *bareClass) { c.collected.Add(1) }, c)
	}
	c.gets.Add(1)
	noteLent(b)
	*b = (*b)[:n]
	checkUntouched(*b, hit)
	return b
}

// PutBytes takes back a slice of GetBytes. One of another capacity than GetBytes's can't be one of
// them, and is left to the collector.
func (p *Pool) PutBytes(bytes *[]byte) {
	n := cap(*bytes)
	class := classOf(n)
	switch {
	case class == oversize:
		return
	case n != classBytesMin<<class:
		p.foreign.Add(1)
		return
	}
	notePut(bytes)
	poison(*bytes)
	c := &p.bare[class]
	c.puts.Add(1)
	c.cache.Put(bytes)
}

// addToLocked adds to s the counts of the class of the given capacity. The bytes that are out
// can't be more than exists: where it seems to be, as many were lost. So the counts are right
// as soon as the collector has taken the lost and the kept buffers. They are read in this
// order so that nothing seems lost that isn't.
func (c *bareClass) addToLocked(s *Stats, bytes int) {
	collected := c.collected.Load()
	gets := c.gets.Load()
	out := gets - c.puts.Load() - c.lost
	misses := c.misses.Load()
	if exist := misses - collected; out > exist {
		c.lost += out - exist
		out = exist
	}
	out = max(out, 0) // callers have put slices that they didn't get
	s.Gets += uint64(gets)
	s.Misses += uint64(misses)
	s.Leaked += uint64(c.lost)
	s.BuffersInUse += int(out)
	s.BytesInUse += out * int64(bytes)
}
