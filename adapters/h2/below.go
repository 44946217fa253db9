package h2

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/tlsread"
)

// below is the stream below a connection: plain or TLS, on a loop or not.
//
// Over TLS a turn must not wait in Read, and crypto/tls has no other. So during a turn the connection
// below it fails with percore.ErrWouldWait instead of waiting: see package tlsread. Where crypto/tls
// isn't as that expects, a goroutine reads.
type below struct {
	nc net.Conn      // what is read and written: pc, a *tls.Conn, or another
	pc *percore.Conn // the connection on a loop; nil: a goroutine reads from nc

	writeUntil int64 // the write deadline; the sender's
}

// tlsWorks is a variable for tests.
var tlsWorks = tlsread.Works

// newBelow finds out what nc is.
func newBelow(nc net.Conn) below {
	b := below{nc: nc}
	at := nc
	if tc := b.tls(); tc != nil {
		at = tc.NetConn()
		if wrapper, ok := at.(interface{ NetConn() net.Conn }); ok {
			at = wrapper.NetConn()
		}
	}
	// In a bubble of testing/synctest a goroutine reads as well: the loops are outside of it, and can't
	// wake a worker.
	pc, ok := at.(*percore.Conn)
	if ok && pc.Loop() != nil && !monotime.InBubble() && (b.tls() == nil || readsTLS()) {
		b.pc = pc
	}
	return b
}

var tlsDiffers sync.Once // logged

// readsTLS reports whether turns can read from a *tls.Conn in this process. If not it says so, once.
func readsTLS() bool {
	err := tlsWorks()
	if err != nil {
		tlsDiffers.Do(func() {
			slog.Warn("h2: each connection over TLS holds a goroutine: crypto/tls does not read as the loops need it", "error", err)
		})
	}
	return err == nil
}

// tls returns nc if it is a *tls.Conn, or nil.
func (b *below) tls() *tls.Conn {
	tc, _ := b.nc.(*tls.Conn)
	return tc
}

// now reads the clock that the deadlines of nc go by: without a loop that is package time's, which
// is another one in a bubble of testing/synctest.
func (b *below) now() int64 {
	if b.pc == nil {
		return monotime.Local()
	}
	return monotime.Now()
}

// timeOf translates a time of now.
func (b *below) timeOf(at int64) time.Time {
	if b.pc == nil {
		return monotime.LocalTime(at)
	}
	return monotime.Time(at)
}

// tryRead reads what is there, without waiting, until p is full. dry says that nothing is left, and
// that the engine will report more.
func (b *below) tryRead(p []byte) (n int, dry bool, err error) {
	tc := b.tls()
	if tc == nil {
		n, err = b.pc.TryRead(p)
		return n, n < len(p), err
	}
	_ = b.pc.SetNoWait(true) // closed if it fails
	defer b.pc.SetNoWait(false)
	return tlsread.Read(tc, p, math.MaxInt)
}

// write writes all of p. It fails if the client takes nothing for the time given, if that is not 0.
func (b *below) write(p []byte, patience time.Duration) error {
	for {
		b.limitWrite(patience)
		n, err := b.nc.Write(p)
		if p = p[n:]; err == nil || !goesOn(n, err) || b.tls() != nil {
			return err // crypto/tls can't write after a timeout
		}
	}
}

// writeBuffers is write for several slices, of which it takes out what was written.
func (b *below) writeBuffers(v *net.Buffers, patience time.Duration) error {
	if b.pc == nil || b.tls() != nil {
		for len(*v) > 0 {
			if err := b.write((*v)[0], patience); err != nil {
				return err
			}
			*v = (*v)[1:]
		}
		return nil
	}
	for {
		b.limitWrite(patience)
		n, err := b.pc.WriteBuffers(v)
		if err == nil || !goesOn(int(n), err) {
			return err
		}
	}
}

// limitWrite sets the write deadline, unless most of the time is left of the last one.
func (b *below) limitWrite(patience time.Duration) {
	if patience <= 0 {
		return
	}
	if now := b.now(); b.writeUntil < now+int64(patience)/4*3 {
		b.writeUntil = now + int64(patience)
		_ = b.nc.SetWriteDeadline(b.timeOf(b.writeUntil))
	}
}

// goesOn reports whether a write has timed out, and some of it was taken before.
func goesOn(n int, err error) bool { return n > 0 && isTimeout(err) }

// isTimeout reports whether err means that a deadline has passed.
func isTimeout(err error) bool {
	if err == nil {
		return false // without the allocation that errors.As needs
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// closeWrite ends the stream to the client. Over TLS that may block for a while.
func (b *below) closeWrite() {
	tc := b.tls()
	switch {
	case tc != nil:
		b.limitWrite(lingerTime)
		_ = tc.CloseWrite()
	case b.pc != nil:
		_ = b.pc.CloseWrite()
	default:
		if half, ok := b.nc.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

// discard reads what is there, without looking at it: the records of TLS are of no interest.
func (b *below) discard(p []byte) (n int, dry bool, err error) {
	n, err = b.pc.TryRead(p)
	return n, n < len(p), err
}

// close closes the connection, over TLS without a farewell, which could block.
func (b *below) close() {
	if b.pc != nil {
		_ = b.pc.Close()
		return
	}
	_ = b.nc.Close()
}
