package zerocopy

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/sys"
)

// Sender sends memory over one TCP socket without copying it: with MSG_ZEROCOPY
// (Documentation/networking/msg_zerocopy.rst, since Linux 4.14) the kernel sends,
// and sends again if need be, from the memory of the process, and says on the
// socket's error queue when it is done with it. Until then the Sender holds a
// reference to the buffer, and has the descriptor held open, for with the
// descriptor the message would be lost: nobody would ever know when the memory may
// be used for something else.
//
// It is worth it for large buffers only, 10 KiB or more (same document), since
// looking up pages and reading completions costs, too. When the kernel says that it
// had to copy after all, as it does when the peer is on the same machine or the
// network device can't gather, the Sender stops asking for it.
//
// Each send, one system call that the kernel took, has a number:
//
//	state      meaning                              leaves by
//	sending    recorded, the system call is made    the call fails: forgotten, and its number is the
//	                                                next one's; or it succeeds: pending
//	pending    the kernel may read the buffer       a completion: done
//	done       the buffer is released               all before it are done, too: forgotten
//
// A completion can come while the call is still sending, since somebody else reads
// the error queue.
type Sender struct {
	// immutable
	holder   Holder
	bytesMin int // shorter sends are copied

	// atomic
	copies atomic.Bool // all sends are copied from now on

	mu struct {
		sync.Mutex
		// The sends in progress are sends[head:], in order, nil when done. The first
		// has the number base; numbers are modulo 2^32, as the kernel's are.
		sends []Buffer
		head  int
		base  uint32
	}
}

// NewSender returns a Sender for fd that does not copy sends of bytesMin bytes or
// more. fd must not have been used with MSG_ZEROCOPY before, nor may anybody else
// do so, or read its error queue, afterwards. On a socket that can't do without
// copying, the Sender copies.
func NewSender(fd int, holder Holder, bytesMin int) *Sender {
	s := &Sender{holder: holder, bytesMin: bytesMin}
	errno := sys.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1)
	if errno == syscall.ENOPROTOOPT {
		fastpath.MsgZerocopy.Refuse(errno) // a kernel before 4.14
	}
	if errno != 0 {
		s.copies.Store(true)
	}
	return s
}

// Write writes p to fd, the socket of NewSender, until all is written or something
// stops it, and never blocks: with [syscall.EAGAIN] the kernel's buffer is full, and
// Write is to be called again for the rest when there is room. Any other error is
// final: an errno of send(2), or [io.ErrUnexpectedEOF] if the kernel takes nothing
// without saying why. n is how much was written in any case.
//
// p is part of b's memory. Write retains b for each send that does not copy, until
// the kernel is done with it; until then nobody may write to p. The caller's own
// reference remains the caller's.
//
// It is not safe for concurrent use with itself, but it is with Drain.
func (s *Sender) Write(fd int, p []byte, b Buffer) (n int, err error) {
	for {
		wrote, errno := s.send(fd, p[n:][:min(len(p)-n, chunkBytesMax)], b)
		n += wrote
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0:
			return n, errno
		case n == len(p):
			return n, nil
		case wrote == 0:
			return n, io.ErrUnexpectedEOF
		}
	}
}

// send makes one system call, or a second one that copies.
func (s *Sender) send(fd int, p []byte, b Buffer) (n int, errno syscall.Errno) {
	if len(p) < s.bytesMin {
		return sys.Send(fd, p) // the end of a longer one
	}
	if s.copies.Load() || !fastpath.MsgZerocopy.On() {
		fastpath.ZerocopyDeclined.Add(1)
		return sys.Send(fd, p)
	}
	number := s.begin(b)
	n, errno = sys.SendZerocopy(fd, p)
	runtime.KeepAlive(b)
	if errno == 0 {
		fastpath.ZerocopyBytes.Add(uint64(n))
		return n, 0
	}
	s.abort(number)
	switch errno {
	case syscall.ENOBUFS:
		// Too many completions are outstanding (net.core.optmem_max), or too many
		// pages pinned (RLIMIT_MEMLOCK). That passes.
	case syscall.EOPNOTSUPP:
		s.copies.Store(true) // somebody has put another protocol on top (TCP_ULP)
	default:
		return 0, errno
	}
	fastpath.ZerocopyDeclined.Add(1)
	return sys.Send(fd, p)
}

