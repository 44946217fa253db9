package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/testnet"
)

// FuzzTransfers runs random programs of copies between two connections, a file and a pipe, with
// reads, writes, deadlines and closes in between. It compares each outcome with a model: a slice of
// bytes for each direction. The first byte of a program chooses the networks. After it, each three
// bytes are an operation and two arguments.
//
// A program copies only bytes that it has provided, so it never waits. The program determines
// whether a copy uses the fast paths; the model doesn't know the difference.
func FuzzTransfers(f *testing.F) {
	fuzzPrograms(f, func(t *testing.T, program []byte) {
		for _, e := range engines {
			runTransfers(t, e, program)
		}
	})
}

// TestRandomTransfers runs more programs than the fuzz target's seeds, always the same ones.
func TestRandomTransfers(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e engine) {
		runRandom(t, 1000, rounds(600), func(t *testing.T, program []byte) { runTransfers(t, e, program) })
	})
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

// A modelStream is one direction of a connection or of a pipe: the bytes that were written and not
// yet read.
type modelStream struct {
	queue []byte
	ended bool // nothing more will be written
	lost  bool // a copy failed with bytes of it under way: the rest is not in the model
}

// A modelPlace is something that can be copied from and to, with its expected state: a connection,
// or a pair of pipes.
type modelPlace struct {
	name  string
	nearR io.ReadCloser // the end that copies are made from
	nearW io.WriteCloser
	farR  io.ReadCloser // the end that checks them from outside
	farW  io.WriteCloser

	in  modelStream // from farW to nearR
	out modelStream // from nearW to farR

	readExpired, writeExpired, closed bool
}

// A transferMachine runs one program.
type transferMachine struct {
	*outcomes
	places []*modelPlace
	next   int // the next byte of the pattern to write

	file    *os.File
	content []byte
	offset  int
	unknown bool // a copy from the file failed: the model doesn't know its offset
}

// runTransfers interprets a program on e.
func runTransfers(t *testing.T, e engine, program []byte) {
	t.Helper()
	if len(program) == 0 {
		return
	}
	m := &transferMachine{outcomes: &outcomes{t: t}}
	defer m.closeAll()
	kinds := []testnet.Kind{testnet.TCP4, testnet.Unix}
	m.addConn("a", e, kinds[program[0]&1])
	m.addConn("b", e, kinds[program[0]>>1&1])
	m.addPipes("pipe")
	m.content = bytes.Clone(pattern(10_000))
	m.file = testnet.TempFile(t, m.content)
	testnet.Within(t, fmt.Sprintf("program %x on %s", program, e.name), func() {
		for rest := program[1:]; len(rest) >= 3 && !t.Failed(); rest = rest[3:] {
			m.step(rest[0], int(rest[1]), int(rest[2]))
		}
		m.drain()
	})
	if t.Failed() {
		t.Logf("program %x on %s:\n%s", program, e.name, m.outcomes)
	}
}

func (m *transferMachine) addConn(name string, e engine, kind testnet.Kind) {
	ln := testnet.Listen(m.t, e.listen, kind)
	near, far := testnet.Connect(m.t, ln)
	ln.Close()
	m.places = append(m.places, &modelPlace{name: name, nearR: near, nearW: near, farR: far, farW: far})
}

func (m *transferMachine) addPipes(name string) {
	nearR, farW, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	farR, nearW, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	m.places = append(m.places, &modelPlace{name: name, nearR: nearR, nearW: nearW, farR: farR, farW: farW})
}

// closeAll closes everything, the far ends first and with a reset. Otherwise thousands of programs
// would leave as many ports in TIME_WAIT.
func (m *transferMachine) closeAll() {
	for _, p := range m.places {
		if tcp, ok := p.farW.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		for _, c := range []io.Closer{p.farR, p.farW, p.nearR, p.nearW} {
			c.Close()
		}
	}
}

// step performs one operation.
func (m *transferMachine) step(op byte, arg, size int) {
	p, q := m.places[arg%3], m.places[arg/3%3]
	defer features.Splice.Force(arg&0x40 == 0)()
	defer features.Sendfile.Force(arg&0x80 == 0)()
	size *= 16
	switch op % 16 {
	case 0, 1, 2:
		m.provide(p, size)
	case 3:
		m.nearWrite(p, size)
	case 4:
		m.nearRead(p, size)
	case 5:
		m.farRead(p, size)
	case 6, 7, 8:
		m.copy(p, q, size)
	case 9:
		m.copyAll(p, q)
	case 10, 11:
		m.copyFromFile(q, arg, size)
	case 12:
		m.copyToFile(p)
	case 13:
		m.expire(p, arg)
	case 14:
		m.end(p)
	case 15:
		if size < 16*64 { // rarely, because little can be checked afterwards
			m.close(p)
		}
	}
}

