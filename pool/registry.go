package pool

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"weak"
)

// record is what the pool knows of one buffer. It is apart from the buffer, and
// has no strong pointer to it or its memory, so that the registry can list all
// buffers without keeping them alive, and has the counts when one is gone.
//
// The state word has two fields. It is in the buffer's record, rather than in
// counters of the pool, because this cache line moves to the P that uses the
// buffer anyway: counting here is never contended, and costs Get one operation
// that also sets the reference count.
//
//	bits   field       who changes it
//	0–31   references  Get: 0 → 1; Retain, Slice: n → n+1, n ≥ 1; Release: n → n-1, n ≥ 1
//	32–63  gets        Get: +1; foldGets, when bit 63 gets set: -2^31
type record struct {
	// Atomic.
	state atomic.Uint64
	bytes atomic.Int64 // capacity; changed only for growable buffers, by their user

	// Immutable.
	class    *class
	address  uintptr // of the memory, or of what stands for it
	resident bool    // its share of class.resident is taken for good

	// Guarded by class.mu.
	deregistered bool

	// Owned by the one who holds the buffer.
	raw     bool // handed out by GetBytes
	handle  weak.Pointer[Buffer]
	lenPeak int // growable: the most bytes it held in this use

	_ [64 - 56]byte // a line of its own
}

const (
	oneReference = 1
	oneGet       = 1 << 32
	foldAt       = 1 << 63 // half the range of gets: room for 2^31 more while folding
)

func (r *record) references() uint32 { return uint32(r.state.Load()) }

// registry lists the records of a class, by address.
type registry struct {
	// slots is an open-addressed hash table with linear probing. It is changed
	// under mu and read without. A removed record is replaced by &removed, so that
	// probing goes on past it; one slot at least is nil, so that probing ends.
	slots atomic.Pointer[[]recordSlot]

	mu struct {
		sync.Mutex
		used   int    // slots that aren't nil
		live   int    // records registered
		misses uint64 // records ever registered
		gets   uint64 // of records deregistered or folded
		leaked uint64 // records deregistered with references
	}
}

type recordSlot = atomic.Pointer[record]

// removed is no record: no memory has address 0.
var removed record

// slotsMin is the length of the first table.
const slotsMin = 16

// find returns the record registered for an address, or nil. It takes no lock, so
// it may find one that is being deregistered.
func (r *registry) find(address uintptr) *record {
	slots := r.slots.Load()
	if slots == nil || address == 0 {
		return nil
	}
	for i := slotIndex(address, len(*slots)); ; i = (i + 1) & (len(*slots) - 1) {
		rec := (*slots)[i].Load()
		if rec == nil || rec.address == address {
			return rec
		}
	}
}

// slotIndex returns where probing starts in a table of n slots, a power of two.
// Multiplying by 2^64/φ spreads addresses, whose low bits are all zero (Knuth,
// TAOCP 6.4); the high bits are the good ones.
func slotIndex(address uintptr, n int) int {
	return int(uint64(address) * 0x9E3779B97F4A7C15 >> (65 - bits.Len(uint(n))))
}

// register adds a record.
func (r *registry) register(rec *record) {
	// The memory at this address is new. A record of earlier memory is one whose
	// cleanup hasn't run yet; from now on find would stumble over it.
	if old := r.find(rec.address); old != nil {
		old.collected()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.growLocked()
	insert(*r.slots.Load(), rec)
	r.mu.used++
	r.mu.live++
	r.mu.misses++
}

// deregisterLocked removes a record and keeps its counts. It reports false if
// that was done before.
func (r *registry) deregisterLocked(rec *record) bool {
	if rec.deregistered {
		return false
	}
	rec.deregistered = true
	r.slotOfLocked(rec).Store(&removed)
	r.mu.live--
	state := rec.state.Load()
	r.mu.gets += state / oneGet
	if uint32(state) > 0 {
		r.mu.leaked++
	}
	return true
}

// slotOfLocked returns the slot of a record that is registered.
func (r *registry) slotOfLocked(rec *record) *recordSlot {
	slots := *r.slots.Load()
	i := slotIndex(rec.address, len(slots))
	for slots[i].Load() != rec {
		i = (i + 1) & (len(slots) - 1)
	}
	return &slots[i]
}

// growLocked makes sure that a quarter of the slots is nil after the next insert,
// by copying the records to a table at least twice as long as needed. Whoever
// still reads the old one finds there what was registered before.
func (r *registry) growLocked() {
	old := r.slots.Load()
	if old != nil && (r.mu.used+1)*4 <= len(*old)*3 {
		return
	}
	slots := make([]recordSlot, max(slotsMin, 1<<bits.Len(uint(2*r.mu.live))))
	r.eachLocked(func(rec *record) { insert(slots, rec) })
	// Published only when complete: find doesn't wait.
	r.slots.Store(&slots)
	r.mu.used = r.mu.live
}

// insert puts a record into the first free slot.
func insert(slots []recordSlot, rec *record) {
	i := slotIndex(rec.address, len(slots))
	for slots[i].Load() != nil {
		i = (i + 1) & (len(slots) - 1)
	}
	slots[i].Store(rec)
}

// eachLocked calls visit for every record.
func (r *registry) eachLocked(visit func(*record)) {
	slots := r.slots.Load()
	if slots == nil {
		return
	}
	for i := range *slots {
		if rec := (*slots)[i].Load(); rec != nil && rec != &removed {
			visit(rec)
		}
	}
}
