package handover

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/sys"
)

// stepNanoseconds is stepTimeout, which tests change.
var stepNanoseconds atomic.Int64

func init() { stepNanoseconds.Store(int64(10 * time.Second)) }

// stepTimeout is how long a process waits for an answer that the other can give at once. It limits
// how long waiting connections stay unserved because the other process hangs.
func stepTimeout() time.Duration { return time.Duration(stepNanoseconds.Load()) }

// beatNanoseconds and silenceNanoseconds are beatPause and silenceLimit, which tests change.
var beatNanoseconds, silenceNanoseconds atomic.Int64

func init() {
	beatNanoseconds.Store(int64(2 * time.Second))
	silenceNanoseconds.Store(int64(10 * time.Second))
}

// beatPause is the time between two signs of life of a process, which are messages without content.
func beatPause() time.Duration { return time.Duration(beatNanoseconds.Load()) }

// silenceLimit is how long a process may give no sign of life before the other takes it for hung.
// It is several beats, since a process on a loaded machine may miss one.
func silenceLimit() time.Duration { return time.Duration(silenceNanoseconds.Load()) }

// wire is one process's end of a handover. One goroutine may receive while others send.
type wire struct {
	conn     *net.UnixConn
	session  string // as far as it is known, see agree; immutable from beat on
	received int
	hears    bool   // the other process gives signs of life from now on; the receiver's
	buf, oob []byte // of receive

	mu   sync.Mutex
	sent int // guarded by mu

	beats   sync.WaitGroup
	endBeat context.CancelFunc // nil: beat was not called
}

// newWire takes ownership of c. It fails if c isn't the right kind of socket, or if checkPeer would
// fail.
func newWire(c *net.UnixConn) (*wire, error) {
	if err := checkWire(c); err != nil {
		c.Close()
		return nil, err
	}
	// One byte more than a message may have shows that one is too long.
	return &wire{conn: c, buf: make([]byte, bytesMax+1), oob: make([]byte, rightsBytesMax)}, nil
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
func (w *wire) send(m *message, fds ...int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.Session, m.Number, m.Descriptors = w.session, w.sent+1, len(fds)
	p, err := m.encode()
	if err != nil {
		return err
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(stepTimeout())); err != nil {
		return err
	}
	if err := writeMsg(w.conn, p, fds); err != nil {
		return fmt.Errorf("sending %q: %w", m.Kind, goneError(err, nil))
	}
	w.sent++
	return nil
}

// beat starts sending a sign of life every beatPause: the successor calls it when it has the sockets,
// and the predecessor when the successor is ready, since that doesn't receive before. A sign of life
// shows that the process runs, and no more: an answer has its own limit.
func (w *wire) beat() {
	ctx, end := context.WithCancel(context.Background())
	w.endBeat = end
	w.beats.Go(func() {
		for ctx.Err() == nil && w.send(&message{Kind: alive}) == nil { // if it fails receive sees the end
			select {
			case <-ctx.Done():
			case <-time.After(beatPause()):
			}
		}
	})
}

// lastWords returns the reason that the other process gave before it closed its end. If it gave no
// reason, lastWords returns err, the error that this process noticed it by.
func (w *wire) lastWords(err error) error {
	for errors.Is(err, ErrGone) {
		_, fds, receiveErr := w.receive(context.Background(), stepTimeout())
		if fds.close(); receiveErr != nil {
			return receiveErr
		}
	}
	return err
}

// refuse tells the other process why this one gives up.
func (w *wire) refuse(reason error) {
	_ = w.send(&message{Kind: refuse, Reason: oneLine(reason.Error())}) // if it fails, the other sees the end
}

// receive returns the next message and its descriptors, which the caller owns. A refusal is an
// error. Signs of life are skipped. It waits until ctx ends or the timeout passes; 0 is no limit.
func (w *wire) receive(ctx context.Context, timeout time.Duration) (*message, descriptors, error) {
	p := patience{timeout: timeout, hears: w.hears}
	for p.begin(); ; {
		m, fds, err := w.receiveUntil(ctx, p.tick)
		switch {
		case err == nil && m.Kind != alive:
			return m, fds, nil
		case err == nil:
			fds.close()
			p.heard = true
		case !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil:
			return nil, nil, goneError(err, ctx)
		default:
			if err := p.pass(); err != nil {
				if !hasCome(w.conn) {
					return nil, nil, err
				}
				p.begin() // the deadline passed before this process could read
			}
		}
	}
}

// patience is how long a process waits for a message. It counts ticks instead of reading the clock
// at the end, so that a process that was stopped, or whose machine slept, doesn't blame the other
// process: it reads the messages that came before it counts the next tick.
type patience struct {
	timeout time.Duration // for the message; 0: none
	hears   bool          // the other process gives signs of life
	heard   bool          // since the last tick

	tick           time.Time // the end of the current tick
	length         time.Duration
	waited, silent time.Duration
}

// begin begins a tick.
func (p *patience) begin() {
	p.length = beatPause()
	if left := p.timeout - p.waited; left > 0 {
		p.length = min(p.length, left)
	}
	p.tick = time.Now().Add(p.length)
}

// pass ends a tick, and fails if that was the last.
func (p *patience) pass() error {
	p.waited += p.length
	p.silent += p.length
	if p.heard || !p.hears {
		p.heard, p.silent = false, 0
	}
	switch limit := silenceLimit(); {
	case p.silent >= limit:
		return errSilent
	case p.timeout > 0 && p.waited >= p.timeout:
		return fmt.Errorf("the other process does not answer for %v", p.timeout)
	}
	p.begin()
	return nil
}

// receiveUntil returns the next message of any kind. It waits until ctx ends or the deadline passes.
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
		m, err = w.check(p, fds)
	}
	if err != nil {
		fds.close()
		return nil, nil, err
	}
	return m, fds, nil
}

