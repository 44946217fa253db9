package h2

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/tlsread"
)

// below is the stream below a connection: plain or TLS, on a loop or not.
//
// Over TLS a turn reads with serving.TryRead. Where crypto/tls isn't as that expects, a goroutine reads.
type below struct {
	nc net.Conn      // what is read and written: pc, a *tls.Conn, or another
	pc *percore.Conn // the connection on a loop; nil: a goroutine reads from nc
}

// probeTLS is a variable for tests.
var probeTLS = tlsread.Probe

// init finds out what nc is.
func (b *below) init(nc net.Conn) {
	b.nc = nc
	_ = nc.SetWriteDeadline(time.Time{}) // of the handshake, perhaps: see WriteTimeout in output.go
	// In a bubble of testing/synctest a goroutine reads as well: the loops are outside of it, and can't
	// wake a worker.
	pc, ok := b.socket().(*percore.Conn)
	if ok && pc.Loop() != nil && !monotime.InBubble() && (b.tls() == nil || readsTLS()) {
		b.pc = pc
	}
}

// socket returns the connection below TLS, or nc.
func (b *below) socket() net.Conn {
	tc := b.tls()
	if tc == nil {
		return b.nc
	}
	at := tc.NetConn()
	if wrapper, ok := at.(interface{ NetConn() net.Conn }); ok {
		at = wrapper.NetConn()
	}
	return at
}

var tlsDiffers sync.Once // logged

// readsTLS reports whether turns can read from a *tls.Conn in this process. If not it says so, once.
func readsTLS() bool {
	err := probeTLS()
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

// A Timer is what [Conn.AfterFunc] returns.
type Timer interface {
	// Stop keeps the function from being called, and reports whether it did.
	Stop() bool
}

// afterFunc calls f once d has passed. f must not block.
func (b *below) afterFunc(d time.Duration, f func()) Timer {
	if b.pc != nil {
		if l := b.pc.Loop(); l != nil {
			return l.AfterFunc(d, f)
		}
	}
	return time.AfterFunc(d, f)
}

// limits returns the limits of the listener, or nil.
func (b *below) limits() *accepting.Limits {
	if b.pc == nil {
		return nil
	}
	return seam.LimitsOf(b.pc)
}

// write writes all of p.
func (b *below) write(p []byte, t *taking) error {
	most := len(p)
	if b.pc == nil && !seam.TellsSent(b.socket()) {
		most = blindBytes
	}
	for {
		_, err := b.nc.Write(p[:min(len(p), most)])
		t.wrote()
		if err != nil || len(p) <= most {
			return err
		}
		p = p[most:]
	}
}

// blindBytes are written by one call where only the ends of calls tell that the client takes something.
const blindBytes = 16 << 10

// writeBuffers is write for several slices, of which it takes out what was written.
func (b *below) writeBuffers(v *net.Buffers, t *taking) error {
	if b.pc != nil && b.tls() == nil {
		_, err := b.pc.WriteBuffers(v)
		return err
	}
	for len(*v) > 0 {
		if err := b.write((*v)[0], t); err != nil {
			return err
		}
		*v = (*v)[1:]
	}
	return nil
}

// room returns how many bytes can be written at once without waiting, by a cautious guess.
func (b *below) room() int { return seam.SendRoom(b.socket()) }

// hungUp reports whether the peer has hung up, though the reader may not have seen that yet.
func (b *below) hungUp() bool { return seam.HungUp(b.socket()) }

// isTimeout reports whether err means that a deadline has passed.
func isTimeout(err error) bool {
	if err == nil {
		return false // without the allocation that errors.As needs
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// closeWrite ends the stream to the client. Over TLS that may block, until the connection is closed or
// for the 5 seconds that crypto/tls allows its farewell.
func (b *below) closeWrite() {
	tc := b.tls()
	switch {
	case tc != nil:
		_ = tc.CloseWrite()
	case b.pc != nil:
		_ = b.pc.CloseWrite()
	default:
		if half, ok := b.nc.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

// close closes the connection, over TLS without a farewell, which could block.
func (b *below) close() {
	if b.pc != nil {
		_ = b.pc.Close()
		return
	}
	_ = b.nc.Close()
}
