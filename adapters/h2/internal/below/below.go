// Package below provides the connection below HTTP/2: plain or TLS, on a loop or not.
package below

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/tlsread"
)

// A Conn is the connection below one of HTTP/2.
//
// Over TLS a turn reads with serving.TryRead. Where crypto/tls isn't as that expects, a goroutine reads.
type Conn struct {
	NC net.Conn      // what is read and written: PC, a *tls.Conn, or another
	PC *percore.Conn // the connection on a loop; nil: a goroutine reads from NC
}

// ProbeTLS is a variable for tests.
var ProbeTLS = tlsread.Probe

// Make finds out what nc is.
func Make(nc net.Conn) Conn {
	b := Conn{NC: nc}
	_ = nc.SetWriteDeadline(time.Time{}) // of the handshake, perhaps: see WriteTimeout in h2/output.go
	// In a bubble of testing/synctest a goroutine reads as well: the loops are outside of it, and can't
	// wake a worker.
	pc, ok := b.Socket().(*percore.Conn)
	if ok && pc.Loop() != nil && !monotime.InBubble() && (b.TLS() == nil || readsTLS()) {
		b.PC = pc
	}
	return b
}

// Socket returns the connection below TLS, or nc.
func (b *Conn) Socket() net.Conn {
	tc := b.TLS()
	if tc == nil {
		return b.NC
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
	err := ProbeTLS()
	if err != nil {
		tlsDiffers.Do(func() {
			slog.Warn("h2: each connection over TLS holds a goroutine: crypto/tls does not read as the loops need it", "error", err)
		})
	}
	return err == nil
}

// TLS returns NC if it is a *tls.Conn, or nil.
func (b *Conn) TLS() *tls.Conn {
	tc, _ := b.NC.(*tls.Conn)
	return tc
}

// Now reads the clock that the deadlines of NC go by: without a loop that is package time's, which
// is another one in a bubble of testing/synctest.
func (b *Conn) Now() int64 {
	if b.PC == nil {
		return monotime.Local()
	}
	return monotime.Now()
}

// SetReadDeadline sets the read deadline to a time of Now; 0 for none.
func (b *Conn) SetReadDeadline(at int64) {
	var t time.Time
	switch {
	case at == 0:
	case b.PC == nil:
		t = monotime.LocalTime(at)
	default:
		t = monotime.Time(at)
	}
	_ = b.NC.SetReadDeadline(t)
}

// AfterFunc calls f once d has passed. f must not block.
func (b *Conn) AfterFunc(d time.Duration, f func()) interface{ Stop() bool } {
	if b.PC != nil {
		if l := b.PC.Loop(); l != nil {
			return l.AfterFunc(d, f)
		}
	}
	return time.AfterFunc(d, f)
}

// Limits returns the limits of the listener, or nil.
func (b *Conn) Limits() *accepting.Limits {
	if b.PC == nil {
		return nil
	}
	return seam.LimitsOf(b.PC)
}

// Write writes all of p. ends, if not nil, counts the parts that were taken.
func (b *Conn) Write(p []byte, ends *atomic.Uint32) error {
	most := len(p)
	if b.PC == nil && !seam.TellsSent(b.Socket()) {
		most = blindBytes
	}
	for {
		_, err := b.NC.Write(p[:min(len(p), most)])
		if ends != nil {
			ends.Add(1)
		}
		if err != nil || len(p) <= most {
			return err
		}
		p = p[most:]
	}
}

// blindBytes are written by one call where only the ends of calls tell that the client takes something.
const blindBytes = 16 << 10

// WriteBuffers is write for several slices, from which it removes the written bytes.
func (b *Conn) WriteBuffers(v *net.Buffers, ends *atomic.Uint32) error {
	if b.PC != nil && b.TLS() == nil {
		_, err := b.PC.WriteBuffers(v)
		return err
	}
	for len(*v) > 0 {
		if err := b.Write((*v)[0], ends); err != nil {
			return err
		}
		*v = (*v)[1:]
	}
	return nil
}

// IsTimeout reports whether err means that a deadline has passed.
func IsTimeout(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

// CloseWrite ends what is sent to the peer. Over TLS that may block, until the connection is closed or
// for the 5 seconds that crypto/tls allows its farewell.
func (b *Conn) CloseWrite() {
	if half, ok := b.NC.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// Close closes the connection, over TLS without a farewell, which could block.
func (b *Conn) Close() {
	if b.PC != nil {
		_ = b.PC.Close()
		return
	}
	_ = b.NC.Close()
}
