//go:build !percore_net

package percore

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"weak"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/pool"
)

// Copies through memory, between ends for which the kernel moves nothing by itself.
//
// Two rules decide which memory that is:
//
//   - A copy from a connection holds none while the connection has nothing to read.
//   - Memory that unknown code has seen is never used for another copy. An abandoned Read or Write,
//     because of a context for example, may hold its slice after it has returned, even without an
//     error. With package net that does no harm, because each io.Copy has a buffer of its own.
//
// The endpoints that endpointOf knows pass their memory only to the kernel. So there are four cases:
//
//	from                to                memory
//	a *Conn             a known endpoint  of package pool
//	a *Conn             unknown code      the copy's own; see copyMemory
//	bytes in memory     a *Conn           of package pool; nothing waits
//	everything else     a *Conn           io.Copy's, which it holds while the reader waits

// copyBytes is the size of the memory that bytes are copied through, as in io.Copy.
const copyBytes = 32 << 10

// copyFrom copies from c to w by reading and writing, up to the limit if there is one. It returns
// the errors of Read and of w.
func copyFrom(c *Conn, w io.Writer, m *copyMemory, limited *io.LimitedReader) (written int64, err error) {
	defer runtime.KeepAlive(c)
	defer m.takeBack() // w may panic
	_, counted := w.(connWithoutReadFrom)
	lend, takeBack := func() []byte {
		p := m.lend()
		if limited != nil {
			p = p[:min(int64(len(p)), limited.N)]
		}
		return p
	}, m.takeBack
	for limited == nil || limited.N > 0 {
		n, err := c.sock.ReadReady(lend, takeBack)
		if limited != nil {
			limited.N -= int64(n)
		}
		if !counted {
			features.CopiedBytes.Add(uint64(n))
		}
		switch {
		case err == io.EOF:
			return written, nil
		case err != nil:
			return written, c.opError("read", syscallError("read", err))
		}
		wrote, err := w.Write(m.lent[:n])
		if wrote < 0 || wrote > n {
			wrote = 0
			if err == nil {
				err = errInvalidWrite
			}
		}
		written += int64(wrote)
		switch {
		case err != nil:
			return written, err
		case wrote < n:
			return written, io.ErrShortWrite
		}
		m.adapt(n)
	}
	return written, nil
}

// errInvalidWrite is io.Copy's error for a writer that returns an impossible count.
var errInvalidWrite = errors.New("invalid write result")

// copyMemory is the memory that a copy from a connection reads into. While the copy waits its state
// is as follows. In between, memory is lent.
//
//	shown  busy   lent next                         after takeBack
//	false         a buffer of package pool          in the pool
//	true   0      *small, or new if that was        garbage, to which small and large
//	              collected                         point for as long as the collector
//	true   > 0    *large, the same                  leaves it
//
// So a busy copy to unknown code allocates next to nothing, and an idle one holds nothing after the
// next garbage collection.
type copyMemory struct {
	shown bool   // unknown code sees it
	lent  []byte // nil while the copy waits

	pooled *pool.Buffer

	busy  int // how many more reads may be small before the next one is expected to be small
	small weak.Pointer[[smallCopyBytes]byte]
	large weak.Pointer[[copyBytes]byte]
}

const (
	// smallCopyBytes is enough for a message of an interactive protocol. If messages are rarer than
	// garbage collections, it is allocated for each one, which takes little time compared to reading and
	// writing it.
	smallCopyBytes = 1 << 10

	// smallReadsMax is how many small reads in a row make the next one likely to be small: as many as
	// package zerocopy needs to copy instead of splicing.
	smallReadsMax = 8
)

// lend returns the memory. ReadReady calls it when there may be something to read.
func (m *copyMemory) lend() []byte {
	switch {
	case m.lent != nil: // the last read filled it
	case !m.shown:
		m.pooled = pool.Get(copyBytes)
		m.lent = m.pooled.Bytes()
	case m.busy == 0:
		m.lent = valueOrNew(&m.small)[:]
	default:
		m.lent = valueOrNew(&m.large)[:]
	}
	return m.lent
}

// valueOrNew returns the value that w points to, or makes it point to a new one if that was collected.
func valueOrNew[T any](w *weak.Pointer[T]) *T {
	p := w.Value()
	if p == nil {
		p = new(T)
		*w = weak.Make(p)
	}
	return p
}

// takeBack takes the memory back, if any is lent, because the copy is about to wait.
func (m *copyMemory) takeBack() {
	if m.pooled != nil {
		m.pooled.Release()
		m.pooled = nil
	}
	m.lent = nil
}

// adapt decides, after a read of n bytes, whether to lend the same memory for the next one, and how
// much to lend to unknown code after that.
func (m *copyMemory) adapt(n int) {
	if n >= smallCopyBytes {
		m.busy = smallReadsMax
	} else {
		m.busy = max(m.busy-1, 0)
	}
	// A read that didn't fill the memory has emptied the connection: the next read most likely waits. A
	// read that filled a small piece gives the next one a large piece.
	if n < copyBytes {
		m.takeBack()
	}
}

// copyBytesOf copies from r, which reads from source and nothing else, to w.
func copyBytesOf(source, r io.Reader, w io.Writer) (int64, error) {
	switch source.(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader: // as http.ServeContent often has
		b := pool.Get(copyBytes)
		defer b.Release()
		return io.CopyBuffer(w, r, b.Bytes())
	}
	return io.Copy(w, r)
}

// asReadFrom wraps an error as ReadFrom of c does.
func asReadFrom(c *net.TCPConn, err error) error {
	_, err = c.ReadFrom(errReader{err})
	return err
}

// errReader is a reader that fails.
type errReader struct{ err error }

func (f errReader) Read([]byte) (int, error) { return 0, f.err }

// connWithoutReadFrom and connWithoutWriteTo hide a method from io.Copy, which would call it again.
// They count the copied bytes.
type (
	connWithoutReadFrom struct{ c *Conn }
	connWithoutWriteTo  struct{ c *Conn }
)

func (w connWithoutReadFrom) Write(p []byte) (int, error) {
	n, err := w.c.Write(p)
	features.CopiedBytes.Add(uint64(n))
	return n, err
}

func (r connWithoutWriteTo) Read(p []byte) (int, error) {
	n, err := r.c.Read(p)
	features.CopiedBytes.Add(uint64(n))
	return n, err
}
