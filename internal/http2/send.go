package http2

import "github.com/percore/percore/internal/http2/hpack"

// An away says how far a connection is on its way to the end. GOAWAY is sent with each change.
//
//	from      by                  to        GOAWAY's last stream    new streams
//	staying   Drain               draining  2^31-1                  are served
//	staying   GoAway(NoError)     leaving   the last one opened     are ignored
//	draining  GoAway(NoError)     leaving   the last one opened     are ignored
//	any       GoAway, an error    failed    the last one opened     all frames are ignored
type away uint8

const (
	staying away = iota
	draining
	leaving
	failed
)

// Output returns the frames that wait to be sent, without taking them.
func (c *Conn) Output() []byte { return c.writer.out }

// TakeOutput takes the frames that wait to be sent. The caller owns them, and must send them before the
// frames of later calls.
func (c *Conn) TakeOutput() []byte {
	p := c.writer.out
	c.writer.out, c.writer.controls = nil, 0
	if c.schedule != nil {
		c.schedule.pieces = 0
	}
	return p
}

// LendOutput makes p[:0] the memory of the output: what waits is copied there, and frames are appended.
// If p is too small, the output moves to other memory. TakeOutput returns either.
func (c *Conn) LendOutput(p []byte) { c.writer.out = append(p[:0], c.writer.out...) }

// Headers appends the header of an answer: :status and fields, whose names must not begin with a colon.
// A status below 200 is an interim answer, for which end must not be set. Headers does not keep the
// fields. The error is ErrEnded.
func (c *Conn) Headers(st *Stream, status int, fields []hpack.Field, end bool) error {
	if st.WriteEnded() {
		return ErrEnded
	}
	at := c.beginHeaders(st.id)
	c.writer.status(status)
	c.endHeaders(st, at, fields, end)
	return nil
}

// Trailers appends the trailers of an answer or a request, with END_STREAM. The error is ErrEnded.
func (c *Conn) Trailers(st *Stream, fields []hpack.Field) error {
	if st.WriteEnded() {
		return ErrEnded
	}
	c.endHeaders(st, c.beginHeaders(st.id), fields, true)
	return nil
}

// beginHeaders begins a header block, and returns where its frame begins.
func (c *Conn) beginHeaders(id uint32) (at int) {
	c.answered = true
	return c.writer.beginBlock(id)
}

func (c *Conn) endHeaders(st *Stream, at int, fields []hpack.Field, end bool) {
	if c.writer.endBlock(at, st.id, fields, end); end {
		c.sentEnd(st)
	}
}

func (c *Conn) sentEnd(st *Stream) {
	c.enter(st, transitions[st.state][sentEnd].next)
	c.endedWell(st)
}

// Data appends DATA frames with as much of p as the windows allow, and returns the number of bytes. If
// that is all of p and end is set, it also sends END_STREAM; an empty p needs no window. Otherwise the
// caller continues when the window has opened. The error is ErrEnded.
func (c *Conn) Data(st *Stream, p []byte, end bool) (n int, err error) {
	for {
		m, last, err := c.take(st, len(p), end)
		if err != nil || m == 0 && !last {
			return n, err
		}
		c.writer.data(st.id, p[:m], last)
		n += m
		p = p[m:]
		if last {
			c.sentEnd(st) // after the frame: it may add a frame of its own
		}
		if len(p) == 0 {
			return n, nil
		}
	}
}

// DataHeader appends to dst the header of a DATA frame for the first n of want bytes, and takes these
// from the windows. The caller sends them behind the header, without copying them. If the windows are
// closed, n is 0 and nothing is appended, unless want is 0 and end is set. The output so far must be
// sent before the frame, and dst must not be the output.
func (c *Conn) DataHeader(dst []byte, st *Stream, want int, end bool) (_ []byte, n int, err error) {
	n, last, err := c.take(st, want, end)
	if err != nil || n == 0 && !last {
		return dst, 0, err
	}
	dst = appendDataHeader(dst, st.id, n, last)
	if last {
		c.sentEnd(st)
	}
	return dst, n, nil
}

// take takes the bytes of a DATA frame from the windows. last is set if these are all the bytes wanted
// and END_STREAM goes with them.
func (c *Conn) take(st *Stream, want int, end bool) (n int, last bool, err error) {
	if st.WriteEnded() {
		return 0, false, ErrEnded
	}
	whole := min(want, int(c.writer.frameMax))
	n = max(0, min(whole, c.Window(st)))
	if n > 0 {
		c.answered = true
		c.send.take(st, n)
		c.budgets.earnForData(c.cfg, n, n == whole)
	}
	return n, end && n == want, nil
}

// Reset ends a stream with RST_STREAM, unless it has ended, and reports whether it did. The code is
// NoError if the answer is complete and the rest of the request is not wanted.
func (c *Conn) Reset(st *Stream, code ErrCode) bool {
	if st.Ended() {
		return false
	}
	c.writer.reset(st.id, code, ownReset)
	c.enter(st, cancelled)
	return true
}

// Ping appends a PING. Its answer arrives as the event PingAcked with the same bytes.
func (c *Conn) Ping(data [8]byte) {
	c.budgets.earnIdle(c.cfg, 1)
	c.writer.frame(typePing, 0, 0, data[:])
}

// Drain is the first step of a graceful end: the peer learns that it should open no more streams, and
// streams that are already on their way are served. GoAway is the second step, after a round trip. A
// client needs only the first, since no streams come to it. debug is as for GoAway.
func (c *Conn) Drain(debug string) {
	switch last := c.cfg.side().lastServed(c, true); {
	case c.away != staying:
	case last == 0:
		c.GoAway(NoError, debug)
	default:
		c.away = draining
		c.writer.goAway(last, NoError, debug)
	}
}

// GoAway tells the peer the last stream that is served. With NoError, the streams up to it go on, and
// the connection can be closed when Streams is 0. With another code, all later frames of the peer are
// ignored. debug is for humans, or for a peer that knows the text.
func (c *Conn) GoAway(code ErrCode, debug string) {
	next := leaving
	if code != NoError {
		next = failed
	}
	if next > c.away {
		c.away = next
		c.writer.goAway(c.cfg.side().lastServed(c, false), code, debug)
	}
}

// Leaving reports whether GoAway was called, by the caller or because of the peer.
func (c *Conn) Leaving() bool { return c.away >= leaving }