// check decodes a message and checks that it is the next of this session.
func (w *wire) check(p []byte, fds descriptors) (*message, error) {
	m, err := decode(p)
	if err != nil {
		return nil, err
	}
	if m.Kind == refuse {
		return nil, errUnexpected(m)
	}
	if err := w.agree(m); err != nil {
		return nil, err
	}
	if w.received++; m.Number != w.received {
		return nil, fmt.Errorf("message %d came where number %d is due: it is repeated, or another is lost", m.Number, w.received)
	}
	if m.Descriptors != len(fds) {
		return nil, fmt.Errorf("a message %q came with %d descriptors instead of %d", m.Kind, len(fds), m.Descriptors)
	}
	return m, nil
}

// nonceBytes is the length of one process's half of a session.
const nonceBytes = 32

// newNonce returns one half of a session, which no other process has.
func newNonce() string {
	var b [nonceBytes / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// agree checks the message's session, and learns it from the first message:
//
//	session        held by                                   learned from, and becomes
//	""             the predecessor, at first                 hello; both halves
//	one half       the successor, which has sent hello       offer, both halves
//	both halves    both from then on
func (w *wire) agree(m *message) error {
	switch {
	case w.session == "":
		if m.Kind != hello {
			return errUnexpected(m, hello)
		}
		if len(m.Session) != nonceBytes {
			return errors.New("a hello without a session")
		}
		w.session = m.Session + newNonce()
	case len(w.session) == nonceBytes:
		if m.Kind != offer {
			return errUnexpected(m, offer)
		}
		if len(m.Session) != 2*nonceBytes || !strings.HasPrefix(m.Session, w.session) {
			return errOtherSession(m)
		}
		w.session = m.Session
	case m.Session != w.session:
		return errOtherSession(m)
	}
	return nil
}

func errOtherSession(m *message) error {
	return fmt.Errorf("a message %q of another handover", m.Kind)
}

// ErrGone is wrapped by the errors of Give, Take and Ready if the other process has ended or closed
// its socket without notice, or gives no sign of life.
var ErrGone = errors.New("the other process has gone")

// errSilent is about a process that hangs, or was stopped.
var errSilent = fmt.Errorf("%w: it gives no sign of life", ErrGone)

// ErrOvertaken is wrapped by the error of Give if another handover has succeeded in the meantime:
// its successor has the listeners. This process should shut its servers down.
var ErrOvertaken = errors.New("another process has taken over")

// goneError describes err, the error of a system call on the wire, in words. ctx belongs to a
// receiver, and may have ended its wait.
func goneError(err error, ctx context.Context) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return ErrGone
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case ctx != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("the other process does not take messages for %v", stepTimeout())
}

// stopReceiving makes the other process's sends fail from now on. Messages that it has sent before
// can still be received, and after them receive fails with ErrGone. So both processes agree on
// whether a message has arrived: unix_dgram_sendmsg and unix_shutdown, in the kernel's
// net/unix/af_unix.c, hold the receiver's lock.
func (w *wire) stopReceiving() { _ = w.conn.CloseRead() }

// close ends the handover. It first drops the messages that have not been received, with their
// descriptors: if any were left, the other process could not read the refusal of this one, but
// would get ECONNRESET.
func (w *wire) close() {
	if w.endBeat != nil {
		w.endBeat()
		defer w.beats.Wait() // at the latest when the socket is closed
	}
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
