package zerocopy

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/sys"
)

// errUrgent is why a transfer ends at a mark in the stream that is not its end.
var errUrgent = errors.New("zerocopy: splice stopped at urgent data")

// Small messages are copied. That takes two system calls a message; with splice it is three, since
// a splice that moved little does not mean that nothing is left, as it does for a read (epoll(7),
// "Questions and answers", 9). Measured: a fifth less CPU time at 128 bytes, a tenth at 4 KiB.
const (
	smallMax  = 4 << 10  // bytes that splice has moved at once
	smallRun  = 8        // times in a row, before copying begins
	copyBytes = 16 << 10 // the buffer; a read that fills it ends the copying
)

var copyBuffers = sync.Pool{New: func() any { return new([copyBytes]byte) }}

// Splice moves up to limit bytes from src to dst with splice(2), through a pipe of a pool. A negative
// limit means until the end of the stream. Both can be stream sockets and pipes; dst can also be a
// regular file, which is written to at its current offset. It returns, without an error, at the limit
// or at src's end. The caller decides what the end of src means for dst: CloseWrite, say.
//
// It blocks while src has nothing or dst takes no more, until the deadline passes, src's reading or
// dst's writing one, or the one waited for is closed. Reads of src wait while Splice waits for src,
// and writes to dst while it waits for dst, but never both: in between others may have their turn,
// up to a megabyte each. While Splice waits for src it holds nothing: no pipe, no buffer.
//
// Between sockets, small messages that follow each other, of up to 4 KiB, are copied,
// which is cheaper; they are counted.
//
// At a mark of TCP urgent data in a src that is a [Stream], Splice stops
// ([ErrUnfinished]) instead of waiting there.
//
// n counts the bytes that arrived at dst. If dst fails, bytes that had been taken from src and
// not been delivered are lost, as they are with a copy through a buffer.
//
// See the package's documentation for handled, and Error and ErrUnfinished for
// the errors. Descriptors in blocking mode are declined, as are other sockets
// than streams, other files than the above and files opened to append.
func Splice(dst, src syscall.RawConn, limit int64) (n int64, handled bool, err error) {
	if limit == 0 {
		return 0, true, nil
	}
	if !features.Splice.On() {
		return 0, false, errSwitchedOff
	}
	from, to := connOf(src), connOf(dst)
	if err := examine(from, Source); err != nil {
		return 0, false, err
	}
	if err := examine(to, Destination); err != nil {
		return 0, false, err
	}
	t := splicing{src: from, limit: limit}
	defer t.giveBack()
	drain, pump := t.drain, t.pump // closures: one of each for the whole transfer
	for t.n != limit {
		if err := src.Read(drain); err != nil {
			return t.n, true, &Error{Source, plain(err)}
		}
		switch {
		case t.why != nil:
			return unfinished(t.n, t.why)
		case t.errno != 0:
			return t.n, true, &Error{Source, t.errno}
		case t.buffered() == 0:
			return t.n, true, nil // the end of src
		}
		if err := dst.Write(pump); err != nil {
			return t.n, true, &Error{Destination, plain(err)}
		}
		switch {
		case t.failed != nil:
			return t.n, true, &Error{Destination, t.failed}
		case t.why != nil:
			return unfinished(t.n, t.why)
		}
	}
	return t.n, true, nil
}

// splicing is a transfer by splice. It alternates:
//
//	drain   src → pipe   begins with the pipe empty, or without one, so that EAGAIN
//	                     means that src has nothing; waits without a pipe
//	pump    pipe → dst   begins with bytes in the pipe and ends with it empty, so that
//	                     EAGAIN means that dst is full; keeps the pipe
//
// While it copies, a buffer is in the place of the pipe.
//
// A transfer that ends elsewhere than after a pump, or before one, leaves bytes
// in the pipe, which is then closed.
type splicing struct {
	src   conn
	limit int64 // negative: none
	n     int64 // arrived

	// at most one of the two; nil while none is needed
	pipe    *pipes.Pipe
	copying *[copyBytes]byte

	small    int  // how many messages in a row were small
	notASock bool // one end at least: no copying

	why    error         // why splice can't be used (any more); nothing is lost
	errno  syscall.Errno // why src failed
	failed error         // why dst failed

	buf     []byte // by which pump empties the pipe if dst refuses splice
	pending []byte // read, from the pipe or to be copied, and not yet written
}

// buffered returns how many bytes were taken from src and have not arrived.
func (t *splicing) buffered() int {
	if t.pipe != nil {
		return t.pipe.Buffered + len(t.pending)
	}
	return len(t.pending)
}

// giveBack gives the pipe, or the buffer, back.
func (t *splicing) giveBack() {
	if t.pipe != nil {
		pipes.Put(t.pipe)
		t.pipe = nil
	}
	if t.copying != nil {
		copyBuffers.Put(t.copying)
		t.copying = nil
	}
}

