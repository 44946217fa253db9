package wsadapter

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/monotime"
)

// ErrMoved is the error of writes to a connection that another process has, and the error that
// Session.End gets for it.
var ErrMoved = errors.New("wsadapter: the connection has moved to another process")

// errTold is the error of writes after the adapter has sent a close message (RFC 6455, section 5.5.1).
var errTold = errors.New("wsadapter: the connection was told to end: the server restarts")

// movable wraps the net.Conn of a Conn that is in a Group.
type movable struct {
	net.Conn // immutable

	// immutable
	group   *Group
	conn    *Conn
	request []byte // nil: it is too long, or no upgrade
	arrived bool   // from another process

	// Start sets them.
	member member
	remove func()        // from handover.Conns
	plain  *percore.Conn // below; nil: there is none, or TLS above it

	// gate is held by writes, and by a departure while the conversation is sealed.
	gate sync.Mutex

	// guarded by gate
	shaking *handshake // nil: the answer to the upgrade was written
	agreed  agreement
	sent    frames
	told    bool // the adapter has sent a close message

	// written with gate held
	writes  atomic.Uint32
	closing atomic.Bool // a close message was sent, by the library or the adapter

	// mu is taken after gate, and before Conn.mu.
	mu sync.Mutex

	// guarded by mu
	state     moveState
	closed    bool   // Close was called
	refused   reason // if not stays: why it can't move, or doesn't any more
	notBefore int64  // monotime: when it may rest again
	counted   bool   // in counters.stayed
}

// newMovable adds c to the Group, before anything else uses it.
func (g *Group) newMovable(c *Conn, request []byte, shaking *handshake) *movable {
	m := &movable{Conn: c.Conn, group: g, conn: c, request: request, shaking: shaking}
	c.Conn = m
	return m
}

// moveState says who has a conversation of a Group:
//
//	state     means                                               leaves by
//	arriving  Restore makes it; Close has no effect yet           Start, or a refusal: staying
//	staying   it runs, or waits for the peer, as others do        take: resting
//	resting   a departure has it: nothing reads, it isn't armed   saved: saving; resume: staying
//	saving    its Save is under way, or has returned              seal: sealed; resume, by the Save itself
//	                                                              if it returns too late: staying
//	sealed    nothing in this process writes: writes wait, and    unseal: moved if the successor has it,
//	          Close ends the stream for both processes            otherwise resting
//	moved     another process has it; writes fail                 (final)
//
// A conversation that was closed in the meantime goes through resume as well: its Read then fails.
type moveState uint8

const (
	arriving moveState = iota
	staying
	resting
	saving
	sealed
	moved
)

// reason says why a conversation stays.
type reason uint8

const (
	stays       reason = iota // for no reason
	noSave                    // the Session is no Saver
	byTLS                     // the state of crypto/tls has no way out
	byConn                    // it can't be armed, or is of a listener that stays
	byRequest                 // the header of its upgrade is too long
	byAnswer                  // the library's answer to that was not understood
	byExtension               // an extension keeps state between messages
	bySave                    // Save returned an error
	byState                   // Save returned too much
	busy                      // it found no moment before the time was over, or is about to end
	reasons
)

// reasonNames are the reasons in figures.
var reasonNames = [reasons]string{
	noSave: "no_save", byTLS: "tls", byConn: "connection", byRequest: "request", byAnswer: "answer", byExtension: "extension",
	bySave: "save", byState: "state", busy: "busy",
}

// Write writes bytes of the library's.
func (m *movable) Write(p []byte) (int, error) {
	m.gate.Lock()
	defer m.gate.Unlock()
	if err := m.writeError(); err != nil {
		return 0, err
	}
	defer m.writes.Add(1)
	if m.shaking == nil {
		return m.writeFrames(p)
	}
	swallow := m.shaking.swallow != nil
	n, err := m.shake(p)
	switch {
	case !swallow:
		wrote, err := m.Conn.Write(p)
		m.pass(p[min(n, wrote):wrote])
		return wrote, err
	case err != nil:
		return 0, err
	case n == len(p):
		return n, nil
	}
	wrote, err := m.writeFrames(p[n:])
	return n + wrote, err
}

// writeError returns the reason why nothing may be written any more, or nil. The gate is held.
func (m *movable) writeError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.state == moved:
		return ErrMoved
	case m.told:
		return errTold
	}
	return nil
}

func (m *movable) writeFrames(p []byte) (int, error) {
	n, err := m.Conn.Write(p)
	m.pass(p[:n])
	return n, err
}

// pass notes bytes of frames that were written. The gate is held.
func (m *movable) pass(p []byte) {
	m.sent.pass(p)
	if m.sent.closing {
		m.closing.Store(true)
	}
}

// shake notes bytes of the answer to the upgrade, and returns how many of p these are.
func (m *movable) shake(p []byte) (n int, err error) {
	h := m.shaking
	n, done, err := h.write(p)
	if done && err == nil {
		m.shaking, m.agreed = nil, h.agreed
	}
	return n, err
}

// settled notes that the handshake is over.
func (m *movable) settled(agreed agreement) {
	m.gate.Lock()
	defer m.gate.Unlock()
	m.shaking, m.agreed = nil, agreed
}

// accept ends a conversation's arrival, so that it can be closed.
func (m *movable) accept() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == arriving {
		m.state = staying
	}
}

