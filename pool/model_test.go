package pool_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/percore/percore/pool"
)

// FuzzModel runs programs of random operations on buffers and on a model of them,
// and after each operation compares every buffer with its model:
//
//  1. A program is a string of bytes; an operation takes as many as it needs
//     (code, which handle, sizes) and zeros when there are no more.
//  2. The model has memories, plain slices that never share anything, and handles,
//     which are a range of a memory and a number of references. New memory is filled
//     to its capacity. So if the pool hands out memory that is in use, what is
//     written through one handle shows in another that the model says is unrelated.
//  3. At the end all is released, and the counters have to balance.
//
// go test -fuzz FuzzModel -fuzzminimizetime 1x ./pool looks for more; a failing
// program is saved and run again by go test. (What code runs depends on the garbage
// collector too, so trying to find shorter programs that run it is a waste.)
func FuzzModel(f *testing.F) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 4))
		program := make([]byte, 600)
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(runModel)
}

// model is the state of a program: what the pool should be in.
type model struct {
	t       *testing.T
	pool    *pool.Pool
	program []byte
	handles []*handle
	writes  byte // a different byte for each write
	gets    uint64
}

// handle is the model of a Buffer, or of a *[]byte if raw is set.
type handle struct {
	b          *pool.Buffer
	raw        *[]byte
	memory     *memory
	start      int // its first byte in memory
	length     int
	references int
	growable   bool
	isSlice    bool
}

// memory is the model of a piece of memory.
type memory struct{ bytes []byte }

// The limits of a program, which keep it within some milliseconds.
const (
	programBytesMax = 1200
	lengthBitsMax   = 15 // overflow buffers of the model's pool don't keep more at once
)

func runModel(t *testing.T, program []byte) {
	program = program[:min(len(program), programBytesMax)]
	m := &model{t: t, pool: pool.New(pool.Config{KeptBytesMax: 64 << 10}), program: program}
	operations := []func(){
		m.get, m.get, m.growable, m.getBytes, m.retain, m.release, m.release, m.release,
		m.slice, m.write, m.write, m.append, m.setLen, m.grow,
	}
	for len(m.program) > 0 && !t.Failed() {
		operations[m.number(len(operations))]()
		m.check()
	}
	for len(m.handles) > 0 {
		m.releaseHandle(0)
		m.check()
	}
	checkBalanced(t, m.pool)
	if s := m.pool.Stats(); s.Gets != m.gets || s.Foreign != 0 {
		t.Errorf("%d gets and %d foreign slices, want %d and 0", s.Gets, s.Foreign, m.gets)
	}
}

// number takes a number below n from the program.
func (m *model) number(n int) int {
	var raw [2]byte
	m.program = m.program[copy(raw[:], m.program):]
	return int(binary.LittleEndian.Uint16(raw[:])) % n
}

// handle takes a handle from the program, or returns nil if there is none.
func (m *model) handle() *handle {
	if len(m.handles) == 0 {
		return nil
	}
	return m.handles[m.number(len(m.handles))]
}

// length takes a length from the program, of any order of magnitude.
func (m *model) length() int { return m.number(1 << m.number(lengthBitsMax+1)) }

// add adds the handle of a new buffer, after filling its memory.
func (m *model) add(h *handle) {
	h.references = 1
	m.handles = append(m.handles, h)
	m.gets++
	m.fill(h)
}

// fill gives a handle new memory, in which nothing may be anybody else's.
func (m *model) fill(h *handle) {
	full := h.bytes()[:cap(h.bytes())]
	m.writes++
	for k := h.length; k < len(full); k++ {
		full[k] = m.writes
	}
	h.memory = &memory{append([]byte(nil), full...)}
}

func (m *model) get() {
	n := m.length()
	h := &handle{b: m.pool.Get(n)}
	m.add(h)
	h.length = n
}

func (m *model) growable() { m.add(&handle{b: m.pool.Growable(), growable: true}) }

func (m *model) getBytes() {
	n := m.length()
	h := &handle{raw: m.pool.GetBytes(n)}
	m.add(h)
	h.length = n
}

func (m *model) retain() {
	if h := m.handle(); h != nil && h.b != nil {
		h.b.Retain()
		h.references++
	}
}

func (m *model) release() {
	if len(m.handles) > 0 {
		m.releaseHandle(m.number(len(m.handles)))
	}
}