// fresh returns the next n bytes of the pattern, which have not been written before.
func (m *transferMachine) fresh(n int) []byte {
	m.next += n
	return pattern(m.next)[m.next-n:]
}

func (m *transferMachine) wantCount(what string, got, want int64) {
	if got != want {
		m.t.Errorf("%s: got a count of %d, want %d", what, got, want)
	}
}

// wantBytes checks bytes that were read against the stream's, and takes them out.
func (m *transferMachine) wantBytes(what string, s *modelStream, got []byte) {
	if len(got) > len(s.queue) || !bytes.Equal(got, s.queue[:len(got)]) {
		m.t.Errorf("%s: got %s, want the beginning of %s", what, digest(got), digest(s.queue))
		return
	}
	s.queue = s.queue[len(got):]
}

// provide writes to p from outside.
func (m *transferMachine) provide(p *modelPlace, size int) {
	if p.closed || p.in.ended || len(p.in.queue)+size > maxInFlight {
		return
	}
	data := m.fresh(size)
	n, err := p.farW.Write(data)
	m.want(fmt.Sprintf("provide %d to %s", size, p.name), int64(n), err, nil)
	p.in.queue = append(p.in.queue, data...)
}

func (m *transferMachine) nearWrite(p *modelPlace, size int) {
	if p.closed || len(p.out.queue)+size > maxInFlight {
		return
	}
	data := m.fresh(size)
	n, err := p.nearW.Write(data)
	what := fmt.Sprintf("%s.Write(%d)", p.name, size)
	if p.writeExpired && (size > 0 || err != nil) {
		m.want(what, int64(n), err, os.ErrDeadlineExceeded)
		m.wantCount(what, int64(n), 0)
		return
	}
	m.want(what, int64(n), err, nil)
	p.out.queue = append(p.out.queue, data...)
}

func (m *transferMachine) nearRead(p *modelPlace, size int) {
	if p.closed || p.in.lost || size == 0 || len(p.in.queue) == 0 && !p.in.ended && !p.readExpired {
		return
	}
	buf := make([]byte, size)
	n, err := p.nearR.Read(buf)
	what := fmt.Sprintf("%s.Read(%d)", p.name, size)
	switch {
	case p.readExpired:
		m.want(what, int64(n), err, os.ErrDeadlineExceeded)
	case len(p.in.queue) == 0:
		m.want(what, int64(n), err, io.EOF)
	default:
		m.want(what, int64(n), err, nil)
	}
	m.wantBytes(what, &p.in, buf[:n])
}

// farRead reads, at p's far end, bytes that were written inside.
func (m *transferMachine) farRead(p *modelPlace, size int) {
	size = min(size, len(p.out.queue))
	if p.closed || size == 0 {
		return
	}
	buf := make([]byte, size)
	n, err := io.ReadFull(p.farR, buf)
	what := fmt.Sprintf("reading %d at %s's far end", size, p.name)
	m.want(what, int64(n), err, nil)
	m.wantBytes(what, &p.out, buf[:n])
}

// copy copies a number of bytes from p to q, which may be the same.
func (m *transferMachine) copy(p, q *modelPlace, size int) {
	if !p.in.ended {
		size = min(size, len(p.in.queue))
	}
	limited := &io.LimitedReader{R: p.nearR, N: int64(size)}
	what := fmt.Sprintf("copy %d from %s to %s", size, p.name, q.name)
	n, ok := m.copied(what, p, q, limited, min(size, len(p.in.queue)), size == 0)
	if ok {
		m.wantCount(what+", the limit", limited.N, int64(size)-n)
	}
}

// copyAll copies from p to q until p ends. p must have ended.
func (m *transferMachine) copyAll(p, q *modelPlace) {
	if p.in.ended {
		m.copied(fmt.Sprintf("copy all from %s to %s", p.name, q.name), p, q, p.nearR, len(p.in.queue), false)
	}
}

// copied copies the next n bytes of p, which r reads, to q. It reports false if the copy failed, or
// was not made because its result is not in the model.
func (m *transferMachine) copied(what string, p, q *modelPlace, r io.Reader, n int, never bool) (int64, bool) {
	if p.in.lost || !p.closed && !q.closed && len(q.out.queue)+n > maxInFlight {
		return 0, false
	}
	got, err := io.Copy(q.nearW, r)
	switch {
	case never: // the copy is for no bytes, so it makes no system call
		m.want(what, got, err, nil)
	case p.closed:
		m.want(what, got, err, net.ErrClosed, os.ErrClosed)
		n = 0
	case p.readExpired:
		m.want(what, got, err, os.ErrDeadlineExceeded)
		n = 0
	case n > 0 && q.closed:
		m.want(what, got, err, net.ErrClosed, os.ErrClosed)
		n, p.in.lost = 0, true
	case n > 0 && q.writeExpired:
		m.want(what, got, err, os.ErrDeadlineExceeded)
		n, p.in.lost = 0, true
	case q.closed || q.writeExpired: // the model does not say whether a call looks, if nothing comes
		m.want(what, got, err, nil, net.ErrClosed, os.ErrClosed, os.ErrDeadlineExceeded)
	default:
		m.want(what, got, err, nil)
	}
	m.wantCount(what, got, int64(n))
	q.out.queue = append(q.out.queue, p.in.queue[:n]...)
	p.in.queue = p.in.queue[n:]
	return got, err == nil
}

