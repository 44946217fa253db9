package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// FuzzConn runs random programs on a pair of connections. It compares each outcome with a simple
// model that one can trust: two queues of bytes and a few flags. The first byte of a program
// chooses the network. After it, each pair of bytes is an operation and its argument.
//
// A program is sequential, so its outcomes are determined; TestStressConn does the same things
// concurrently.
func FuzzConn(f *testing.F) {
	fuzzPrograms(f, runProgram)
}

// fuzzPrograms runs programs on each engine.
func fuzzPrograms(f *testing.F, run func(*testing.T, engine, []byte)) {
	for seed := range uint64(20) {
		f.Add(randomProgram(seed))
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		for _, e := range engines {
			run(t, e, program)
		}
	})
}

// TestRandomPrograms runs more programs than the fuzz target's seeds, always the same ones.
func TestRandomPrograms(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e engine) { runRandom(t, e, runProgram, 100, rounds(400)) })
}

// runRandom runs the random programs of count seeds, beginning with first.
func runRandom(t *testing.T, e engine, run func(*testing.T, engine, []byte), first uint64, count int) {
	for seed := first; seed < first+uint64(count); seed++ {
		run(t, e, randomProgram(seed))
		if t.Failed() {
			t.Fatalf("with the program of seed %d", seed)
		}
	}
}

func randomProgram(seed uint64) []byte {
	r := random(seed)
	program := make([]byte, 1+2*r.IntN(60))
	for i := range program {
		program[i] = byte(r.Uint32())
	}
	return program
}

// These are the outcomes of a program's operations, to print if one differs from the model.
type outcomes struct {
	t     *testing.T
	trace []string
}

// String returns one line for each outcome.
func (o *outcomes) String() string { return "\t" + strings.Join(o.trace, "\n\t") }

// want checks a result against the errors that the model allows; nil means success.
func (o *outcomes) want(what string, n int64, err error, allowed ...error) {
	o.t.Helper()
	o.trace = append(o.trace, fmt.Sprintf("%s: %d, %v", what, n, err))
	for _, a := range allowed {
		if err == a || a != nil && errors.Is(err, a) {
			return
		}
	}
	o.t.Errorf("%s: got %d, %v, want one of %v", what, n, err, allowed)
}

// A modelEnd is one end of the connection with its expected state.
type modelEnd struct {
	name string
	conn net.Conn
	peer *modelEnd

	sent     int // bytes this end has written so far, a prefix of pattern
	received int // bytes of the peer's pattern this end has read

	readExpired, writeExpired bool // a deadline has passed
	readShut, writeShut       bool // half-closed by this end
	closed                    bool

	// torn is set once the connection may be reset: the peer closed with unread data, or one end
	// was written to when it was deaf. From then on the model doesn't know the kernel's exact
	// errors, nor how much of the data survives.
	torn bool
}

// isDeaf reports whether the end is closed in both directions. Over TCP it
// answers any data with a reset.
func (e *modelEnd) isDeaf() bool { return e.closed || e.readShut && e.writeShut }

// waiting returns how many bytes can be read.
func (e *modelEnd) waiting() int { return e.peer.sent - e.received }

// A machine runs one program.
type machine struct {
	*outcomes
	kind testnet.Kind
	ends [2]*modelEnd
}

// maxInFlight limits the bytes that are written and not read, so that no write blocks.
const maxInFlight = 16 << 10

// runProgram interprets a program on e: the first end is the engine's.
func runProgram(t *testing.T, e engine, program []byte) {
	t.Helper()
	if len(program) == 0 {
		return
	}
	m := &machine{outcomes: &outcomes{t: t}, kind: []testnet.Kind{testnet.TCP4, testnet.Unix}[program[0]%2]}
	ln := testnet.Listen(t, e.listen, m.kind)
	server, client := e.connect(t, ln)
	defer ln.Close()
	defer server.Close()
	defer client.Close()
	m.ends[0] = &modelEnd{name: "srv", conn: server}
	m.ends[1] = &modelEnd{name: "cli", conn: client, peer: m.ends[0]}
	m.ends[0].peer = m.ends[1]
	testnet.Within(t, fmt.Sprintf("program %x on %s", program, e.name), func() {
		for rest := program[1:]; len(rest) >= 2 && !t.Failed(); rest = rest[2:] {
			m.step(rest[0], int(rest[1]))
		}
	})
	if t.Failed() {
		t.Logf("on %s over %s:\n%s", e.name, m.kind, m.outcomes)
	}
}

