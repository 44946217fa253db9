package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// FuzzConn plays random programs on a pair of connections. A program is a script of the differential
// suite that is drawn: its transcripts on net and on percore must be equal. The first byte of a program
// chooses the network. After it, each pair of bytes is an operation and its argument.
//
// A program is sequential, and waits for what the kernel does in the background, so its outcomes are
// determined; TestStressConn does the same things concurrently.
func FuzzConn(f *testing.F) {
	fuzzPrograms(f, func(t *testing.T, program []byte) { comparePrograms(t, netEngine, percoreEngine, program) })
}

// fuzzPrograms fuzzes run, beginning with some random programs.
func fuzzPrograms(f *testing.F, run func(t *testing.T, program []byte)) {
	for seed := range uint64(20) {
		f.Add(randomProgram(seed))
	}
	f.Fuzz(run)
}

// TestRandomPrograms runs more programs than the fuzz target's seeds, always the same ones.
func TestRandomPrograms(t *testing.T) {
	testnet.NoLeaks(t)
	defer wantNoBuffers(t)()
	runRandom(t, 100, rounds(800), func(t *testing.T, program []byte) { comparePrograms(t, netEngine, percoreEngine, program) })
}

// runRandom runs the random programs of count seeds, beginning with first.
func runRandom(t *testing.T, first uint64, count int, run func(t *testing.T, program []byte)) {
	for seed := first; seed < first+uint64(count); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(t, randomProgram(seed)) })
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

// comparePrograms plays a program on an engine and on the reference.
func comparePrograms(t *testing.T, reference, e engine, program []byte) {
	if len(program) == 0 {
		return
	}
	kinds := testnet.Kinds()
	kind := kinds[int(program[0])%len(kinds)]
	testnet.Address(t, kind) // skips if the kind is missing
	compareEngines(t, script{play: func(s *stage) { playProgram(s, program[1:]) }}, kind, reference, e)
}

// playProgram plays the operations of a program.
func playProgram(s *stage, operations []byte) {
	ln := s.listen()
	defer ln.Close()
	srv, cli := s.connect(ln)
	ends := [2]*end{{actor: srv}, {actor: cli}}
	ends[0].peer, ends[1].peer = ends[1], ends[0]
	for ; len(operations) >= 2; operations = operations[2:] {
		ends[operations[0]%2].step(operations[0]/2, int(operations[1]))
	}
	_ = srv.Conn.Close()
	_ = cli.Conn.Close()
}

// An end is one end of a program's connection, with what has to be known about it: whether a call would
// wait for something that the program has not done, and what the kernel has still to do.
type end struct {
	*actor
	peer *end

	sent     int // bytes this end has written so far, a prefix of pattern
	received int // bytes of the peer's pattern this end has read

	readExpired, writeExpired bool // a deadline has passed
	readShut, writeShut       bool // half-closed by this end
	closed                    bool
	broken                    bool // reset
}

// maxInFlight limits the bytes that are written and not read, so that no write blocks.
const maxInFlight = 16 << 10

// step performs one operation.
func (e *end) step(op byte, arg int) {
	rare := arg < 80 // for what leaves little to be done afterwards
	switch op %= 16; {
	case op < 2:
		e.send(arg*8, 0)
	case op == 2:
		e.send(arg*8, 1+arg%100)
	case op < 5:
		e.receive(arg*8, arg)
	case op == 5:
		e.receive(e.waiting(), arg)
	case op < 9:
		e.blockedRead(arg)
	case op == 9:
		e.readExpired = e.setDeadline("SetReadDeadline", arg)
	case op == 10:
		e.writeExpired = e.setDeadline("SetWriteDeadline", arg)
	case op == 11:
		e.timedRead()
	case op == 12:
		e.zeroLength()
		e.addrs()
	case op == 13 && rare:
		e.shutWrite()
	case op == 14 && rare:
		e.shutRead()
	case op == 15 && rare && arg%2 == 0:
		e.hangUp(arg%4 == 0)
	}
}

// setDeadline sets a deadline that has passed, one that will not pass, or no deadline.
func (e *end) setDeadline(method string, arg int) (expired bool) {
	when, expired := time.Time{}, false
	switch arg % 4 {
	case 0:
		when, expired = longAgo, true
	case 1:
		when = later()
	}
	e.deadline(method, when)
	return expired
}

// waiting returns how many bytes can be read.
func (e *end) waiting() int { return e.peer.sent - e.received }

// wouldBlock reports whether a read waits for something that the program has not done.
func (e *end) wouldBlock() bool {
	return !e.closed && !e.broken && !e.readExpired && !e.readShut && e.waiting() == 0 && !e.peer.closed && !e.peer.writeShut
}