// drain moves src's bytes into the pipe. It is not done if there are none.
func (t *splicing) drain(in uintptr) (done bool) {
	if t.small >= smallRun && !t.notASock {
		if done = t.receive(int(in)); !t.notASock {
			return done
		}
	}
	if t.pipe == nil {
		if t.pipe, t.why = pipes.Get(); t.why != nil {
			return true
		}
	}
	for {
		n, errno := sys.Splice(t.pipe.W, int(in), t.room(t.pipe.Capacity))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			if t.src.isMarked() {
				if sys.HasData(int(in)) {
					t.why = errUrgent
					return true
				}
			}
			t.giveBack()
			return false
		case refuses(errno):
			t.refuse(errno)
		case errno != 0:
			t.errno = errno
		case n == 0:
			t.end(int(in))
		}
		t.pipe.Buffered += n
		t.countSmall(n, smallMax)
		return true
	}
}

// room returns how much to take from src at once: size, or the rest of the limit.
func (t *splicing) room(size int) int {
	if t.limit >= 0 {
		return int(min(int64(size), t.limit-t.n))
	}
	return size
}

// countSmall notes whether a message of n bytes was small.
func (t *splicing) countSmall(n, most int) {
	if n <= most {
		t.small++
	} else {
		t.small = 0
	}
}

// receive is drain while small messages are copied.
func (t *splicing) receive(in int) (done bool) {
	t.giveBack()
	t.copying = copyBuffers.Get().(*[copyBytes]byte)
	p := t.copying[:t.room(copyBytes)]
	for {
		n, errno := sys.Recv(in, p, false)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			t.giveBack()
			return false
		case errno == unix.ENOTSOCK:
			t.giveBack()
			t.notASock = true
			return false
		case errno != 0:
			t.errno = errno
		case 0 < n && n < len(p):
			t.src.drained()
		}
		t.pending = p[:n]
		t.countSmall(n, copyBytes-1)
		return true
	}
}

// end makes sure that splice returned 0 because src has ended. A TCP socket does so at urgent data
// that nothing follows, too (tcp_splice_read in net/ipv4/tcp.c), which a read gets past.
func (t *splicing) end(in int) {
	var b [1]byte
	n, errno := sys.Peek(in, b[:])
	switch {
	case errno == unix.ENOTSOCK: // a pipe has no marks
	case errno == unix.EAGAIN, errno == unix.EINTR, n > 0:
		t.why = errUrgent
	default:
		t.errno = errno
	}
}

// pump moves the pipe's bytes to dst. It is not done if dst is full.
func (t *splicing) pump(out uintptr) (done bool) {
	if t.copying != nil {
		if done = t.write(int(out)); done {
			t.giveBack()
		}
		return done
	}
	if t.why != nil {
		return t.drainByCopy(int(out))
	}
	for t.pipe.Buffered > 0 {
		n, errno := sys.Splice(int(out), t.pipe.R, t.pipe.Buffered)
		t.pipe.Buffered -= n
		t.n += int64(n)
		features.SpliceBytes.Add(uint64(n))
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return false
		case refuses(errno):
			t.refuse(errno)
			return t.drainByCopy(int(out))
		case errno != 0:
			t.failed = errno
			return true
		case n == 0:
			t.failed = io.ErrShortWrite
			return true
		}
	}
	return true
}

// drainByCopy moves the pipe's bytes to dst by reading and writing: dst does not
// take it otherwise, and src can't have it back.
func (t *splicing) drainByCopy(out int) (done bool) {
	if t.buf == nil {
		t.buf = make([]byte, copyBytes)
	}
	for t.failed == nil && t.buffered() > 0 {
		if len(t.pending) == 0 {
			n, errno := sys.Read(t.pipe.R, t.buf)
			if errno != 0 && errno != unix.EINTR {
				t.failed = errno
				return true
			}
			t.pipe.Buffered -= n
			t.pending = t.buf[:n]
		}
		if !t.write(out) {
			return false
		}
	}
	return true
}

// write writes the bytes that were read. It is not done if dst is full.
func (t *splicing) write(out int) (done bool) {
	for len(t.pending) > 0 {
		var n int
		var errno syscall.Errno
		if t.notASock {
			n, errno = sys.Write(out, t.pending)
		} else {
			n, errno = sys.Send(out, t.pending, false)
		}
		t.pending = t.pending[n:]
		t.n += int64(n)
		features.CopiedBytes.Add(uint64(n))
		switch {
		case errno == unix.EINTR, n > 0:
		case errno == 0:
			t.failed = io.ErrShortWrite
			return true
		case errno == unix.EAGAIN:
			return false
		case errno == unix.ENOTSOCK:
			t.notASock = true
		default:
			t.failed = errno
			return true
		}
	}
	return true
}

func (t *splicing) refuse(errno syscall.Errno) {
	t.why = errno
	if errno == unix.ENOSYS {
		features.Splice.Refuse(errno)
	}
}