func (m *model) releaseHandle(i int) {
	h := m.handles[i]
	if h.raw != nil {
		m.pool.PutBytes(h.raw)
	} else {
		h.b.Release()
	}
	if h.references--; h.references == 0 {
		m.handles = append(m.handles[:i], m.handles[i+1:]...)
	}
}

func (m *model) slice() {
	h := m.handle()
	if h == nil || h.b == nil {
		return
	}
	i := m.number(h.length + 1)
	j := i + m.number(h.length-i+1)
	m.handles = append(m.handles, &handle{
		b: h.b.Slice(i, j), memory: h.memory, start: h.start + i, length: j - i, references: 1, isSlice: true,
	})
}

// write overwrites part of the bytes in place.
func (m *model) write() {
	h := m.handle()
	if h == nil || h.length == 0 {
		return
	}
	i := m.number(h.length)
	j := i + m.number(h.length-i+1)
	m.writes++
	for k := i; k < j; k++ {
		h.bytes()[k] = m.writes
	}
	h.memory.set(h.start+i, j-i, m.writes)
}

// append writes at the end of a buffer.
func (m *model) append() {
	h := m.handle()
	if h == nil || h.b == nil {
		return
	}
	m.writes++
	chunk := bytes.Repeat([]byte{m.writes}, m.length())
	capacity := h.b.Cap()
	n, err := h.b.Write(chunk)
	want := len(chunk)
	if !h.growable {
		want = min(want, capacity-h.length)
	}
	if n != want || (err != nil) != (want < len(chunk)) {
		m.t.Fatalf("Write of %d bytes to %d of %d: %d, %v, want %d", len(chunk), h.length, capacity, n, err, want)
	}
	if moved := h.length+n > capacity; moved {
		old := h.memory.bytes[:h.length]
		h.length += n
		m.fill(h)
		copy(h.memory.bytes, old)
		copy(h.memory.bytes[len(old):], chunk)
		return
	}
	h.memory.set(h.start+h.length, n, m.writes)
	h.length += n
}

func (m *model) grow() {
	h := m.handle()
	if h == nil || !h.growable {
		return
	}
	capacity, n := h.b.Cap(), m.length()
	h.b.Grow(n)
	if moved := h.length+n > capacity; moved {
		old := h.memory.bytes[:h.length]
		m.fill(h)
		copy(h.memory.bytes, old)
	}
}

func (m *model) setLen() {
	h := m.handle()
	switch {
	case h == nil:
	case h.raw != nil:
		h.length = m.number(cap(*h.raw) + 1)
		*h.raw = (*h.raw)[:h.length]
	default:
		h.length = m.number(h.b.Cap() + 1)
		h.b.SetLen(h.length)
	}
}

func (h *handle) bytes() []byte {
	if h.raw != nil {
		return *h.raw
	}
	return h.b.Bytes()
}

func (m *memory) set(start, n int, value byte) {
	for k := start; k < start+n; k++ {
		m.bytes[k] = value
	}
}

// check compares all handles with the model, and the counters.
func (m *model) check() {
	inUse := 0
	for i, h := range m.handles {
		if got, want := h.bytes(), h.memory.bytes[h.start:h.start+h.length]; !bytes.Equal(got, want) {
			m.t.Logf("handle %d: slice %v, growable %v, raw %v", i, h.isSlice, h.growable, h.raw != nil)
			checkBytes(m.t, "bytes of a handle", got, want)
		}
		if !h.isSlice {
			inUse++
		}
	}
	// Buffers of which only slices are left are in use too, so this is a lower bound.
	if s := m.pool.Stats(); s.BuffersInUse < inUse || s.BytesKept > s.BytesKeptMax {
		m.t.Errorf("%d buffers in use, want at least %d; %d bytes kept, want at most %d",
			s.BuffersInUse, inUse, s.BytesKept, s.BytesKeptMax)
	}
	m.checkDisjoint()
}

// checkDisjoint checks that handles of different memories have different memory.
func (m *model) checkDisjoint() {
	owners := make(map[*byte]*memory)
	for i, h := range m.handles {
		full := h.bytes()[:cap(h.bytes())]
		if len(full) == 0 {
			continue
		}
		// Slices of the same memory may begin anywhere in it; whole ones at its start.
		first := (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(full)), -h.start))
		if owner := owners[first]; owner != nil && owner != h.memory {
			m.t.Errorf("handle %d has the memory of another one", i)
		}
		owners[first] = h.memory
	}
}
