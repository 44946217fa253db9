//go:build !linux || percore_net

package reactor

import (
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
)

// onGoroutines says that percore has no loops.
const onGoroutines = true

// engine has the loops of a server. Here the server has its own, one per processor, which get
// connections in turn.
type engine struct {
	mu    sync.Mutex
	loops []*serial // guarded by mu
	next  int       // guarded by mu
}

func (e *engine) newSock(pc *percore.Conn) (sock, engineLoop, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loops == nil {
		for range runtime.GOMAXPROCS(0) {
			e.loops = append(e.loops, new(serial))
		}
	}
	e.next = (e.next + 1) % len(e.loops)
	s := sock{conn: pc, ahead: &ahead{
		readOn: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}}
	return s, e.loops[e.next], nil
}

type engineLoop = *serial

// serial runs functions one at a time, on a goroutine that lives as long as there are any.
type serial struct {
	mu      sync.Mutex
	queue   []func() // guarded by mu
	running bool     // guarded by mu
}

func (s *serial) Submit(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, f)
	if !s.running {
		s.running = true
		go s.run()
	}
}

// Retain and Release have nothing to do: the loop lives as long as it is used.
func (s *serial) Retain() bool { return true }
func (s *serial) Release()     {}

// Defer runs f after the functions submitted until now, even if more are submitted all the time.
func (s *serial) Defer(f func()) { s.Submit(f) }

func (s *serial) AfterFunc(d time.Duration, f func()) timer {
	return time.AfterFunc(d, func() { s.Submit(f) })
}

// run is the goroutine. A function that ends it (runtime.Goexit) ends itself only.
func (s *serial) run() {
	ended := false
	defer func() {
		if !ended {
			go s.run()
		}
	}()
	for f := s.take(); f != nil; f = s.take() {
		f()
	}
	ended = true
}

// take returns the next function. If there is none it returns nil, and the goroutine must end.
func (s *serial) take() (f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running = len(s.queue) > 0; s.running {
		f = s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
	return f
}

type timer = *time.Timer

// sock is a connection's socket, with calls that don't block: one goroutine reads ahead, and another
// lives while something is written.
type sock struct {
	conn *percore.Conn
	*ahead
}

// ahead is the part of the two goroutines.
//
//	direction  state                        leaves by
//	reading    the reader waits for bytes   it has some, or an error: taken; an event
//	           taken: tryRead gets them     tryRead, the last: the reader reads on
//	writing    nothing                      tryWrite: a writer writes
//	           a writer writes              it is done: written; onRoom
//	           written: tryWrite says so    tryWrite: nothing, or it writes on
type ahead struct {
	owner  *Conn
	readOn chan struct{} // tells the reader to go on; holds one
	stop   chan struct{} // closed when it is to end
	ended  chan struct{} // closed when it has

	mu       sync.Mutex
	input    []byte // read and not taken
	inputErr error
	writing  chan struct{} // closed by the writer when it is done; nil if there is none
	written  int
	writeErr error
	done     bool // written and writeErr are a result
}

// aheadBytes is how much is read, or written, at a time.
const aheadBytes = 32 << 10

// claim makes events go to c, which ignores them until it is open.
func (s *sock) claim(c *Conn) error {
	s.owner = c
	_ = s.conn.SetDeadline(time.Time{})
	go s.readAhead()
	return nil
}

func (s *sock) readAhead() {
	defer close(s.ended)
	buffer := make([]byte, aheadBytes)
	for {
		n, err := s.conn.Read(buffer)
		s.mu.Lock()
		s.input, s.inputErr = buffer[:n], err
		s.mu.Unlock()
		s.owner.loop.engine.Submit(func() { s.owner.onEvent(true, false) })
		if err != nil {
			return
		}
		select {
		case <-s.readOn:
		case <-s.stop:
			return
		}
	}
}

// tryRead returns 0 and nil if there is nothing to read; then an event comes when there is.
func (s *sock) tryRead(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.input) == 0 {
		return 0, s.inputErr
	}
	n := copy(p, s.input)
	s.input = s.input[n:]
	if len(s.input) == 0 && s.inputErr == nil {
		s.readOn <- struct{}{}
	}
	return n, nil
}

// tryWrite writes p, or its beginning. It reports 0 while the writer is at work, and how much was
// written when it is called again with the same bytes.
func (s *sock) tryWrite(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if s.done {
		s.done = false
		if n = s.written; s.writeErr != nil || n == len(p) {
			return n, s.writeErr
		}
	}
	if s.writing == nil {
		s.writing = make(chan struct{})
		chunk := append([]byte(nil), p[n:min(len(p), n+aheadBytes)]...)
		go s.write(s.writing, chunk)
	}
	return n, nil
}

func (s *sock) write(writing chan struct{}, p []byte) {
	n, err := s.conn.Write(p)
	s.mu.Lock()
	s.writing, s.done, s.written, s.writeErr = nil, true, n, err
	s.mu.Unlock()
	close(writing)
	(*output)(s.owner).onRoom() // here, since tasks may keep the loop for long
}

// tryWriteBuffers is tryWrite of the first slices: those that may have been written, and as many bytes
// again, so that a write is under way unless all were written.
func (s *sock) tryWriteBuffers(v net.Buffers) (int, error) {
	var p []byte
	for _, b := range v {
		if p = append(p, b...); len(p) >= 2*aheadBytes {
			break
		}
	}
	return s.tryWrite(p)
}

// unwatch ends claim. It returns bytes that were read since then.
func (s *sock) unwatch() (more []byte) {
	close(s.stop)
	_ = s.conn.SetReadDeadline(monotime.LongAgo)
	<-s.ended
	_ = s.conn.SetReadDeadline(time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.input // an error is found by the next Read, too
}

// finishWrite waits for the write that is under way, and returns how much it has sent that tryWrite
// hasn't reported.
func (s *sock) finishWrite() int {
	s.mu.Lock()
	writing := s.writing
	s.mu.Unlock()
	if writing != nil {
		<-writing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		return 0
	}
	s.done = false
	return s.written
}

// close closes the connection. If bytes that it should have sent were dropped, those in the hands of the
// writer aside, it is reset.
func (s *sock) close(dropped int) error {
	close(s.stop)
	finish := func() error {
		if dropped > s.finishWrite() {
			_ = s.conn.SetLinger(0)
		}
		return s.conn.Close()
	}
	s.mu.Lock()
	isWriting := s.writing != nil
	s.mu.Unlock()
	if !isWriting {
		return finish()
	}
	// The writer has the bytes that a socket of a loop would have taken by now.
	_ = s.conn.SetReadDeadline(monotime.LongAgo)
	_ = s.conn.SetWriteDeadline(time.Now().Add(closingWrite))
	go finish()
	return nil
}

// closingWrite is how long a writer may wait for room in the socket of a closed connection, and before
// that for a processor.
const closingWrite = time.Second