// copyFromFile copies a part of the file to q.
func (m *transferMachine) copyFromFile(q *modelPlace, arg, size int) {
	if arg&0x20 != 0 {
		m.offset, m.unknown = size, false
		m.file.Seek(int64(m.offset), io.SeekStart)
	}
	n := min(size, max(0, len(m.content)-m.offset))
	if m.unknown || !q.closed && len(q.out.queue)+n > maxInFlight {
		return
	}
	limited := &io.LimitedReader{R: m.file, N: int64(size)}
	got, err := io.Copy(q.nearW, limited)
	what := fmt.Sprintf("copy %d from the file at %d to %s", size, m.offset, q.name)
	switch {
	case n == 0:
		m.want(what, got, err, nil, net.ErrClosed, os.ErrClosed, os.ErrDeadlineExceeded)
	case q.closed:
		m.want(what, got, err, net.ErrClosed, os.ErrClosed)
		n, m.unknown = 0, true
	case q.writeExpired:
		m.want(what, got, err, os.ErrDeadlineExceeded)
		n, m.unknown = 0, true
	default:
		m.want(what, got, err, nil)
		m.wantCount(what+", the limit", limited.N, int64(size-n))
	}
	m.wantCount(what, got, int64(n))
	q.out.queue = append(q.out.queue, m.content[m.offset:][:n]...)
	m.offset += n
	if at, err := m.file.Seek(0, io.SeekCurrent); !m.unknown && (at != int64(m.offset) || err != nil) {
		m.t.Errorf("%s: got the file at %d, %v, want %d", what, at, err, m.offset)
	}
}

// copyToFile copies everything that is left of p, which must have ended, to another file.
func (m *transferMachine) copyToFile(p *modelPlace) {
	if !p.in.ended || p.in.lost {
		return
	}
	f := testnet.TempFile(m.t, nil)
	defer f.Close()
	got, err := io.Copy(f, p.nearR)
	what := fmt.Sprintf("copy all from %s to a file", p.name)
	n := len(p.in.queue)
	switch {
	case p.closed:
		m.want(what, got, err, net.ErrClosed, os.ErrClosed)
		n = 0
	case p.readExpired:
		m.want(what, got, err, os.ErrDeadlineExceeded)
		n = 0
	default:
		m.want(what, got, err, nil)
	}
	m.wantCount(what, got, int64(n))
	content, err := os.ReadFile(f.Name())
	if err != nil || len(content) != n {
		m.t.Errorf("%s: got %d bytes in it, %v, want %d", what, len(content), err, n)
	}
	m.wantBytes(what, &p.in, content)
}

// expire sets a deadline that has passed, or none.
func (m *transferMachine) expire(p *modelPlace, arg int) {
	if p.closed {
		return
	}
	var at time.Time
	if arg&0x10 != 0 {
		at = longAgo
	}
	if arg&0x20 != 0 {
		p.readExpired = !at.IsZero()
		m.want(fmt.Sprintf("%s.SetReadDeadline(%v)", p.name, at), 0, p.nearR.(interface{ SetReadDeadline(time.Time) error }).SetReadDeadline(at), nil)
	} else {
		p.writeExpired = !at.IsZero()
		m.want(fmt.Sprintf("%s.SetWriteDeadline(%v)", p.name, at), 0, p.nearW.(interface{ SetWriteDeadline(time.Time) error }).SetWriteDeadline(at), nil)
	}
}

// end ends the stream that comes to p from outside.
func (m *transferMachine) end(p *modelPlace) {
	if p.closed || p.in.ended {
		return
	}
	p.in.ended = true
	end := p.farW.Close
	if c, ok := p.farW.(interface{ CloseWrite() error }); ok {
		end = c.CloseWrite
	}
	m.want("the end of what comes to "+p.name, 0, end(), nil)
}

// close closes p. Bytes under way in either direction are forgotten.
func (m *transferMachine) close(p *modelPlace) {
	if p.closed {
		return
	}
	p.closed = true
	m.want(p.name+".Close", 0, p.nearR.Close(), nil)
	p.nearW.Close()
	p.in.queue, p.out.queue = nil, nil
}

// drain reads everything that should be there at every far end.
func (m *transferMachine) drain() {
	for _, p := range m.places {
		m.farRead(p, maxInFlight)
	}
}