// step performs one operation: the low bit of op says at which end.
func (m *machine) step(op byte, arg int) {
	e := m.ends[op%2]
	switch op / 2 % 14 {
	case 0, 1, 2:
		m.write(e, arg*8)
	case 3, 4, 5:
		m.read(e, arg*8)
	case 6:
		m.blockedRead(e, arg)
	case 7:
		m.setReadDeadline(e, arg)
	case 8:
		m.setWriteDeadline(e, arg)
	case 9:
		m.timedRead(e)
	case 10:
		m.abortedRead(e)
	case 11:
		m.closeWrite(e)
	case 12:
		m.closeRead(e)
	case 13:
		if arg < 64 { // rarely, because little can be checked afterwards
			m.close(e)
		}
	}
}

func (m *machine) write(e *modelEnd, size int) {
	if e.sent-e.peer.received+size > maxInFlight || e.sent+size > muchData {
		return
	}
	n, err := e.conn.Write(pattern(e.sent + size)[e.sent:])
	what := fmt.Sprintf("%s.Write(%d)", e.name, size)
	wantN := 0
	switch {
	case e.closed:
		m.want(what, int64(n), err, net.ErrClosed)
	case e.writeExpired:
		m.want(what, int64(n), err, os.ErrDeadlineExceeded)
	case e.torn:
		m.want(what, int64(n), err, nil, syscall.EPIPE, syscall.ECONNRESET)
		wantN = n
	case e.writeShut && size == 0 && !m.kind.IsTCP():
		m.want(what, int64(n), err, nil, syscall.EPIPE)
	case e.writeShut && m.kind.IsTCP() && e.peer.closed:
		// The kernel may forget a peer that waits for our FIN after close(2), if too many wait. It
		// then answers the FIN with a reset (tcp_max_tw_buckets in tcp(7)).
		m.want(what, int64(n), err, syscall.EPIPE, syscall.ECONNRESET)
	case e.writeShut:
		m.want(what, int64(n), err, syscall.EPIPE)
	case m.kind.IsTCP() && e.peer.isDeaf():
		m.want(what, int64(n), err, nil)
		if size > 0 {
			e.torn, e.peer.torn = true, true
		}
		wantN = size
	case !m.kind.IsTCP() && (e.peer.closed || e.peer.readShut):
		if size == 0 {
			m.want(what, int64(n), err, nil, syscall.EPIPE)
			break
		}
		m.want(what, int64(n), err, syscall.EPIPE)
	default:
		m.want(what, int64(n), err, nil)
		wantN = size
	}
	if n != wantN {
		m.t.Errorf("%s: got count %d, want %d", what, n, wantN)
	}
	e.sent += n
}

func (m *machine) read(e *modelEnd, size int) {
	what := fmt.Sprintf("%s.Read(%d)", e.name, size)
	if size > 0 && m.wouldBlock(e) {
		return
	}
	buf := make([]byte, size)
	n, err := e.conn.Read(buf)
	switch {
	case e.closed:
		m.want(what, int64(n), err, net.ErrClosed)
	case size == 0:
		m.want(what, int64(n), err, nil)
	case e.readExpired:
		m.want(what, int64(n), err, os.ErrDeadlineExceeded)
	case e.torn:
		m.want(what, int64(n), err, nil, io.EOF, syscall.ECONNRESET)
	case e.waiting() > 0 && e.readShut:
		m.want(what, int64(n), err, nil, io.EOF)
	case e.waiting() > 0:
		m.want(what, int64(n), err, nil)
		if n == 0 {
			m.t.Errorf("%s: got nothing, want some of %d bytes", what, e.waiting())
		}
	default:
		m.want(what, int64(n), err, io.EOF)
	}
	m.take(e, what, buf[:n])
}

// take checks that received bytes are the next ones of the peer's pattern.
func (m *machine) take(e *modelEnd, what string, data []byte) {
	if len(data) > e.waiting() {
		m.t.Errorf("%s: got %d bytes, only %d were sent", what, len(data), e.waiting())
		return
	}
	if want := pattern(e.received + len(data))[e.received:]; !bytes.Equal(data, want) {
		m.t.Errorf("%s: got %x, want %x", what, data, want)
	}
	e.received += len(data)
}

// wouldBlock reports whether a read on e waits for something that the program
// has not done.
func (m *machine) wouldBlock(e *modelEnd) bool {
	return !e.closed && !e.readExpired && !e.readShut && e.waiting() == 0 && !e.peer.closed && !e.peer.writeShut
}

// beginRead starts a read that blocks, and returns the channel for its outcome.
func (m *machine) beginRead(e *modelEnd, buf []byte) <-chan readOutcome {
	outcome := make(chan readOutcome, 1)
	go func() {
		n, err := e.conn.Read(buf)
		outcome <- readOutcome{n, err}
	}()
	return outcome
}

