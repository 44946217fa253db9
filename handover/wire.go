package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/sys"
)

// stepNanoseconds is the value of stepTimeout. Tests change it.
var stepNanoseconds atomic.Int64

func init() { stepNanoseconds.Store(int64(10 * time.Second)) }

// stepTimeout is how long a process waits for the next message before it considers the other process
// hung: so long may connections stay unserved.
func stepTimeout() time.Duration { return time.Duration(stepNanoseconds.Load()) }

// sendTimeout is how long a packet may wait for a process that doesn't read.
const sendTimeout = 10 * time.Second

// settleTimeout is how long the predecessor waits for its servers to come back to Accept. It leaves half
// of the successor's patience for busy connections, and for what carriers save.
func settleTimeout() time.Duration { return stepTimeout() / 2 }

// packetBytes is the length of a message's packets except the last, which is shorter and has at least a
// byte. The kernel takes so many: net.core.wmem_default is 208 KiB.
const packetBytes = 128 << 10

// wire is one end of a handover: a socket that preserves the boundaries of packets. Only one goroutine
// at a time may use it.
type wire struct {
	conn     *net.UnixConn
	buf, oob []byte // used by receive
}

// newWire takes ownership of c, which start or inherited has returned.
func newWire(c *net.UnixConn) *wire {
	// With one byte more than the limit, receive notices packets that are too long.
	return &wire{c, make([]byte, packetBytes+1), make([]byte, rightsBytesMax)}
}

// descriptors came with a message.
type descriptors []int

// close closes those that were not taken out. It doesn't call shutdown(2): the connections may belong to
// the other process.
func (d descriptors) close() {
	for i, fd := range d {
		if fd >= 0 {
			sys.Close(fd)
			d[i] = -1
		}
	}
}

// send sends a message. If send fails, the other process doesn't get it: the kernel takes a packet
// whole or not at all. Only conns and offers take several.
func (w *wire) send(m *message, fds ...int) error {
	p, err := m.encode()
	if err != nil {
		return err
	}
	if len(p)%packetBytes == 0 {
		p = append(p, ' ')
	}
	for len(p) > 0 {
		if err := w.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return err
		}
		n := min(len(p), packetBytes)
		if err := writeMsg(w.conn, p[:n], fds); err != nil {
			return fmt.Errorf("sending %q: %w", m.Kind, goneError(err, nil))
		}
		p, fds = p[n:], nil
	}
	return nil
}

// say is like send. If the other process has closed its end, the error is the reason it gave, or
// errOver if it goes on alone.
func (w *wire) say(m *message, fds ...int) error {
	err := w.send(m, fds...)
	for errors.Is(err, errGone) {
		m, fds, receiveErr := w.receive(context.Background(), stepTimeout())
		fds.close()
		switch {
		case receiveErr != nil:
			return receiveErr
		case m.Kind == over:
			return errOver
		}
	}
	return err
}

// refuse tells the other process why this process gives up. A successor that sees only the end considers
// this process dead, and goes on.
func (w *wire) refuse(reason error) {
	_ = w.send(&message{Kind: refuse, Reason: oneLine(reason.Error())})
}

// await returns the next message, which must be of a wanted kind. It closes the message's descriptors.
func (w *wire) await(ctx context.Context, timeout time.Duration, want ...kind) (*message, error) {
	m, fds, err := w.receive(ctx, timeout)
	fds.close()
	if err == nil && !slices.Contains(want, m.Kind) {
		err = errUnexpected(m, want...)
	}
	return m, err
}

