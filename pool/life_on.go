//go:build invariants

package pool

import (
	"bytes"
	"runtime"
	"sync"
	"weak"
)

const (
	// poisonByte fills released memory: an address made of it is not canonical, a
	// length absurd, a character no UTF-8.
	poisonByte = 0xCC

	// eventsMax is how many events a life remembers besides the acquire: enough for
	// the last steps of a buffer that went through many hands.
	eventsMax = 32

	// stackMax is the depth of the stacks: a handler under net/http or gRPC is some
	// 15 frames deep.
	stackMax = 32
)

var poisonPage = bytes.Repeat([]byte{poisonByte}, 4096)

// life is the time of a header from acquire to the last release. In a checking
// build a header lives only once (see retire), so that whoever still holds it
// afterwards is found out even when its memory is in use again.
type life struct {
	ended []Event // immutable: the events of the previous life of the memory, if any

	mu struct {
		sync.Mutex
		references int
		bytes      int64
		events     []Event // the acquire, then the latest others
	}
}

type lifeRef = *life

// lives are the headers in use of a pool.
type lives struct {
	mu struct {
		sync.Mutex
		all map[*life]struct{}
	}
}

// begin starts the life of a header that has got its first reference.
func (b *Buffer) begin(op string) {
	if b.life == nil {
		b.life = new(life)
	}
	l := b.life
	if l.ended != nil && b.root == nil && b.grow == nil && !isPoison(b.view[:cap(b.view)]) {
		panic("pool: memory was written to after its release; its last use was:" + describe(l.ended))
	}
	l.mu.Lock()
	l.mu.references = 1
	l.mu.bytes = int64(cap(b.view))
	l.mu.events = []Event{newEvent(op)}
	l.mu.Unlock()

	lives := &b.home.class.pool.lives
	lives.mu.Lock()
	defer lives.mu.Unlock()
	if lives.mu.all == nil {
		lives.mu.all = make(map[*life]struct{})
	}
	lives.mu.all[l] = struct{}{}
}

// mustLive panics if the buffer has no reference.
func (b *Buffer) mustLive(op string) {
	b.life.mu.Lock()
	defer b.life.mu.Unlock()
	b.life.mustLiveLocked(op)
}

func (l *life) mustLiveLocked(op string) {
	if l.mu.references == 0 {
		panic("pool: " + op + " of a released buffer:" + describe(l.mu.events))
	}
}

// retained notes one more reference.
func (b *Buffer) retained(op string) {
	l := b.life
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mustLiveLocked(op)
	l.mu.references++
	l.noteLocked(op)
}

// released notes one reference less, and the end with the last one.
func (b *Buffer) released(op string) {
	l := b.life
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mustLiveLocked(op)
	l.mu.references--
	l.noteLocked(op)
	if l.mu.references > 0 {
		return
	}
	lives := &b.home.class.pool.lives
	lives.mu.Lock()
	defer lives.mu.Unlock()
	delete(lives.mu.all, l)
}

// noteLocked appends an event, at the expense of the oldest but the acquire.
func (l *life) noteLocked(op string) {
	if len(l.mu.events) > eventsMax {
		l.mu.events = append(l.mu.events[:1], l.mu.events[2:]...)
	}
	l.mu.events = append(l.mu.events, newEvent(op))
}

// newEvent records the stack from the caller of this package's function on.
func newEvent(op string) Event {
	pcs := make([]uintptr, stackMax)
	n := runtime.Callers(3, pcs) // without Callers, newEvent and the one that notes
	return Event{Op: op, Stack: pcs[:n]}
}

// retire poisons the memory of a header that has lost its last reference and
// returns another header for it. The old one is never used again.
func (b *Buffer) retire() *Buffer {
	next := &Buffer{view: b.view, home: b.home, anchor: b.anchor}
	next.refs = &next.own // a slice's
	if b.home != nil {
		next.refs = &b.home.state
		if b.home.handle != (weak.Pointer[Buffer]{}) {
			b.home.handle = weak.Make(next) // a second PutBytes must find something to panic on
		}
	}
	b.life.mu.Lock()
	next.life = &life{ended: b.life.mu.events}
	b.life.mu.Unlock()
	poison(b.view)
	return next
}

// poison fills the memory of s, up to its capacity.
func poison(s []byte) {
	s = s[:cap(s)]
	for len(s) > 0 {
		s = s[copy(s, poisonPage):]
	}
}

// isPoison reports whether s holds nothing else.
func isPoison(s []byte) bool {
	for len(s) > len(poisonPage) {
		if !bytes.Equal(s[:len(poisonPage)], poisonPage) {
			return false
		}
		s = s[len(poisonPage):]
	}
	return bytes.Equal(s, poisonPage[:len(s)])
}

// checkPoisonGrowing panics if what bytebufferpool returned was written to in the
// meantime. It may also be new, and then it is all zero.
func checkPoisonGrowing(s []byte) {
	s = s[:cap(s)]
	if !isPoison(s) && len(bytes.Trim(s, "\x00")) > 0 {
		panic("pool: the memory of a growable buffer was written to after its release")
	}
}

// leaks lists the headers in use.
func (p *Pool) leaks() []Leak {
	p.lives.mu.Lock()
	all := make([]*life, 0, len(p.lives.mu.all))
	for l := range p.lives.mu.all {
		all = append(all, l)
	}
	p.lives.mu.Unlock()

	// Apart, because released locks in the other order.
	var leaks []Leak
	for _, l := range all {
		l.mu.Lock()
		if l.mu.references > 0 {
			leaks = append(leaks, Leak{Bytes: l.mu.bytes, References: l.mu.references, Events: append([]Event(nil), l.mu.events...)})
		}
		l.mu.Unlock()
	}
	return leaks
}
