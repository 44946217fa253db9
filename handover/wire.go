package handover

import (
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

// stepNanoseconds is stepTimeout, which tests change.
var stepNanoseconds atomic.Int64

func init() { stepNanoseconds.Store(int64(10 * time.Second)) }

// stepTimeout is how long a process waits for the other's next message before it takes that for hung. It
// limits how long waiting connections stay unserved because the other process hangs.
func stepTimeout() time.Duration { return time.Duration(stepNanoseconds.Load()) }

// settleTimeout is how long the predecessor waits for its servers to come back to Accept. It leaves half
// of the successor's patience for busy connections, and for what carriers save.
func settleTimeout() time.Duration { return stepTimeout() / 2 }

// wire is one process's end of a handover. One goroutine at a time uses it.
type wire struct {
	conn     *net.UnixConn
	buf, oob []byte // of receive
}

// newWire takes ownership of c, which start or inherited has returned.
func newWire(c *net.UnixConn) *wire {
	// One byte more than a message may have shows that one is too long.
	return &wire{c, make([]byte, bytesMax+1), make([]byte, rightsBytesMax)}
}

// descriptors came with a message.
type descriptors []int

// close closes the descriptors that have not been taken out. It calls close(2), never shutdown(2),
// since the connections may belong to the other process.
func (d descriptors) close() {
	for i, fd := range d {
		if fd >= 0 {
			sys.Close(fd)
			d[i] = -1
		}
	}
}

// send sends a message. If it fails the other process doesn't get the message: the kernel takes it
// whole or not at all.
func (w *wire) send(m *message, fds ...int) error { return w.sendWithin(stepTimeout(), m, fds...) }

func (w *wire) sendWithin(timeout time.Duration, m *message, fds ...int) error {
	p, err := m.encode()
	if err != nil {
		return err
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if err := writeMsg(w.conn, p, fds); err != nil {
		return fmt.Errorf("sending %q: %w", m.Kind, goneError(err, nil))
	}
	return nil
}

// say is send. If the other process has closed its end, the error is the reason that it gave, or errOver
// if it goes on by itself.
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

// refuse tells the other process why this one gives up. However short a step is it is tried: a successor
// that sees nothing but the end takes this process for dead, and goes on.
func (w *wire) refuse(reason error) {
	_ = w.sendWithin(refuseTimeout, &message{Kind: refuse, Reason: oneLine(reason.Error())})
}

// refuseTimeout is for an other process that reads nothing.
const refuseTimeout = 10 * time.Second

// await returns the next message, which has one of these kinds. It closes the message's descriptors.
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
// It counts ticks instead of reading the clock at the end, so that a process that was stopped, or whose
// machine slept, doesn't blame the other process: it reads the messages that came in that time.
func (w *wire) receive(ctx context.Context, timeout time.Duration) (*message, descriptors, error) {
	for ticks := 5; ; ticks-- {
		var tick time.Time // no end
		if timeout > 0 && ticks > 0 {
			tick = time.Now().Add(timeout / 5)
		}
		m, fds, err := w.receiveUntil(ctx, tick)
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return m, fds, goneError(err, ctx)
		}
		if ticks == 1 && !hasCome(w.conn) { // or the tick passed before this process could read
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
	if !stop() {
		<-stopped // otherwise it would end the wait for the next message
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

var (
	// errGone is wrapped by errors about a process that has ended or closed its socket without notice, or
	// hangs.
	errGone = errors.New("the other process has gone")

	// errSilent is about a process that hangs, or was stopped.
	errSilent = fmt.Errorf("%w: it has sent nothing", errGone)

	// errOver ends the successor's messages when it has taken over by itself.
	errOver = errors.New("the successor has taken over")
)

// goneError describes err, the error of a system call on the wire, in words. ctx belongs to a
// receiver, and may have ended its wait.
func goneError(err error, ctx context.Context) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return errGone
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case ctx != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("the other process does not take messages for %v", stepTimeout())
}

// stopReceiving makes the other process's sends fail from now on. Messages that it has sent before
// can still be received, and after them receive fails with errGone. So both processes agree on
// whether a message has arrived: unix_dgram_sendmsg and unix_shutdown, in the kernel's
// net/unix/af_unix.c, hold the receiver's lock.
func (w *wire) stopReceiving() { _ = w.conn.CloseRead() }

// close ends the handover. It first drops the messages that have not been received, with their
// descriptors: if any were left, the other process could not read the refusal of this one, but
// would get ECONNRESET.
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

// errMessage is wrapped by the errors of readMsg that are about one message; others may follow it.
var errMessage = errors.New("bad message")
