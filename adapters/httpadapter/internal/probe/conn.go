package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore"
)

// scriptListener is a listener that accepts some given connections.
type scriptListener struct{ conns []net.Conn }

func (l *scriptListener) Accept() (net.Conn, error) {
	if len(l.conns) == 0 {
		return nil, net.ErrClosed
	}
	c := l.conns[0]
	l.conns = l.conns[1:]
	return c, nil
}

func (l *scriptListener) Close() error   { return nil }
func (l *scriptListener) Addr() net.Addr { return addr{} }

// scriptConn is a connection in memory, on which a client plays a script. It compares each call
// with the expected ones, and fails every call from the first difference on.
type scriptConn struct {
	// immutable
	ends []ends
	done chan struct{} // closed when all calls have been made, or one differed

	mu     sync.Mutex
	change sync.Cond // of the fields below

	// guarded by mu
	pieces    []string      // the bytes that Reads will find
	given     int           // bytes that Reads have returned
	expected  []expectation // alternatives that agree with the calls made
	made      []string      // calls
	differs   error
	answered  int  // requests: StateIdle was reported
	busy      bool // StateActive was reported, and StateIdle was not
	past      bool // the read deadline has passed
	soon      bool // the read deadline is short
	closed    bool
	completed bool // done is closed
}

func newScriptConn(s script, expected []expectation) *scriptConn {
	c := &scriptConn{done: make(chan struct{}), expected: expected}
	c.change.L = &c.mu
	c.pieces, c.ends = s.pieces()
	return c
}

// Waiting is done in steps, so that a process that was stopped for a while does not mistake that
// for a slow net/http. Work of a millisecond may use up all the steps.
const (
	waitSteps = 100
	waitStep  = 50 * time.Millisecond
)

// await waits until net/http is done with the connection.
func (c *scriptConn) await() {
	timer := time.NewTimer(waitStep)
	defer timer.Stop()
	for range waitSteps {
		select {
		case <-c.done:
			return
		case <-timer.C:
			timer.Reset(waitStep)
		}
	}
}

// end makes all calls fail, including those that wait.
func (c *scriptConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if !c.completed {
		c.fail("nothing")
	}
	c.change.Broadcast()
}

// err returns the first difference.
func (c *scriptConn) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.differs
}

// agrees reports whether all calls match those of a way.
func (c *scriptConn) agrees(way Way) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.expected, func(e expectation) bool { return e.way == way })
}

// call records a call. It fails if another call was expected.
func (c *scriptConn) call(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.callLocked(name)
}

func (c *scriptConn) callLocked(name string) error {
	if c.differs != nil {
		return net.ErrClosed
	}
	n := len(c.made)
	differs := func(e expectation) bool { return len(e.calls) <= n || e.calls[n] != name }
	if !slices.ContainsFunc(c.expected, func(e expectation) bool { return !differs(e) }) {
		return c.fail(name)
	}
	c.expected = slices.DeleteFunc(c.expected, differs)
	c.made = append(c.made, name)
	if len(c.made) == len(c.expected[0].calls) {
		c.complete()
	}
	return nil
}

// fail records that a call differed from the expected one.
func (c *scriptConn) fail(got string) error {
	want := "nothing"
	if n := len(c.made); n < len(c.expected[0].calls) {
		want = c.expected[0].calls[n]
	}
	last := c.made[max(0, len(c.made)-3):]
	c.differs = fmt.Errorf("after %q came %q, and not %q", strings.Join(last, ", "), got, want)
	c.closed = true
	c.complete()
	c.change.Broadcast()
	return net.ErrClosed
}

func (c *scriptConn) complete() {
	if !c.completed {
		c.completed = true
		close(c.done)
	}
}

// told is called from net/http's ConnState.
func (c *scriptConn) told(state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch err := c.callLocked(state.String()); {
	case err != nil:
	case state == http.StateActive:
		c.busy = true
	case state == http.StateIdle:
		c.busy = false
		c.answered++
	}
}