// isDeaf reports whether the end is closed in both directions. Over TCP it answers any data with a
// reset.
func (e *end) isDeaf() bool { return e.closed || e.readShut && e.writeShut }

// isOver reports whether both directions of a TCP connection have ended. The kernel then forgets the
// connection in its own time, and answers some calls in another way from then on.
func (e *end) isOver() bool {
	return e.stage.kind.IsTCP() && (e.writeShut || e.closed) && (e.peer.writeShut || e.peer.closed)
}

// tear notes that the connection is reset, and waits until the kernel has done that.
func (e *end) tear() {
	for _, x := range []*end{e, e.peer} {
		if x.broken = true; !x.closed {
			x.awaitBroken()
		}
	}
}

// arrived waits until all bytes that were sent have arrived.
func (e *end) arrived() {
	if !e.closed && !e.broken && e.waiting() > 0 {
		e.awaitReadable(e.waiting())
	}
}

// send writes bytes, in slices of so many unless that is 0.
func (e *end) send(size, slice int) {
	if e.peer.waiting()+size > maxInFlight || e.sent+size > muchData || e.isOver() {
		return
	}
	data := pattern(e.sent + size)[e.sent:]
	var err error
	if slice > 0 {
		err = e.writeBuffers("some", cut(data, slice))
	} else {
		var n int
		n, err = e.Conn.Write(data)
		e.note("Write(%d): %d %s", size, n, describeError(err))
	}
	if err != nil {
		return
	}
	e.sent += size
	if size > 0 && e.stage.kind.IsTCP() && e.peer.isDeaf() {
		e.tear()
	}
}

// readWays are the ways to read once. All but the first are for some bytes at least.
var readWays = []func(a *actor, size int) (n int, line string){(*actor).readOnce, (*actor).readReady, (*actor).rawRead}

func (e *end) receive(size, way int) {
	switch {
	case size == 0:
		way = 0
	case e.wouldBlock():
		return
	}
	e.arrived()
	n, line := readWays[way%len(readWays)](e.actor, size)
	e.received += n
	e.stage.note("%s", line)
}

// blockedRead reads when there is nothing to read. Then something happens about it, often only once the
// read waits.
func (e *end) blockedRead(arg int) {
	if !e.wouldBlock() || e.peer.writeExpired {
		return
	}
	reading, n := &pending{stage: e.stage, what: e.name + ".Read", outcome: make(chan string, 1)}, 0
	read := func(way int) {
		var line string
		n, line = readWays[way%len(readWays)](e.actor, 512)
		reading.outcome <- line
	}
	if arg%4 > 0 {
		testnet.GoBlocked(e.stage, reading.what, func() { read(arg) })
	} else {
		go read(0) // a RawConn tells whether it has waited
	}
	switch arg / 4 % 10 {
	default:
		e.peer.send(1+arg, 0)
	case 0:
		e.peer.shutWrite()
	case 1:
		e.peer.hangUp(false)
	case 2:
		e.peer.hangUp(true)
	case 3:
		e.shutRead()
	case 4:
		e.hangUp(false)
	case 5:
		e.deadline("SetReadDeadline", longAgo)
		e.readExpired = true
	case 6:
		e.deadline("SetReadDeadline", time.Now().Add(2*time.Millisecond))
		e.readExpired = true
	}
	reading.end()
	e.received += n
}

// timedRead is a read whose deadline passes while it waits.
func (e *end) timedRead() {
	if !e.wouldBlock() {
		return
	}
	deadline := time.Now().Add(time.Millisecond)
	e.deadline("SetReadDeadline", deadline)
	e.read(16)
	e.note("early: %t", time.Now().Before(deadline))
	e.readExpired = true
}

func (e *end) zeroLength() {
	e.read(0)
	e.call("Read(nil)", func() error { _, err := e.Conn.Read(nil); return err })
	if !e.isOver() {
		e.write("")
		e.call("Write(nil)", func() error { _, err := e.Conn.Write(nil); return err })
	}
}

func (e *end) shutWrite() {
	if e.isOver() {
		return
	}
	e.closeWrite()
	e.writeShut = true
	if !e.closed && !e.broken && !e.peer.closed {
		e.peer.awaitPeerClosed()
	}
}

func (e *end) shutRead() {
	if e.isOver() {
		return
	}
	e.closeRead()
	e.readShut = true
}

// hangUp closes the end, with a reset if the network has one. It causes a reset as well if bytes were
// not read.
func (e *end) hangUp(resets bool) {
	e.arrived()
	unread := e.waiting() > 0
	if resets = resets && e.stage.kind.IsTCP(); resets {
		e.linger(0)
	}
	e.close()
	if e.closed {
		return
	}
	switch e.closed = true; {
	case e.broken || e.peer.closed:
	case unread || resets:
		e.tear()
	default:
		e.peer.awaitPeerClosed()
	}
}