// receive returns the next message and its descriptors, which the caller owns. A refusal is an error. It
// waits until ctx ends or the timeout passes; 0 is no limit.
//
// It counts ticks instead of reading the clock at the end. So a process that was stopped, or whose
// machine slept, doesn't blame the other process: it reads the messages that have come in that time.
func (w *wire) receive(ctx context.Context, timeout time.Duration) (*message, descriptors, error) {
	for ticks := 5; ; ticks-- {
		var tick time.Time // no deadline
		if timeout > 0 && ticks > 0 {
			tick = time.Now().Add(timeout / 5)
		}
		m, fds, err := w.receiveUntil(ctx, tick)
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return m, fds, goneError(err, ctx)
		}
		if ticks == 1 && !hasCome(w.conn) { // a message may have come after the tick passed
			return nil, nil, fmt.Errorf("%w for %v", errSilent, timeout)
		}
	}
}

// receiveUntil returns the next message. It waits until ctx ends or the deadline passes.
func (w *wire) receiveUntil(ctx context.Context, deadline time.Time) (*message, descriptors, error) {
	if err := w.conn.SetReadDeadline(deadline); err != nil {
		return nil, nil, err
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		w.conn.SetReadDeadline(monotime.LongAgo)
	})
	p, fds, err := readMsg(w.conn, w.buf, w.oob)
	if err == nil && len(p) == packetBytes {
		p, err = w.receiveRest(ctx, bytes.Clone(p))
	}
	if !stop() {
		<-stopped // otherwise ctx could end the wait for the next message
	}
	var m *message
	if err == nil {
		m, err = decode(p, len(fds))
	}
	if err == nil && m.Kind == refuse {
		err = errUnexpected(m)
	}
	if err != nil {
		fds.close()
		return nil, nil, err
	}
	return m, fds, nil
}

// receiveRest returns the message that begins with the packet p. Its sender doesn't wait between
// packets.
func (w *wire) receiveRest(ctx context.Context, p []byte) ([]byte, error) {
	for len(p)%packetBytes == 0 {
		if len(p) > bytesMax {
			return nil, fmt.Errorf("a message is longer than %d bytes", bytesMax)
		}
		_ = w.conn.SetReadDeadline(time.Now().Add(stepTimeout()))
		if ctx.Err() != nil { // its own deadline may have been set before
			return nil, os.ErrDeadlineExceeded
		}
		next, fds, err := readMsg(w.conn, w.buf, w.oob)
		fds.close()
		switch {
		case err == nil:
			p = append(p, next...)
		case !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil:
			return nil, err
		case !hasCome(w.conn): // or this process was stopped
			return nil, fmt.Errorf("%w for %v, within a message", errSilent, stepTimeout())
		}
	}
	return p, nil
}

var (
	// errGone is wrapped by errors about a process that hangs, has ended, or has closed its socket without
	// notice.
	errGone = errors.New("the other process has gone")

	// errSilent means that the other process hangs, or was stopped.
	errSilent = fmt.Errorf("%w: it has sent nothing", errGone)

	// errOver ends the messages of a successor that has taken over alone.
	errOver = errors.New("the successor has taken over")
)

// goneError explains err, the error of a system call on the wire. ctx belongs to the receiver, and may
// have ended its wait.
func goneError(err error, ctx context.Context) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return errGone
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case ctx != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("the other process does not take messages for %v", sendTimeout)
}

// stopReceiving makes all later sends of the other process fail. Messages sent before can still be
// received, and after them receive fails with errGone. So both processes agree on whether a message has
// arrived: unix_dgram_sendmsg and unix_shutdown, in the kernel's net/unix/af_unix.c, hold the lock of
// the receiver.
func (w *wire) stopReceiving() { _ = w.conn.CloseRead() }

// close ends the handover. It first drops the messages not received yet, with their descriptors: if any
// were left, the other process would get ECONNRESET instead of the refusal.
func (w *wire) close() {
	w.stopReceiving()
	for {
		_ = w.conn.SetReadDeadline(time.Now().Add(stepTimeout()))
		_, fds, err := readMsg(w.conn, w.buf, w.oob)
		fds.close()
		if err != nil && !errors.Is(err, errMessage) {
			break
		}
	}
	w.conn.Close()
}

// errMessage is wrapped by errors of readMsg about a single message; more messages may follow.
var errMessage = errors.New("bad message")
