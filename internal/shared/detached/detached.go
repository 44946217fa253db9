// Package detached sends the part of an answer that is left after its handler has returned, for all
// protocols. A [Sender] has the bytes that wait for the client, their limit, and the order in which
// the answer ends.
package detached

import (
	"context"
	"sync"
)

// A Sender sends the rest of an answer, which consists of Ts: bytes, or messages. One goroutine at a
// time is the sender: at first the goroutine that called the handler, later one that the outlet starts
// when there is something to send. So an answer that waits needs no goroutine. Any goroutine may call
// the methods, except where they say that they are for the sender.
//
//	state    meaning                                              leaves by
//	open     it may be added to                                   Close, IsWhole: closing; End: dead
//	closing  the rest is being sent, and then the end             it was sent: over; End: dead
//	dead     the client has gone, a send or the end has failed,   the sender has noticed: over
//	         or the program has cut the answer
//	over     the function of OnEnd has learned of the end, or     (final)
//	         is about to; nothing cuts the answer any more
//
//	sending  meaning                                              leaves by
//	false    nothing is to be sent; there is no sender            Unlock, for Flush, Close, End, long Adds
//	true     the handler has not returned, or a goroutine is,     Work, when nothing is to be sent
//	         or is about to be, in Work: the sender
//
// Both change only between Lock and Unlock, which starts the sender, or wakes one that blocks.
type Sender[T any, O Outlet[T]] struct {
	Outlet O // immutable

	mu sync.Mutex // never held while the outlet sends or the user's code runs

	// guarded by mu
	unsent  []T // that the sender hasn't taken
	waits   int // what unsent counts, and what is being sent
	limit   int
	err     error       // why it is dead, or why nothing more may be added
	onEnd   func(error) // nil: none
	state   state
	sending bool
	blocked bool // the sender is in a call that Cut ends
	cuts    bool // Unlock is to call it
	yields  bool // err does, to that of the send that is under way
	flushes bool // Flush was called since the last send
	drops   bool // a client that is slow
}

// state is a Sender's, as its table says.
type state uint8

const (
	open state = iota
	closing
	dead
	over
)

// An Outlet is what a Sender sends with. The sender calls Send and End, which may block.
type Outlet[T any] interface {
	// Send sends p, which counts n and may be empty, and flushes what it has kept back if flush is set.
	// It calls Sent for what waits no longer, n in all. If it fails the answer is cut, unless goesOn is
	// set: then no more may be added. (n is len(p) for bytes, but code that looks at p behind a write
	// that blocks keeps it in memory.)
	Send(p []T, n int, flush bool) (goesOn bool, err error)

	// End ends the answer: behind all that was sent, or early if cut is not nil.
	End(cut error) error

	// IsWhole reports whether what was sent is all of the answer, so that nothing waits for its end. The
	// sender calls it with the Sender's lock held.
	IsWhole() bool

	// Errors returns the adapter's errors.
	Errors() *Errors

	// Start makes a goroutine call Work. It must not block.
	Start()

	// Cut makes a Send or End that blocks fail. It must not block.
	Cut()
}

// Errors are an adapter's.
type Errors struct {
	Slow     error // there is no room
	Closed   error // something was added after Close
	Panicked error // the program has
	Gone     error // not all was sent, and nothing has said why
}

const (
	// DefaultLimit is how much may wait for a slow client at first.
	DefaultLimit = 64 << 10

	sendMin = 2 << 10 // that are sent without Flush: more than a packet
)

// Init is called first. The handler hasn't returned, and its caller is to call Work when it has.
func (s *Sender[T, O]) Init(o O) { s.Outlet, s.limit, s.sending = o, DefaultLimit, true }

// Begin calls the program's function that gets the answer. A panic cuts it, which middleware may
// recover, and return.
func (s *Sender[T, O]) Begin(f func()) {
	returned := false
	defer func() {
		if !returned {
			s.End(s.Outlet.Errors().Panicked, true)
		}
	}()
	f()
	returned = true
}

// Lock keeps the Sender as it is until Unlock.
func (s *Sender[T, O]) Lock() { s.mu.Lock() }

// Unlock releases the lock, and sees to it that what has changed is acted upon.
func (s *Sender[T, O]) Unlock() {
	starts, cuts := !s.sending && s.hasWorkLocked(), s.cuts
	s.sending, s.cuts = s.sending || starts, false
	s.mu.Unlock()
	if starts {
		s.Outlet.Start()
	}
	if cuts {
		s.Outlet.Cut()
	}
}

func (s *Sender[T, O]) hasWorkLocked() bool {
	return s.flushes || s.state == closing || s.state == dead || s.waits >= sendMin
}

// AdmitLocked reports why something that counts n may not be added. If nothing waits, it may be longer
// than the limit. Otherwise a lack of room cuts the answer, if SetLimit says so.
func (s *Sender[T, O]) AdmitLocked(n int) error {
	switch {
	case s.err != nil:
		return s.err
	case s.state != open:
		return s.Outlet.Errors().Closed
	case s.waits > 0 && s.waits+n > s.limit:
		if s.drops {
			s.endLocked(s.Outlet.Errors().Slow, true)
		}
		return s.Outlet.Errors().Slow
	}
	return nil
}

// AddLocked adds p, which counts n, and was admitted.
func (s *Sender[T, O]) AddLocked(n int, p ...T) {
	s.unsent = append(s.unsent, p...)
	s.waits += n
}

// FlushLocked lets the client have what was added.
func (s *Sender[T, O]) FlushLocked() { s.flushes = s.flushes || s.state == open && s.err == nil }