// Read returns the next piece of the script.
func (c *scriptConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy {
		// net/http reads the body, or waits for the client to go away.
		for c.given >= c.ends[c.answered].request && !c.past && !c.closed {
			c.change.Wait()
		}
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.past:
			return 0, os.ErrDeadlineExceeded
		}
	} else if err := c.callLocked(c.readCall(len(p))); err != nil {
		return 0, err
	}
	if len(c.pieces) > 0 && c.pieces[0] == pause {
		c.pieces = c.pieces[1:]
		if c.soon {
			return 0, os.ErrDeadlineExceeded
		}
	}
	if len(c.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.pieces[0])
	c.given += n
	if c.pieces[0] = c.pieces[0][n:]; c.pieces[0] == "" {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

// readCall returns the name of a Read, with its size if net/http waits for a request.
func (c *scriptConn) readCall(size int) string {
	if c.answered > 0 && c.given-c.ends[c.answered-1].request < PeekBytes {
		return readCall(size)
	}
	return "Read"
}

func readCall(size int) string { return "Read of " + strconv.Itoa(size) + " bytes" }

// Write takes the answer.
func (c *scriptConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	if c.busy && c.written() {
		return len(p), nil
	}
	return len(p), c.callLocked("Write")
}

// written reports whether the last call was a Write. The caller holds mu.
func (c *scriptConn) written() bool { return len(c.made) > 0 && c.made[len(c.made)-1] == "Write" }

// Close records that net/http has closed the connection.
func (c *scriptConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.callLocked("Close")
	c.closed = true
	c.change.Broadcast()
	return err
}

// SetReadDeadline records a deadline, unless a handler runs.
func (c *scriptConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := timeLeft(t)
	c.past, c.soon = left < 0, left == soon
	c.change.Broadcast()
	if c.busy {
		return nil
	}
	return c.callLocked(deadlineCall("Read", left))
}

// SetWriteDeadline records a deadline, unless a handler runs. After the handler has run and the
// answer is written, net/http removes the deadline.
func (c *scriptConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy && !(t.IsZero() && c.written()) {
		return nil
	}
	return c.callLocked(deadlineCall("Write", timeLeft(t)))
}

// timeLeft returns how far away a deadline is, in hours if it was made from hours. It returns 0 for
// no deadline, soon for a short one, and a negative value for the past. A deadline that was short may
// have passed by now.
func timeLeft(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	left := time.Until(t)
	hours := left.Round(time.Hour)
	switch {
	case left < -soonMost:
		return -1
	case left < soonMost:
		return soon
	case (left - hours).Abs() < soonMost:
		return hours
	}
	return left
}

// soon stands for a deadline less than soonMost away, as net/http sets for a wait that keeps its
// buffers.
const (
	soon     = time.Nanosecond
	soonMost = 10 * time.Minute
)

func deadlineCall(direction string, left time.Duration) string {
	switch {
	case left < 0:
		return "Set" + direction + "Deadline(the past)"
	case left == 0:
		return "Set" + direction + "Deadline(none)"
	case left == soon:
		return "Set" + direction + "Deadline(soon)"
	}
	return "Set" + direction + "Deadline(in " + left.String() + ")"
}

// SetDeadline must not be called: net/http doesn't call it.
func (c *scriptConn) SetDeadline(time.Time) error { return c.call("SetDeadline") }

// CloseWrite must not be called: net/http calls it only in the middle of a request.
func (c *scriptConn) CloseWrite() error { return c.call("CloseWrite") }

// NetConn must not be called: net/http doesn't call it.
func (c *scriptConn) NetConn() net.Conn {
	_ = c.call("NetConn")
	return nil
}

func (c *scriptConn) LocalAddr() net.Addr  { return addr{} }
func (c *scriptConn) RemoteAddr() net.Addr { return addr{} }

// Leases returns a connection of each kind that scripts are played on. They have the methods of a
// lease that net/http might look for; a test of leases checks this.
func Leases() (plain, overTLS net.Conn) {
	c := newScriptConn(silentScript, silentScript.alternatives(limits{}, nil))
	return &tcpConn{c}, &tlsConn{c}
}

// tcpConn has the methods of a plain lease that net/http might look for.
type tcpConn struct{ *scriptConn }

func (c *tcpConn) CloseRead() error                  { return c.call("CloseRead") }
func (c *tcpConn) File() (*os.File, error)           { return nil, c.call("File") }
func (c *tcpConn) MultipathTCP() (bool, error)       { return false, c.call("MultipathTCP") }
func (c *tcpConn) ReadFrom(io.Reader) (int64, error) { return 0, c.call("ReadFrom") }
func (c *tcpConn) RemoteAddrPort() netip.AddrPort    { return netip.AddrPort{} }
func (c *tcpConn) SetKeepAlive(bool) error           { return c.call("SetKeepAlive") }
func (c *tcpConn) SetKeepAliveConfig(net.KeepAliveConfig) error {
	return c.call("SetKeepAliveConfig")
}
func (c *tcpConn) SetKeepAlivePeriod(time.Duration) error { return c.call("SetKeepAlivePeriod") }
func (c *tcpConn) SetLinger(int) error                    { return c.call("SetLinger") }
func (c *tcpConn) SetNoDelay(bool) error                  { return c.call("SetNoDelay") }
func (c *tcpConn) SetReadBuffer(int) error                { return c.call("SetReadBuffer") }
func (c *tcpConn) SetWriteBuffer(int) error               { return c.call("SetWriteBuffer") }
func (c *tcpConn) SyscallConn() (syscall.RawConn, error)  { return nil, c.call("SyscallConn") }
func (c *tcpConn) SetNoWait(bool) error                   { return c.call("SetNoWait") }
func (c *tcpConn) TCPInfo() (percore.TCPInfo, error)      { return percore.TCPInfo{}, c.call("TCPInfo") }
func (c *tcpConn) TryRead([]byte) (int, error)            { return 0, c.call("TryRead") }
func (c *tcpConn) WriteTo(io.Writer) (int64, error)       { return 0, c.call("WriteTo") }

// tlsConn has the methods of a lease over TLS.
type tlsConn struct{ *scriptConn }

func (c *tlsConn) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{HandshakeComplete: true}
}
func (c *tlsConn) Handshake() error                       { return nil }
func (c *tlsConn) HandshakeContext(context.Context) error { return nil }
func (c *tlsConn) OCSPResponse() []byte                   { return nil }
func (c *tlsConn) VerifyHostname(string) error            { return nil }
