package zerocopy

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/sys"
)

// errUrgent is why a transfer ends at a mark in the stream that is not its end.
var errUrgent = errors.New("zerocopy: splice stopped at urgent data")

// unloadBytes is the size of the buffer by which a pipe is emptied that can't be
// spliced from.
const unloadBytes = 32 << 10

// Splice moves up to limit bytes from src to dst with splice(2), through a pipe
// of a pool. A negative limit means until the end of the stream. Both can be
// stream sockets and pipes; dst can also be a regular file, which is written to
// at its current offset. It returns, without an error, at the limit or at src's
// end. What it is to do when src ends, CloseWrite on dst say, is the caller's.
//
// It blocks while src has nothing or dst takes no more, until the deadline
// passes, src's reading or dst's writing one, or the one waited for is closed.
// Reads of src wait while Splice waits for src, and writes to dst while it waits
// for dst, but never both: in between others may have their turn, up to a
// megabyte each. While Splice waits for src it holds nothing: no pipe, no buffer.
//
// n counts what arrived at dst. If dst fails what had been taken from src and
// not been delivered is lost, as it is with a copy through a buffer.
//
// See the package's documentation for handled, and Error and ErrUnfinished for
// the errors. Descriptors in blocking mode are declined, as are other sockets
// than streams, other files than the above and files opened to append.
func Splice(dst, src syscall.RawConn, limit int64) (n int64, handled bool, err error) {
	if limit == 0 {
		return 0, true, nil
	}
	n, handled, err = splice(dst, src, limit)
	if handled {
		fastpath.SpliceTransfers.Add(1)
	} else {
		fastpath.SpliceDeclined.Add(1)
	}
	return n, handled, err
}

func splice(dst, src syscall.RawConn, limit int64) (int64, bool, error) {
	if !fastpath.Splice.On() {
		return 0, false, errSwitchedOff
	}
	if err := examine(src, Source); err != nil {
		return 0, false, err
	}
	if err := examine(dst, Destination); err != nil {
		return 0, false, err
	}
	t := splicing{limit: limit}
	defer t.givePipeBack()
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
		case t.pipe.Inside == 0:
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
// A transfer that ends elsewhere than after a pump, or before one, leaves bytes
// in the pipe, which is then closed.
type splicing struct {
	limit int64       // negative: none
	n     int64       // arrived
	pipe  *pipes.Pipe // nil while none is needed

	why    error         // why splice can't be used (any more); nothing is lost
	errno  syscall.Errno // why src failed
	failed error         // why dst failed

	// by which pump empties the pipe if dst refuses splice
	buf   []byte
	carry []byte // read from the pipe and not yet written
}

func (t *splicing) givePipeBack() {
	if t.pipe != nil {
		pipes.Put(t.pipe)
		t.pipe = nil
	}
}

// drain moves what src has into the pipe. It is not done if that is nothing.
func (t *splicing) drain(in uintptr) (done bool) {
	if t.pipe == nil {
		if t.pipe, t.why = pipes.Get(); t.why != nil {
			return true
		}
	}
	count := int64(t.pipe.Capacity)
	if t.limit >= 0 {
		count = min(count, t.limit-t.n)
	}
	for {
		n, errno := sys.Splice(t.pipe.W, int(in), int(count))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			t.givePipeBack()
			return false
		case refuses(errno):
			t.refuse(errno)
		case errno != 0:
			t.errno = errno
		case n == 0:
			t.end(int(in))
		}
		t.pipe.Inside += n
		return true
	}
}

// end makes sure that splice returned 0 because src has ended. A TCP socket does
// so at urgent data, too (tcp_splice_read in net/ipv4/tcp.c), which a read gets past.
func (t *splicing) end(in int) {
	n, errno := sys.Peek(in)
	switch {
	case errno == unix.ENOTSOCK: // a pipe has no marks
	case errno == unix.EAGAIN, errno == unix.EINTR, n > 0:
		t.why = errUrgent
	default:
		t.errno = errno
	}
}

// pump moves what is in the pipe to dst. It is not done if dst is full.
func (t *splicing) pump(out uintptr) (done bool) {
	if t.why != nil {
		return t.unload(int(out))
	}
	for t.pipe.Inside > 0 {
		n, errno := sys.Splice(int(out), t.pipe.R, t.pipe.Inside)
		t.pipe.Inside -= n
		t.n += int64(n)
		fastpath.SpliceBytes.Add(uint64(n))
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return false
		case refuses(errno):
			t.refuse(errno)
			return t.unload(int(out))
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

// unload moves what is in the pipe to dst by reading and writing: dst does not
// take it otherwise, and src can't have it back.
func (t *splicing) unload(out int) (done bool) {
	if t.buf == nil {
		t.buf = make([]byte, unloadBytes)
	}
	for t.pipe.Inside+len(t.carry) > 0 {
		if len(t.carry) == 0 {
			n, errno := sys.Read(t.pipe.R, t.buf)
			if errno != 0 && errno != unix.EINTR {
				t.failed = errno
				return true
			}
			t.pipe.Inside -= n
			t.carry = t.buf[:n]
		}
		n, errno := sys.Write(out, t.carry)
		t.carry = t.carry[n:]
		t.n += int64(n)
		fastpath.CopiedBytes.Add(uint64(n))
		switch errno {
		case 0, unix.EINTR:
		case unix.EAGAIN:
			return false
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
		fastpath.Splice.Refuse(errno)
	}
}