// CloseLocked ends the answer behind what was added. It returns why that can't be.
func (s *Sender[T, O]) CloseLocked() error {
	if s.state == open {
		s.state = closing
	}
	return s.err
}

// IsOpenLocked reports whether the Sender is open.
func (s *Sender[T, O]) IsOpenLocked() bool { return s.state == open }

// IsOverLocked reports whether the Sender is over.
func (s *Sender[T, O]) IsOverLocked() bool { return s.state == over }

// GoesOnLocked reports whether the Sender is open or closing.
func (s *Sender[T, O]) GoesOnLocked() bool { return s.state <= closing }

// GoesOn is GoesOnLocked, for callers without the lock.
func (s *Sender[T, O]) GoesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.GoesOnLocked()
}

// ErrLocked returns why nothing more is sent; it is not nil.
func (s *Sender[T, O]) ErrLocked() error {
	if s.err == nil {
		return s.Outlet.Errors().Closed
	}
	return s.err
}

// End cuts the answer, and reports whether it went on. cuts says that a send that is under way is to be
// cut. Otherwise it fails by itself, and its error says more than err. End doesn't block.
func (s *Sender[T, O]) End(err error, cuts bool) bool {
	s.mu.Lock()
	defer s.Unlock()
	return s.endLocked(err, cuts)
}

func (s *Sender[T, O]) endLocked(err error, cuts bool) bool {
	if !s.GoesOnLocked() {
		return false
	}
	s.state, s.err = dead, err
	s.cuts, s.yields = s.blocked && cuts, s.blocked && !cuts
	s.dropLocked()
	return true
}

func (s *Sender[T, O]) dropLocked() { s.unsent, s.waits = nil, 0 }

// IsIdle reports whether there is no sender. It is for tests.
func (s *Sender[T, O]) IsIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.sending
}

// SetLimit sets how much may wait for a slow client. With drops, a lack of room cuts the answer. bytes
// isn't negative.
func (s *Sender[T, O]) SetLimit(bytes int, drops bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.drops = bytes, drops
}

// Unsent returns how much waits to be sent.
func (s *Sender[T, O]) Unsent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits
}

// OnEnd sets the function that Finish calls, or calls f at once if that was before. f may be nil.
func (s *Sender[T, O]) OnEnd(f func(err error)) {
	s.mu.Lock()
	ended, err := s.state == over, s.err
	if !ended {
		s.onEnd = f
	}
	s.mu.Unlock()
	if ended && f != nil {
		f(err)
	}
}

// Blocks is for the sender, and says whether it waits for something else that Cut ends. It reports
// whether the answer has ended.
func (s *Sender[T, O]) Blocks(blocks bool) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = blocks
	return s.state == dead
}

// Sent is for Outlet.Send: a part of p, that counted n, waits no longer. It reports whether the rest is
// to be sent.
func (s *Sender[T, O]) Sent(n int) (goesOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.GoesOnLocked() {
		s.waits -= n
	}
	return s.GoesOnLocked()
}

// Work sends what there is to send. Its caller is the sender. It reports whether the answer has ended,
// and whether all of it was sent. If it has ended, the caller must call Finish. Otherwise the caller is
// no longer the sender.
func (s *Sender[T, O]) Work() (ended, sent bool) {
	s.mu.Lock()
	for {
		if s.GoesOnLocked() && s.Outlet.IsWhole() {
			s.state = closing
			s.dropLocked()
		}
		switch {
		case s.state == over: // another has called Finish
			s.mu.Unlock()
			return true, false
		case s.state == dead:
			err := s.err
			s.mu.Unlock()
			_ = s.Outlet.End(err)
			return true, false
		case s.state == closing && len(s.unsent) == 0 && !s.flushes:
			s.blocked = true
			s.mu.Unlock()
			return true, s.settle(s.Outlet.End(nil))
		case !s.hasWorkLocked():
			s.sending = false
			s.mu.Unlock()
			return false, false
		}
		p, n, flush := s.unsent, s.waits, s.flushes
		s.unsent, s.blocked, s.flushes = nil, true, false
		s.mu.Unlock()
		goesOn, err := s.Outlet.Send(p, n, flush)
		s.mu.Lock()
		s.blocked = false
		switch {
		case err == nil:
		case s.GoesOnLocked():
			s.err = err
			if s.dropLocked(); !goesOn {
				s.state = dead
			}
		case s.state == dead && s.yields:
			s.err = err
		}
	}
}

// settle reports whether the answer is complete: err is why its end could not be sent. If it is, nothing
// cuts it from then on.
func (s *Sender[T, O]) settle(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = false
	switch {
	case s.state == dead:
		return false
	case err != nil:
		s.err = err
		return false
	}
	s.state = over
	return true
}

// Finish notes the end, and calls the function of OnEnd.
func (s *Sender[T, O]) Finish(sent bool) {
	s.mu.Lock()
	if !sent && s.err == nil {
		s.err = s.Outlet.Errors().Gone
	}
	err, f := s.err, s.onEnd
	s.state, s.onEnd = over, nil
	s.dropLocked()
	s.mu.Unlock()
	if f != nil {
		f(err)
	}
}

// joined is a context with the values of another.
type joined struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (j joined) Value(key any) any { return j.values.Value(key) }

// AfterFunc is for package context: contexts that derive from j need no goroutine.
func (j joined) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(j.Context, f) }

// Join returns the context of an answer: it ends with own, which is the answer's, and has the values of
// the one that the program gave, which middleware may cancel when the handler returns.
func Join(own, values context.Context) context.Context {
	if own == values {
		return own
	}
	return joined{own, values}
}
