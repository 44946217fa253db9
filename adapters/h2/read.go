package h2

import (
	"io"
	"time"

	"github.com/percore/percore/internal/http2"
)

// incoming is the half of a stream that comes from the peer.
type incoming struct{ *Stream }

// Read reads bytes of the request's body, and waits for them. It returns io.EOF after the last
// byte. Then Trailers returns the trailers.
func (s *Stream) Read(p []byte) (n int, err error) { return incoming{s}.read(p, min(len(p), 1)) }

// ReadFull fills p with bytes of the request's body, and waits for them. It returns the errors of
// [io.ReadFull]. Unlike that, it does not wake for each part, and fills a long p without an extra copy.
func (s *Stream) ReadFull(p []byte) (n int, err error) {
	if n, err = (incoming{s}).read(p, len(p)); n > 0 && err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Buffered returns how many bytes of the request's body Read returns without waiting.
func (s *Stream) Buffered() int {
	if s.lockUnlessWhole() {
		defer s.conn.mu.Unlock()
	} else {
		s.reading.Lock()
		defer s.reading.Unlock()
	}
	return s.unread.Bytes()
}

// Trailers returns the trailers of the request, once Read has returned io.EOF.
func (s *Stream) Trailers() []Field {
	if s.lockUnlessWhole() {
		defer s.conn.mu.Unlock()
	}
	if s.extras == nil {
		return nil
	}
	return s.extras.trailers
}

// CloseRead drops the rest of the body: Read fails, and the client gets credit for the connection for
// what it still sends, but not for the stream.
func (s *Stream) CloseRead() {
	if !s.lockUnlessWhole() {
		incoming{s}.dropWhole()
		return
	}
	defer s.conn.unlock()
	if s.readErr == nil {
		s.readErr = ErrEnded
	}
	s.wakeLocked()
	if s.discardLocked() {
		s.conn.flushSoonLocked()
	}
}

// SetReadDeadline sets the time after which Read fails permanently with os.ErrDeadlineExceeded, once
// the bytes that have arrived are read. The zero time removes the deadline.
func (s *Stream) SetReadDeadline(t time.Time) error {
	return s.setDeadline(readDeadline, t, func(s *Stream) {
		if s.readErr == nil {
			s.readErr = errDeadline
			s.wakeLocked()
		}
	})
}

// read reads at least least bytes, or as many as there are before an error.
func (in incoming) read(p []byte, least int) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	in.reading.Lock()
	defer in.reading.Unlock()
	if !in.lockUnlessWhole() {
		return in.readWhole(p, least)
	}
	c := in.conn
	defer c.unlock()
	for n < least {
		switch err := in.errLocked(); {
		case in.unread.Bytes() > 0:
			m := in.unread.Take(p[n:])
			n += m
			if c.phase == alive {
				c.core.Consumed(&in.core, m)
				c.flushSoonLocked() // the client may wait for the window
			}
		case err != nil:
			return n, err
		case len(p)-n >= fillingBytes:
			n += in.fillLocked(p[n:], least-n)
		default:
			in.waitLocked()
		}
	}
	return n, nil
}

// errLocked returns why no more bytes come, or nil.
func (in incoming) errLocked() error {
	switch {
	case in.readErr != nil:
		return in.readErr
	case in.err != nil:
		return in.err
	case in.stage == served:
		return ErrEnded
	}
	return nil
}

// readWhole is read for a stream that is whole. reading is held.
func (in incoming) readWhole(p []byte, least int) (n int, err error) {
	n = in.unread.Take(p)
	switch {
	case n >= least:
		return n, nil
	case in.extras.client.dropped:
		return n, ErrEnded
	}
	return n, io.EOF
}

// dropWhole drops what was not read of a stream that is whole.
func (in incoming) dropWhole() {
	in.reading.Lock()
	defer in.reading.Unlock()
	if in.unread.Drop() > 0 {
		in.extras.client.dropped = true
	}
}

// fillingBytes is the least space that makes a filling pay.
const fillingBytes = 512

// fillLocked waits until at least least bytes have come to p, or no more come.
func (in incoming) fillLocked(p []byte, least int) (n int) {
	in.makeExtrasLocked().filling = filling{into: p, least: least}
	for in.extras.filling.least > 0 && in.errLocked() == nil {
		in.waitLocked()
	}
	n = len(p) - len(in.extras.filling.into) // Move may have changed extras
	in.extras.filling = filling{}            // the memory is the caller's again
	return n
}

// dataLocked takes bytes of the body, or its end.
func (in incoming) dataLocked(ev *http2.Event, w *wakes) {
	c, x := in.conn, in.extras
	waits := false // for more than has come
	in.marks &^= expects
	switch p := ev.Data; {
	case len(p) == 0:
	case in.stage == served || in.err != nil || in.readErr != nil:
		c.core.Discarded(&in.core, len(p))
	default:
		if x != nil && x.filling.into != nil {
			n := x.filling.take(p)
			c.core.Consumed(&in.core, n)
			p, waits = p[n:], x.filling.least > 0
		}
		if len(p) > 0 {
			in.unread.Put(p)
		}
	}
	switch {
	case ev.End:
		in.endedLocked(ev, w)
	case waits, x != nil && x.client.awaits(in.unread.Bytes()):
		return
	}
	w.add(in.cond)
}

func (in incoming) trailersLocked(ev *http2.Event, w *wakes) {
	if x := in.makeExtrasLocked(); x.client != nil {
		x.trailers = x.client.keep(ev.Fields)
	} else {
		x.trailers = append([]Field(nil), ev.Fields...)
	}
	in.endedLocked(ev, w)
	w.add(in.cond)
}

// endedLocked is for END_STREAM.
func (in incoming) endedLocked(ev *http2.Event, w *wakes) {
	switch {
	case in.readErr != nil:
	case ev.Short:
		in.readErr = ErrShortBody
	default:
		in.readErr = io.EOF
		in.wholeLocked(w)
	}
}

// wholeLocked checks whether a client's stream has ended well. Then it no longer changes, and what has
// come can be read with reading alone, without conn.mu, for which all callers of a connection compete.
func (in incoming) wholeLocked(w *wakes) {
	if in.stage == served || in.err != nil || !in.core.Ended() {
		return
	}
	if x := in.extras; x != nil && x.client != nil && x.client.answer.Status != 0 && !x.client.late {
		x.stop()
		w.add(in.cond) // before, for Release
		in.whole.Store(true)
	}
}