// readOutcome is the result of a Read.
type readOutcome struct {
	n   int
	err error
}

// blockedRead reads when there is nothing to read. Then the peer does something about it.
func (m *machine) blockedRead(e *modelEnd, arg int) {
	if !m.wouldBlock(e) || e.peer.writeExpired || e.torn {
		return
	}
	buf := make([]byte, 512)
	outcome := m.beginRead(e, buf)
	if arg%4 == 0 {
		time.Sleep(time.Millisecond)
	}
	what := e.name + ".Read, blocked"
	switch arg / 4 % 5 {
	case 0, 1:
		m.write(e.peer, 1+arg)
		got := <-outcome
		m.want(what, int64(got.n), got.err, nil)
		m.take(e, what, buf[:got.n])
	case 2:
		m.closeWrite(e.peer)
		got := <-outcome
		m.want(what, int64(got.n), got.err, io.EOF)
	case 3:
		m.closeRead(e)
		got := <-outcome
		m.want(what, int64(got.n), got.err, io.EOF)
	case 4:
		m.close(e)
		got := <-outcome
		m.want(what, int64(got.n), got.err, net.ErrClosed)
	}
}

// abortedRead is a blocked read that a deadline ends.
func (m *machine) abortedRead(e *modelEnd) {
	if !m.wouldBlock(e) {
		return
	}
	outcome := m.beginRead(e, make([]byte, 16))
	m.setReadDeadline(e, 0)
	got := <-outcome
	m.want(e.name+".Read, aborted", int64(got.n), got.err, os.ErrDeadlineExceeded)
}

// timedRead is a read whose deadline passes while it waits.
func (m *machine) timedRead(e *modelEnd) {
	if !m.wouldBlock(e) {
		return
	}
	deadline := time.Now().Add(time.Millisecond)
	e.conn.SetReadDeadline(deadline)
	n, err := e.conn.Read(make([]byte, 16))
	if now := time.Now(); now.Before(deadline) {
		m.t.Errorf("%s.Read ended %v before its deadline", e.name, deadline.Sub(now))
	}
	m.want(e.name+".Read, timed", int64(n), err, os.ErrDeadlineExceeded)
	e.readExpired = true
}

// deadlineOf chooses a deadline that has passed, one that will not pass, or no deadline.
func deadlineOf(arg int) (when time.Time, expired bool) {
	switch arg % 3 {
	case 0:
		return longAgo, true
	case 1:
		return later(), false
	}
	return time.Time{}, false
}

func (m *machine) setReadDeadline(e *modelEnd, arg int) {
	when, expired := deadlineOf(arg)
	m.changed(e, fmt.Sprintf("%s.SetReadDeadline(expired: %t)", e.name, expired), e.conn.SetReadDeadline(when))
	e.readExpired = expired
}

func (m *machine) setWriteDeadline(e *modelEnd, arg int) {
	when, expired := deadlineOf(arg)
	m.changed(e, fmt.Sprintf("%s.SetWriteDeadline(expired: %t)", e.name, expired), e.conn.SetWriteDeadline(when))
	e.writeExpired = expired
}

// changed checks the outcome of a setter.
func (m *machine) changed(e *modelEnd, what string, err error) {
	if e.closed {
		m.want(what, 0, err, net.ErrClosed)
		return
	}
	m.want(what, 0, err, nil)
}

func (m *machine) closeWrite(e *modelEnd) {
	err := e.conn.(interface{ CloseWrite() error }).CloseWrite()
	m.halfClosed(e, e.name+".CloseWrite", err)
	e.writeShut = true
}

func (m *machine) closeRead(e *modelEnd) {
	err := e.conn.(interface{ CloseRead() error }).CloseRead()
	m.halfClosed(e, e.name+".CloseRead", err)
	e.readShut = true
}

// halfClosed checks the outcome of CloseRead and CloseWrite. TCP refuses once
// the connection has ended in both directions.
func (m *machine) halfClosed(e *modelEnd, what string, err error) {
	switch {
	case e.closed:
		m.want(what, 0, err, net.ErrClosed)
	case e.torn, e.writeShut, e.peer.closed:
		m.want(what, 0, err, nil, syscall.ENOTCONN)
	default:
		m.want(what, 0, err, nil)
	}
}

func (m *machine) close(e *modelEnd) {
	err := e.conn.Close()
	if e.closed {
		m.want(e.name+".Close", 0, err, net.ErrClosed)
		return
	}
	m.want(e.name+".Close", 0, err, nil)
	e.closed = true
	if e.waiting() > 0 {
		e.peer.torn = true
	}
}
