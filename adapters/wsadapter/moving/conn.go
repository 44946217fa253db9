package moving

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
	"github.com/percore/percore/internal/monotime"
)

// ErrMoved is the error of a Write to a connection that has moved to another process. The End of its
// Session gets it, too.
var ErrMoved = errors.New("wsadapter: the connection has moved to another process")

// errTold is the error of writes after the adapter has sent a close message (RFC 6455, section 5.5.1).
var errTold = errors.New("wsadapter: the connection was told to end: the server restarts")

// conn is a conversation of a Group: the net.Conn below its wsadapter.Conn.
type conn struct {
	net.Conn // immutable after Hijack

	// immutable
	group   *Group
	request []byte // nil: it is too long, or no upgrade

	// immutable after Start
	remove func()        // from handover.Conns
	plain  *percore.Conn // below; nil: there is none, or TLS above it

	// gate is held by writes, and by a departure while the conversation is sealed.
	gate sync.Mutex

	// guarded by gate
	shaking  *handshake // nil: the answer to the upgrade was written
	agreed   agreement
	sent     link.Frames
	writeErr error // why nothing is written any more: ErrMoved or errTold

	wrote atomic.Bool // since the last Save began; set with gate held

	// mu is taken after gate, and before wsadapter.Conn's.
	mu sync.Mutex

	// guarded by mu
	conversation link.Conversation // nil before Start
	state        moveState
	closed       bool   // Close was called
	refused      reason // if not stays: why it can't move, or doesn't any more
	notBefore    int64  // monotime: when it may rest again
	counted      bool   // in counters.stayed
}

var _ link.Mover = (*conn)(nil)

// moveState says who has a conversation of a Group:
//
//	state     means                                               leaves by
//	arriving  the Restorer makes it; Close has no effect yet      Start, dismiss: staying
//	staying   it runs, or waits for the peer, as others do        poke: resting
//	resting   a departure has it: nothing reads, it isn't armed   save: saving; then seal: sealed;
//	                                                              resume: staying
//	saving    its Save is under way                               pack, when it has returned: resting;
//	                                                              resume, by pack, or by the Save itself
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
	stays       reason = iota // none: it can move
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

// reasonNames are the reasons in metrics.
var reasonNames = [reasons]string{
	noSave: "no_save", byTLS: "tls", byConn: "connection", byRequest: "request", byAnswer: "answer", byExtension: "extension",
	bySave: "save", byState: "state", busy: "busy",
}

// NetConn implements [link.Mover].
func (c *conn) NetConn() net.Conn { return c.Conn }

// Write writes what the library writes, except an answer that the client has had.
func (c *conn) Write(p []byte) (int, error) {
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	defer c.wrote.Store(true)
	head, skipped := 0, 0
	if h := c.shaking; h != nil {
		head = c.shake(p)
		if h.had != nil {
			if skipped = head; h.err != nil || skipped == len(p) {
				return skipped, h.err
			}
		}
	}
	n, err := c.Conn.Write(p[skipped:])
	n += skipped
	c.sent.Pass(p[min(head, n):n])
	if c.sent.Closing {
		c.refuse(busy)
	}
	return n, err
}

// accept ends a conversation's arrival, so that it can be closed.
func (c *conn) accept() (arrived bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != arriving {
		return false
	}
	c.state = staying
	return true
}

// Start implements [link.Mover].
func (c *conn) Start(v link.Conversation) (later bool) {
	nc := c.Conn
	_, overTLS := nc.(interface{ ConnectionState() tls.ConnectionState })
	if w, ok := nc.(interface{ NetConn() net.Conn }); ok && !overTLS {
		nc = w.NetConn()
	}
	c.plain, _ = nc.(*percore.Conn)
	_, saves := v.Session().(Saver)
	arrived := c.accept()
	c.gate.Lock()
	c.mu.Lock()
	c.conversation = v
	switch {
	case overTLS:
		c.refused = byTLS
	case c.plain == nil || v.Keeps():
		c.refused = byConn
	case c.request == nil:
		c.refused = byRequest
	case c.shaking != nil:
		c.refused = byAnswer
	case !c.agreed.isStateless():
		c.refused = byExtension
	case !saves:
		c.refused = noSave
	}
	c.mu.Unlock()
	c.gate.Unlock()
	c.group.mu.Lock()
	c.group.all[c] = struct{}{}
	c.group.mu.Unlock()
	c.remove = c.group.conns.Add(c.sendAway)
	return arrived && c.group.arrivals.holdBack(v)
}

