package zerocopy

import (
	"net"
	"os"
	"reflect"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/sys"
)

// sendfileBytesMax bounds one call. While the peer reads as fast as we send,
// sendfile goes on and on, and Close waits for it.
const sendfileBytesMax = 4 << 20

// SendFile sends up to limit bytes of the file src, from its current offset, to the stream socket
// dst, with sendfile(2). A negative limit means until the end of the file. The offset ends behind
// the sent bytes. It returns early, and without an error, at the end of the file.
//
// It blocks while dst takes no more, until dst's write deadline passes or dst is closed; the file
// may also have to come from a disk, which nothing interrupts. Other writes to dst wait for it, and
// so do reads of src. A dst that is a [Stream] is asked now and then whether it was closed, while
// the peer reads so fast that there is nothing to wait for.
//
// See the package's documentation for handled, and Error and ErrUnfinished for
// the errors. Files that sendfile can't read are declined: pipes, sockets, those
// of some file systems. So is a dst in blocking mode.
func SendFile(dst, src syscall.RawConn, limit int64) (n int64, handled bool, err error) {
	if limit == 0 {
		return 0, true, nil
	}
	if !features.Sendfile.On() {
		return 0, false, errSwitchedOff
	}
	to := connOf(dst)
	var t *sending
	if reused := to.owner != nil && reflect.TypeOf(src) == fileRawConn; reused {
		t = sendings.Get().(*sending)
		defer t.release()
	} else {
		t = newSending()
	}
	t.dst, t.limit = to, limit
	if rerr := src.Read(t.readFunc); rerr != nil { // then read was not called
		t.err = plain(rerr)
	}
	return t.n, t.handled, t.err
}

// sending is a transfer by sendfile.
type sending struct {
	dst    conn
	limit  int64 // negative: none
	in     int
	begun  bool  // dst could be written to
	why    error // why sendfile can't be used
	failed error // why it failed

	// its result
	n       int64
	handled bool
	err     error

	readFunc, writeFunc func(fd uintptr) (done bool) // the methods, as the RawConns want them
}

// sendings are those without a user: a small file costs no allocation. A raw connection of another
// package may keep the functions that it was given and call them later, in the middle of a transfer
// between others. So a transfer with one has a sending of its own.
var sendings = sync.Pool{New: func() any { return newSending() }}

// fileRawConn is the type of an os.File's raw connection, which keeps no function.
var fileRawConn = func() reflect.Type {
	raw, _ := os.Stdin.SyscallConn() // any file does
	return reflect.TypeOf(raw)
}()

func newSending() *sending {
	t := new(sending)
	t.readFunc, t.writeFunc = t.read, t.write
	return t
}

// release keeps t for another transfer.
func (t *sending) release() {
	*t = sending{readFunc: t.readFunc, writeFunc: t.writeFunc}
	sendings.Put(t)
}

// read is called with the source: now dst is wanted.
func (t *sending) read(in uintptr) (done bool) {
	t.in = int(in)
	werr := t.dst.Write(t.writeFunc)
	t.handled = true
	switch {
	case !t.begun: // closed, or past its deadline
		t.handled, t.err = false, plain(werr)
	case werr != nil: // while it waited
		t.err = &Error{Destination, plain(werr)}
	case t.why != nil:
		t.n, t.handled, t.err = unfinished(t.n, t.why)
	case t.failed == unix.EIO:
		t.err = &Error{Source, t.failed}
	case t.failed != nil:
		t.err = &Error{Destination, t.failed}
	}
	return true
}

// write sends as much as dst takes. It is not done if dst is full.
func (t *sending) write(out uintptr) (done bool) {
	if !t.begun {
		t.begun = true
		if !t.dst.isKnown() {
			if t.why = mustNotBlock(int(out)); t.why != nil {
				return true
			}
		}
	}
	for {
		count := int64(sendfileBytesMax)
		if t.limit >= 0 {
			count = min(count, t.limit-t.n)
		}
		n, errno := sys.Sendfile(int(out), t.in, int(count))
		t.n += int64(n)
		features.SendfileBytes.Add(uint64(n))
		switch {
		case errno == 0:
			if n == 0 || t.n == t.limit {
				return true
			}
			if t.dst.isClosed() {
				t.failed = net.ErrClosed
				return true
			}
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return !t.dstIsFull()
		case refuses(errno):
			if errno == unix.ENOSYS {
				features.Sendfile.Refuse(errno)
			}
			t.why = errno
			return true
		default:
			t.failed = errno
			return true
		}
	}
}

// dstIsFull reports whether EAGAIN is about dst, as with regular files it is. A device that has
// nothing to read may say EAGAIN too, and waiting for dst, which has room, would last forever.
func (t *sending) dstIsFull() bool {
	mode, errno := sys.FileType(t.in)
	if errno == 0 && mode != unix.S_IFREG {
		t.why = errFileType
	}
	return t.why == nil
}