// start notes that there is a Session, before any of its methods is called.
func (m *movable) start(v member) {
	m.accept()
	m.gate.Lock()
	defer m.gate.Unlock()
	m.member = v
	nc := m.Conn
	_, overTLS := nc.(interface{ ConnectionState() tls.ConnectionState })
	if w, ok := nc.(interface{ NetConn() net.Conn }); ok && !overTLS {
		nc = w.NetConn()
	}
	m.plain, _ = nc.(*percore.Conn)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case overTLS:
		m.refused = byTLS
	case m.conn.socket == nil, m.plain == nil:
		m.refused = byConn
	case m.request == nil:
		m.refused = byRequest
	case m.shaking != nil:
		m.refused = byAnswer
	case !m.agreed.isStateless():
		m.refused = byExtension
	case v.saver() == nil:
		m.refused = noSave
	}
}

// why returns why the conversation can't move with d, or stays if it can, now or later. If its close
// message was sent it is about to end, but its peer may never answer: the others don't wait for that.
func (m *movable) why(d *departure) reason {
	m.mu.Lock()
	refused := m.refused
	m.mu.Unlock()
	m.conn.mu.Lock()
	kept := m.conn.linger >= keeping
	m.conn.mu.Unlock()
	switch {
	case refused != stays:
		return refused
	case m.closing.Load():
		return busy
	case kept, !d.takes(m.plain):
		return byConn
	}
	return stays
}

// mayRest reports whether d would take the conversation if it came to rest now.
func (m *movable) mayRest(d *departure) bool {
	if d == nil || m.why(d) != stays {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mayRestLocked()
}

func (m *movable) mayRestLocked() bool {
	return m.state == staying && !m.closed && m.refused == stays && monotime.Now() >= m.notBefore
}

// rest makes the conversation, which nothing reads and which is not armed, wait for its turn to move.
// It reports whether a departure has taken it.
func (m *movable) rest() bool {
	d := m.group.leaving.Load()
	return d != nil && m.why(d) == stays && d.take(m)
}

// poke makes a conversation that waits for the peer come to rest.
func (m *movable) poke(d *departure) {
	if !m.mayRest(d) {
		return
	}
	if m.conn.socket.CancelOnReadable() {
		counters.waiting.Add(-1)
		if !d.take(m) {
			sessionWorkers.Serve(m.member)
		}
		return
	}
	m.conn.endLinger()
}

// resume gives a conversation back to its Session, from any state but moved. The conversation may rest
// again after postpone.
func (m *movable) resume(postpone time.Duration) {
	m.mu.Lock()
	m.state = staying
	m.notBefore = monotime.Now() + int64(postpone)
	m.mu.Unlock()
	sessionWorkers.Serve(m.member)
}

// refuse is resume for a conversation that can no longer move.
func (m *movable) refuse(why reason) {
	m.mu.Lock()
	m.refused = why
	m.mu.Unlock()
	m.resume(0)
}

// seal makes writes wait. It reports false if a message is half written, a close message was sent, or
// something was written since the writes were counted: then Save may have returned a state that is too
// old.
func (m *movable) seal(writes uint32) bool {
	if !m.gate.TryLock() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.closing.Load() || m.writes.Load() != writes || !m.sent.between() {
		m.gate.Unlock()
		return false
	}
	m.state = sealed
	return true
}

// unseal ends what seal has begun. If the conversation has moved, it is over here.
func (m *movable) unseal(gone bool) {
	m.mu.Lock()
	m.state = resting
	if gone {
		m.state = moved
	}
	closed := m.closed
	m.mu.Unlock()
	m.gate.Unlock()
	if gone || closed {
		_ = m.Conn.Close()
	}
	if gone {
		counters.moved.Add(1)
		sessionWorkers.Serve(&departed{m.member})
	}
}

// departed is a conversation that has moved, for a worker.
type departed struct{ member }

func (d *departed) run() { d.finish(ErrMoved) }

// Close closes the connection. If it is sealed, another process may already have it: there it sees the
// end of the stream.
func (m *movable) Close() error {
	if done, err := m.markClosed(); done {
		return err
	}
	return m.Conn.Close() // without mu: TLS's farewell may wait for the peer
}

// markClosed notes a Close, after which the conversation isn't sealed, and reports whether there is
// nothing more to do.
func (m *movable) markClosed() (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	switch m.state {
	case arriving:
		return true, nil
	case sealed:
		return true, errors.Join(m.plain.CloseWrite(), m.plain.CloseRead())
	}
	return false, nil
}

// awayTime is how long a peer has to answer a close message, and to take it.
const awayTime = 10 * time.Second

// serviceRestart is the close code for a server that restarts (RFC 6455, section 7.4.2, and
// https://www.iana.org/assignments/websocket).
const serviceRestart = 1012

// sendAway sends a close message. The library reads the answer.
func (m *movable) sendAway() {
	limit := time.Now().Add(awayTime)
	_ = m.Conn.SetWriteDeadline(limit) // also for a write that has the gate
	m.gate.Lock()
	defer m.gate.Unlock()
	switch {
	case m.writeError() != nil:
		return
	case m.sent.pos != 0 || m.sent.closing: // a write has failed within a frame, or the library has told it
		_ = m.conn.Close()
		return
	}
	m.told = true
	m.closing.Store(true)
	frame := binary.BigEndian.AppendUint16([]byte{finBit | opClose, 2}, serviceRestart)
	if _, err := m.Conn.Write(frame); err != nil {
		_ = m.conn.Close()
		return
	}
	_ = m.Conn.SetReadDeadline(limit) // or the Read fails anyway
}

// leave ends the conversation's membership of its Group.
func (m *movable) leave() {
	m.group.drop(m)
	m.remove()
}