// Leave implements [link.Mover].
func (c *conn) Leave() {
	c.group.mu.Lock()
	delete(c.group.all, c)
	c.group.mu.Unlock()
	c.remove()
}

// why returns the reason why the conversation can't move with d, or stays if it can, now or later.
func (c *conn) why(d *departure) reason {
	c.mu.Lock()
	refused := c.refused
	c.mu.Unlock()
	if refused == stays && (c.conversation.Keeps() || !d.takes(c.plain)) {
		return byConn
	}
	return refused
}

// refuse makes the conversation stay. It is also called when a close message is sent: the conversation
// is about to end, but its peer may never answer, and the others don't wait for that.
func (c *conn) refuse(why reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == stays {
		c.refused = why
	}
}

// Armed implements [link.Mover]. A departure publishes itself and then looks for armed conversations, so
// one of the two sees the other.
func (c *conn) Armed() {
	if d := c.group.leaving.Load(); d != nil {
		c.poke(d)
	}
}

// poke makes a conversation that waits for the peer come to rest.
func (c *conn) poke(d *departure) {
	if c.why(d) != stays {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group.leaving.Load() != d {
		return // d has ended, and would not resume the conversation
	}
	if c.state == staying && !c.closed && monotime.Now() >= c.notBefore && c.conversation.Disarm() {
		c.state = resting
	}
}

// isIn reports whether the conversation is in one of the states.
func (c *conn) isIn(states ...moveState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(states, c.state)
}

func (c *conn) setState(state moveState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = state
}

// resume gives a conversation back to its Session, from any state but moved. The conversation may rest
// again after postpone.
func (c *conn) resume(postpone time.Duration) {
	c.mu.Lock()
	c.state = staying
	c.notBefore = monotime.Now() + int64(postpone)
	c.mu.Unlock()
	c.conversation.Resume()
}

// seal makes writes wait. It reports false if a message is half written, a close message was sent, or
// something was written since the Save began, which may have returned a state that is too old.
func (c *conn) seal() bool {
	if !c.gate.TryLock() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.refused != stays || c.wrote.Load() || !c.sent.Between() {
		c.gate.Unlock()
		return false
	}
	c.state = sealed
	return true
}

// unseal ends what seal has begun. If the conversation has moved, it is over here.
func (c *conn) unseal(gone bool) {
	c.mu.Lock()
	c.state = resting
	if gone {
		c.state, c.writeErr = moved, ErrMoved
	}
	closed := c.closed
	c.mu.Unlock()
	c.gate.Unlock()
	if gone || closed {
		_ = c.Conn.Close()
	}
	if gone {
		counters.moved.Add(1)
		c.conversation.End(ErrMoved)
	}
}

// Close closes the connection. If it is sealed, another process may already have it: there it sees the
// end of the stream.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	switch c.state {
	case arriving:
		c.mu.Unlock()
		return nil
	case sealed:
		defer c.mu.Unlock() // before unseal looks
		return errors.Join(c.plain.CloseWrite(), c.plain.CloseRead())
	}
	c.mu.Unlock() // TLS's farewell may wait for the peer
	return c.Conn.Close()
}

// awayTime is how long a peer has to answer a close message, and to take it.
const awayTime = 10 * time.Second

// serviceRestart is the close code for a server that restarts (RFC 6455, section 7.4.2, and
// https://www.iana.org/assignments/websocket).
const serviceRestart = 1012

// sendAway sends a close message, whose answer the library reads.
func (c *conn) sendAway() {
	limit := time.Now().Add(awayTime)
	_ = c.Conn.SetWriteDeadline(limit) // also for a write that has the gate
	c.gate.Lock()
	defer c.gate.Unlock()
	switch {
	case c.writeErr != nil:
		return
	case c.sent.InFrame() || c.sent.Closing: // a write has failed, or the library has sent one
		_ = c.Close()
		return
	}
	c.writeErr = errTold
	c.refuse(busy)
	frame := binary.BigEndian.AppendUint16([]byte{link.Fin | link.Close, 2}, serviceRestart)
	if _, err := c.Conn.Write(frame); err != nil {
		_ = c.Close()
		return
	}
	_ = c.Conn.SetReadDeadline(limit) // or the Read fails anyway
}

// count counts a conversation that stays, once.
func (c *conn) count(why reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted || c.state == moved || c.closed {
		return
	}
	c.counted = true
	if why == stays {
		why = busy
	}
	counters.stayed[why].Add(1)
}