// begin records a send that is about to be made and returns its number: before the
// system call, since its completion may be there before the call returns.
func (s *Sender) begin(b Buffer) (number uint32) {
	b.Retain()
	s.holder.Hold()
	m := &s.mu
	m.Lock()
	defer m.Unlock()
	if m.head > 0 && len(m.sends) == cap(m.sends) {
		kept := copy(m.sends, m.sends[m.head:])
		clear(m.sends[kept:])
		m.sends, m.head = m.sends[:kept], 0
	}
	m.sends = append(m.sends, b)
	return m.base + uint32(len(m.sends)-m.head-1)
}

// abort forgets the last send, which the kernel did not take: the next one gets its
// number.
func (s *Sender) abort(number uint32) {
	m := &s.mu
	m.Lock()
	var b Buffer
	if last := len(m.sends) - 1; last >= m.head && m.base+uint32(last-m.head) == number {
		b = m.sends[last]
		m.sends[last] = nil
		m.sends = m.sends[:last]
	}
	m.Unlock()
	s.release(b)
}

// Drain reads the error queue of fd, the socket of NewSender, until it is empty,
// and releases the buffers that the kernel is done with. It does not block. It is
// safe for concurrent use with Write, not with itself.
func (s *Sender) Drain(fd int) {
	for failures := 0; failures < drainFailuresMax; {
		c, ok, errno := sys.RecvCompletion(fd)
		switch {
		case errno == syscall.EAGAIN:
			return // it is empty
		case errno != 0:
			failures++
		case ok:
			s.complete(c)
		}
	}
}

// drainFailuresMax is after how many failures Drain gives up. EINTR and ENOMEM may
// come now and then (recvmsg(2)), and what is left in the queue then may have been
// its last message, which nothing else would call Drain for. No error lasts.
const drainFailuresMax = 8

// complete releases the buffers of the sends that c is about.
func (s *Sender) complete(c sys.Completion) {
	if c.Copied {
		s.copies.Store(true)
	}
	first, end := s.inProgress(c)
	for number := first; number != end; number++ {
		s.mu.Lock()
		b := s.doneLocked(number)
		s.mu.Unlock()
		if b != nil && c.Copied {
			fastpath.ZerocopyCopied.Add(1)
		}
		s.release(b)
	}
}

// inProgress returns which numbers of c, from first to before end, can be those of
// sends in progress: all of them, unless the kernel talks nonsense.
func (s *Sender) inProgress(c sys.Completion) (first, end uint32) {
	m := &s.mu
	m.Lock()
	defer m.Unlock()
	// Distances are right across the wrap of the numbers, as long as fewer than 2^31
	// sends are in progress.
	from := max(int32(c.First-m.base), 0)
	to := min(int32(c.Last-m.base)+1, int32(len(m.sends)-m.head))
	if from >= to {
		return m.base, m.base
	}
	return m.base + uint32(from), m.base + uint32(to)
}

// doneLocked marks a send as done and returns its buffer, or nil if it is not in
// progress (any more). It forgets the sends at the front that are done.
func (s *Sender) doneLocked(number uint32) Buffer {
	m := &s.mu
	i := int32(number - m.base)
	if i < 0 || int(i) >= len(m.sends)-m.head {
		return nil
	}
	b := m.sends[m.head+int(i)]
	m.sends[m.head+int(i)] = nil
	for m.head < len(m.sends) && m.sends[m.head] == nil {
		m.head++
		m.base++
	}
	if m.head == len(m.sends) {
		m.sends, m.head = m.sends[:0], 0
	}
	return b
}

// release ends a send, which b is the buffer of, or does nothing if it is nil.
func (s *Sender) release(b Buffer) {
	if b != nil {
		b.Release()
		s.holder.Unhold(1)
	}
}
