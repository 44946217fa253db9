package h2

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// outgoing is the half of a stream that goes to the peer.
type outgoing struct{ *Stream }

// A Message is a part of an answer, or all of it. Its parts are sent in this order: header, body,
// trailers.
type Message struct {
	// Status and Fields are a header, if Status is not 0. One below 200 is an interim answer.
	Status int
	Fields []Field

	Body []byte

	// Trailers, if not nil, are sent behind the body, and end the answer.
	Trailers []Field

	// End ends the answer.
	End bool

	// AtOnce makes Send fail with ErrNotAtOnce, instead of waiting, if windows or room don't let all of
	// Body go now. Then neither Body nor what follows it was sent.
	AtOnce bool

	// Hold lets the bytes wait for the next Send without Hold, for Flush, or for the return of Serve. It
	// suits the last Send of a handler that is about to return.
	Hold bool
}

// Send sends a part of the answer. If it has a body, Send waits for the client's windows. The parts
// must come in the order of HTTP: interim answers, a header, bodies, and trailers or an end. Send
// doesn't check that, except that it sends no interim answer after the header. Field names must be in
// lower case. Send fails and sends nothing if a field is not valid ([Field.Valid]) or is a
// pseudo-header field.
//
// If Send fails for another reason, a part of the message may have been sent: reset the stream.
func (s *Stream) Send(m Message) error {
	if err := m.check(); err != nil {
		return err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	err := outgoing{s}.messageLocked(&m)
	if !m.Hold {
		c.side.sent(s)
	}
	return err
}

func (m *Message) check() error {
	if m.Status != 0 && (m.Status < 100 || m.Status > 999) {
		return fmt.Errorf("h2: %d is no status", m.Status)
	}
	for _, fields := range [][]Field{m.Fields, m.Trailers} {
		for i := range fields {
			if f := &fields[i]; !f.Valid() || f.Name.Class().IsPseudo() {
				return fmt.Errorf("h2: the field %q must not be sent: its name or value is not valid", f.Name)
			}
		}
	}
	return nil
}

// messageLocked is Send for a caller that holds sending and mu. mu is released while it waits.
func (out outgoing) messageLocked(m *Message) error {
	c := out.conn
	if m.Status != 0 || len(m.Body) == 0 { // a body waits with its bytes
		if err := out.awaitSpaceLocked(); err != nil {
			return err
		}
		c.lend()
	}
	last := m.End && m.Trailers == nil // END_STREAM goes with the header or the body
	if m.Status != 0 {
		switch {
		case m.Status >= 200:
			out.marks |= answered
		case out.marks.has(answered):
			return errLateInterim
		case m.Status == statusContinue:
			out.marks &^= expects
		}
		bare := last && len(m.Body) == 0
		if err := c.core.Headers(&out.core, m.Status, m.Fields, bare); err != nil || bare {
			return err
		}
	}
	if len(m.Body) > 0 || last {
		if m.AtOnce && !(c.takes(len(m.Body)) && c.core.Window(&out.core) >= len(m.Body)) {
			return ErrNotAtOnce
		}
		if err := out.bodyLocked(m.Body, last); err != nil {
			return err
		}
	}
	if m.Trailers != nil {
		if err := out.errLocked(); err != nil {
			return err
		}
		c.lend()
		return c.core.Trailers(&out.core, m.Trailers)
	}
	return nil
}

const statusContinue = 100

// ErrNotAtOnce is the error of Send for a message with AtOnce that would have to wait.
var ErrNotAtOnce = errors.New("h2: the body can't be sent without waiting")

// errLateInterim is for an interim answer, such as 100 Continue, after the header of the answer:
// clients take it for a protocol error.
var errLateInterim = errors.New("h2: an interim answer behind the answer's header")

// errLocked returns why nothing can be sent, or nil.
func (out outgoing) errLocked() error {
	switch {
	case out.err != nil:
		return out.err
	case out.stage == served, out.core.WriteEnded(), out.conn.endsWith(&out.core):
		return ErrEnded
	}
	return out.conn.clock.ends.cutError()
}

// Write sends p as a part of the body.
func (s *Stream) Write(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.Send(Message{Body: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush sends everything that waits on the connection. If another goroutine is already sending, that
// one sends this as well.
func (s *Stream) Flush() error {
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	if s.err == nil {
		c.side.lend(s)
	}
	return s.err
}

// SetWriteDeadline sets the time at which the stream is reset with InternalError, unless the answer is
// complete by then. The zero time removes the deadline.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(writeDeadline, t, func(s *Stream) {
		if !s.core.WriteEnded() {
			s.resetSoonLocked(InternalError, os.ErrDeadlineExceeded)
		}
	})
}

// bodyLocked sends p, with the end of the answer behind it if end is set. It releases mu while it waits
// for windows and space.
func (out outgoing) bodyLocked(p []byte, end bool) error {
	c := out.conn
	most := c.directMost()
	for len(p) >= directBytes && c.side.maySend(c, min(len(p), most)) && !c.core.Ready() && !c.flushing &&
		out.errLocked() == nil && c.core.Window(&out.core) >= directBytes {
		n := out.directLocked(p[:min(len(p), most)], end && len(p) <= most)
		if p = p[n:]; len(p) == 0 && (!end || out.core.WriteEnded()) {
			return out.err
		}
		if n == 0 {
			break
		}
	}
	if err := out.errLocked(); err != nil {
		return err
	}
	if c.takes(len(p)) {
		c.lend()
		n, err := c.core.Data(&out.core, p, end)
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
	return out.awaitLocked(p, end)
}

// awaitLocked waits until all of p is in the output, and the end behind it if end is set.
func (out outgoing) awaitLocked(p []byte, end bool) error {
	c := out.conn
	if out.marks.has(hurried) {
		out.resetSoonLocked(Cancel, nil)
		return out.errLocked()
	}
	c.core.Queue(&out.core, p, end)
	c.sendersLocked(1)
	if c.side.lend(out.Stream); out.core.Queued() {
		c.workers.counts.Add(countStalls, 1)
	} else if c.woken {
		// Handlers that were woken run before the sending one goes on: their bytes may have to come first,
		// and a goroutine that sends without blocking would fill the socket's buffer alone.
		c.woken = false
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for out.core.Queued() {
		if c.endsWith(&out.core) {
			out.unqueueLocked()
			return ErrEnded
		}
		out.waitLocked()
	}
	if out.err != nil {
		return out.err
	}
	return c.clock.ends.cutError()
}

// awaitSpaceLocked waits until the output has space.
func (out outgoing) awaitSpaceLocked() error {
	c := out.conn
	if len(c.core.Output()) < outputMost || out.err != nil {
		return out.errLocked()
	}
	if err := out.awaitLocked(nil, false); err != nil {
		return err
	}
	return out.errLocked()
}

// direct is the memory of a call that sends without copying.
type direct struct {
	heads [directMost/directBytes + 1][16]byte
	v     [2*(directMost/directBytes+1) + 1][]byte
	bufs  net.Buffers
}

var directs = sync.Pool{New: func() any { return new(direct) }}

// directLocked sends the output and as much of p as the windows allow with one call. It releases mu
// while it sends, and returns how many bytes of p it has sent.
func (out outgoing) directLocked(p []byte, end bool) (n int) {
	c := out.conn
	d := directs.Get().(*direct)
	ahead, memory := c.take()
	d.bufs = append(d.v[:0], ahead)
	for i := 0; i < len(d.heads) && n < len(p); i++ {
		c.lend() // the end of a stream gives credit back
		head, m, err := c.core.DataHeader(d.heads[i][:0], &out.core, len(p)-n, end)
		if m == 0 || err != nil {
			break
		}
		d.bufs = append(d.bufs, head, p[n:n+m])
		n += m
	}
	c.flushing = true
	_ = c.writeLocked(len(ahead)+n, memory, func(ends *atomic.Uint32) error {
		err := c.below.WriteBuffers(&d.bufs, ends)
		clear(d.v[:])
		d.bufs = nil
		directs.Put(d)
		return err
	})
	c.endFlush(c.phase == closed)
	c.flushSoonLocked() // what has arrived since
	return n
}
