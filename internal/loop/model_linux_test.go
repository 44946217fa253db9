package loop

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// The test of this file plays random programs on a connection and checks the things that
// happens against a model that knows nothing of epoll, edges or wheels: a count of bytes
// there are to read and a few booleans.
//
// A program is a string of bytes, two per step. Reads, writes and callbacks begin in one step and end in
// a later one, so that deadlines, data, the end of the stream and Close come while they wait. Some steps
// are done two at a time, concurrently; then the model's answer for either order is right.

var modelSeed = flag.Uint64("loop.seed", 0, "play only the program with this seed in TestFDModel")

func TestFDModel(t *testing.T) {
	programs := 150
	if testing.Short() {
		programs = 30
	}
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		seeds = seeds[:0]
		for range programs {
			seeds = append(seeds, rand.Uint64()|1)
		}
	}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 0))
		program := make([]byte, 2+2*(10+rng.IntN(60)))
		for i := range program {
			program[i] = byte(rng.Uint32())
		}
		if playFD(t, program); t.Failed() {
			t.Fatalf("this was -loop.seed=%d", seed)
		}
	}
}

func FuzzFD(f *testing.F) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		program := make([]byte, 40)
		for i := range program {
			program[i] = byte(rng.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 200 {
			return // it would find nothing new and take long
		}
		playFD(t, program)
	})
}

// A step is an operation and its argument.
type step struct {
	op  stepOp
	arg byte
}

type stepOp byte

const (
	opPeerWrite stepOp = iota
	opPeerShutdown
	opRead
	opWrite
	opWriteMuch
	opPeerRead
	opReadDeadline
	opWriteDeadline
	opDeadline
	opArm
	opCancel
	opTryRead
	opExpose
	opShutdown
	opClose
	opTogether // the next two steps at once
	numStepOps
)

var stepNames = [numStepOps]string{"peer writes", "peer shuts down", "Read", "Write", "Write much", "peer reads",
	"SetReadDeadline", "SetWriteDeadline", "SetDeadline", "OnReadable", "CancelOnReadable", "RawRead at once",
	"RawControl", "Shutdown", "Close", "together"}

func (s step) String() string { return fmt.Sprintf("%s(%d)", stepNames[s.op], s.arg) }

// isDeadline reports whether s moves a deadline, isPeer whether it is the peer's.
func (s step) isDeadline() bool { return opReadDeadline <= s.op && s.op <= opDeadline }
func (s step) isPeer() bool {
	return s.op == opPeerWrite || s.op == opPeerShutdown || s.op == opPeerRead
}

// size is the argument of a step that moves bytes.
func (s step) size() int { return 1 + int(s.arg)*7 }

// deadlineKind is the argument of a step that moves a deadline.
func (s step) deadlineKind() byte { return s.arg % 4 }

const (
	deadlineNone = iota
	deadlineFar
	deadlinePast
	deadlineSoon
)

// fate is the end of a call.
type fate string

const (
	pending   fate = "goes on"
	succeeds  fate = "succeeds"
	ends      fate = "ends with EOF"
	timesOut  fate = "times out"
	isClosed  fate = "fails for Close"
	isShut    fate = "fails with EPIPE"
	cancelled fate = "is cancelled"
	none      fate = ""
)

// fateOf is the fate that a result means.
func fateOf(r result) fate {
	switch r.err {
	case nil:
		return succeeds
	case io.EOF:
		return ends
	case os.ErrDeadlineExceeded:
		return timesOut
	case ErrClosed:
		return isClosed
	case syscall.EPIPE:
		return isShut
	}
	return fate(fmt.Sprintf("fails with %v", r.err))
}

// fdModel is the connection as the model sees it.
type fdModel struct {
	unread                 int  // bytes that the peer wrote and no call has read
	ended                  bool // the peer has shut down its writing
	shut                   bool // we have ours
	closed                 bool
	readExpired, wrExpired bool
	read, write, callback  fate // pending while under way; its end in the last step
	readSize               int
	muchWritten            bool // the write under way is for more than fits
}

// apply plays a step. Steps that make no sense do nothing; possible said so before.
func (m *fdModel) apply(s step) {
	switch s.op {
	case opPeerWrite:
		m.unread += s.size()
	case opPeerShutdown:
		m.ended = true
	case opRead:
		m.read, m.readSize = pending, s.size()
	case opWrite, opWriteMuch:
		m.write, m.muchWritten = pending, s.op == opWriteMuch
	case opPeerRead:
		m.muchWritten = false // it reads until the write is done
	case opReadDeadline, opWriteDeadline, opDeadline:
		if m.closed {
			break
		}
		past := s.deadlineKind() == deadlinePast || s.deadlineKind() == deadlineSoon
		if s.op != opWriteDeadline {
			m.readExpired = past
		}
		if s.op != opReadDeadline {
			m.wrExpired = past
		}
	case opArm:
		m.callback = pending
	case opCancel:
		if m.callback == pending {
			m.callback = cancelled
		}
	case opShutdown:
		m.shut = m.shut || !m.closed
	case opClose:
		m.closed = true
	}
	m.settle()
}

// settle lets everything end that can.
func (m *fdModel) settle() {
	if m.callback == pending {
		switch {
		case m.closed:
			m.callback = isClosed
		case m.readExpired:
			m.callback = timesOut
		case m.unread > 0, m.ended:
			m.callback = succeeds
		}
	}
	if m.read == pending {
		switch {
		case m.closed:
			m.read = isClosed
		case m.readExpired:
			m.read = timesOut
		case m.unread > 0:
			m.read = succeeds
			m.unread -= min(m.readSize, m.unread)
		case m.ended:
			m.read = ends
		}
	}
	if m.write == pending {
		switch {
		case m.closed:
			m.write = isClosed
		case m.wrExpired:
			m.write = timesOut
		case m.shut:
			m.write = isShut
		case !m.muchWritten:
			m.write = succeeds
		}
	}
}

// fdWorld is a connection, its model and the calls under way.
type fdWorld struct {
	t     *testing.T
	trace strings.Builder
	f     *FD
	peer  int
	model fdModel

	read, write <-chan result
	called      chan error // by the callback that is armed, or was last

	readBuf                 []byte
	peerWrote, got, written int // bytes: by the peer, read from it, by us
	peerGot                 int
}

// streamBytes is the pattern that both directions carry, over and over.
var streamBytes = newStream(1).next(1 << 12)

// fill fills p with the stream's bytes at offset, and check compares.
func fill(p []byte, offset int) {
	for n := 0; n < len(p); {
		n += copy(p[n:], streamBytes[(offset+n)%len(streamBytes):])
	}
}

func (w *fdWorld) check(who string, p []byte, offset int) {
	want := make([]byte, len(p))
	fill(want, offset)
	if !bytes.Equal(p, want) {
		w.fatalf("%s: of the bytes from %d to %d of the stream some are wrong", who, offset, offset+len(p))
	}
}

func (w *fdWorld) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nthe steps were:\n%s", fmt.Sprintf(format, args...), w.trace.String())
}

// modelUnreadMax is how much, in bytes, surely fits the kernel's buffers.
const modelUnreadMax = 8 << 10

// playFD plays a program: its first two bytes choose the engine and the transport, the others are steps.
func playFD(t *testing.T, program []byte) {
	if len(program) < 4 {
		return
	}
	config := engines[int(program[0])%len(engines)].config
	config.Loops = 1
	g, err := NewGroup(config)
	if err != nil {
		t.Fatalf("NewGroup: %v", err)
	}
	tr := []transport{overTCP, overUnix}[program[1]%2]
	a, b := tr.pair(t)
	w := &fdWorld{t: t, peer: b}
	fmt.Fprintf(&w.trace, "%s, %s\n", engines[int(program[0])%len(engines)].name, tr.name)
	if w.f, err = g.Loop(0).NewFD(a, tr.kind); err != nil {
		t.Fatalf("NewFD: %v", err)
	}
	var company *FD
	if program[1]&2 != 0 {
		company, _ = newPair(t, g.Loop(0), overUnix) // so that the loop's goroutine polls
	}
	defer func() {
		unix.Close(b)
		for _, f := range []*FD{w.f, company} {
			if f != nil && !f.life.closed() {
				_ = f.Close()
			}
		}
		g.Close()
		testnet.Receive(t, "the group's end", g.Stopped())
	}()
	if program[1]&4 != 0 {
		w.trace.WriteString("with guests\n")
		defer haveGuests(g.Loop(0))()
	}
	w.play(program[2:])
	w.finish()
}

// play decodes and plays the steps.
func (w *fdWorld) play(program []byte) {
	next := func() (step, bool) {
		for len(program) >= 2 {
			s := step{stepOp(program[0]) % numStepOps, program[1]}
			program = program[2:]
			if s.op == opTogether || w.possible(s) {
				return s, true
			}
		}
		return step{}, false
	}
	for {
		s, ok := next()
		if !ok {
			return
		}
		if s.op != opTogether {
			w.one(s)
			continue
		}
		first, ok := next()
		if !ok {
			return
		}
		second, ok := next()
		if !ok || first.op == opTogether || second.op == opTogether || !w.compatible(first, second) {
			continue
		}
		w.both(first, second)
	}
}

// possible reports whether s makes sense now.
func (w *fdWorld) possible(s step) bool {
	m := &w.model
	switch s.op {
	case opPeerWrite:
		return !m.ended && !m.closed && m.unread+s.size() <= modelUnreadMax
	case opPeerShutdown:
		return !m.ended && !m.closed
	case opRead:
		return m.read != pending
	case opTryRead:
		return m.read != pending && !m.closed && !m.readExpired
	case opWrite:
		return m.write != pending && w.written-w.peerGot+s.size() <= 4<<10
	case opWriteMuch:
		return m.write != pending
	case opArm:
		return m.callback != pending
	case opShutdown:
		// On a unix socket this does not wake a writer that waits for room (shutdown(2)).
		return !m.shut && m.write != pending
	}
	return true
}

// compatible reports whether two steps may be done at once: the model must be
// able to say how the world is after them in any order.
func (w *fdWorld) compatible(a, b step) bool {
	if a.isDeadline() && b.isDeadline() || a.isPeer() && b.isPeer() || a.op == b.op {
		return false
	}
	for _, s := range []step{a, b} {
		switch s.op {
		case opTryRead, opPeerRead:
			return false
		case opShutdown:
			if w.model.closed {
				return false
			}
		}
	}
	// Writes that do not fit in together, and shutting down the direction that is being written.
	writes := func(s step) bool { return s.op == opWrite || s.op == opWriteMuch || s.op == opShutdown }
	return !(writes(a) && writes(b))
}

// one plays a single step.
func (w *fdWorld) one(s step) {
	fmt.Fprintf(&w.trace, "  %v\n", s)
	w.do(s)()
	w.model.apply(s)
	w.compare(&w.model)
}

// both plays two steps concurrently.
func (w *fdWorld) both(a, b step) {
	fmt.Fprintf(&w.trace, "  %v with %v\n", a, b)
	doA, doB := w.do(a), w.do(b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if a.arg&1 == 0 {
			runtime.Gosched()
		}
		doA()
	}()
	doB()
	testnet.Receive(w.t, a.String(), done)
	before := w.model
	ab, ba := before, before
	ab.apply(a)
	ab.apply(b)
	ba.apply(b)
	ba.apply(a)
	w.model = ab
	models := []*fdModel{&ab, &ba}
	if before.callback == pending || a.op == opArm || b.op == opArm {
		// The cause of a callback comes before its call.
		if a.op == opCancel || b.op == opCancel {
			caught := ab
			caught.callback = cancelled
			models = append(models, &caught)
		}
	}
	for _, order := range [][2]step{{a, b}, {b, a}} {
		// A deadline that is soon is two steps, and the other one may come in between.
		if soon, other := order[0], order[1]; soon.isDeadline() && soon.deadlineKind() == deadlineSoon {
			between := before
			between.apply(step{soon.op, deadlineFar})
			between.apply(other)
			between.apply(step{soon.op, deadlinePast})
			models = append(models, &between)
		}
	}
	w.compare(models...)
}

// do returns the function that carries a step out. It registers the calls that the step begins before.
func (w *fdWorld) do(s step) func() {
	f := w.f
	switch s.op {
	case opPeerWrite:
		p := make([]byte, s.size())
		fill(p, w.peerWrote)
		w.peerWrote += len(p)
		return func() {
			if n, err := unix.Write(w.peer, p); (n != len(p) || err != nil) && !f.life.closed() {
				w.t.Errorf("peer: write of %d bytes: got %d, %v", len(p), n, err)
			}
		}
	case opPeerShutdown:
		return func() { _ = unix.Shutdown(w.peer, unix.SHUT_WR) }
	case opRead:
		ch := make(chan result, 1)
		w.read, w.readBuf = ch, make([]byte, s.size())
		p := w.readBuf
		return func() {
			go func() {
				n, err := f.Read(p)
				ch <- result{n, err}
			}()
		}
	case opWrite, opWriteMuch:
		n := s.size()
		if s.op == opWriteMuch {
			n = len(manyBytes)
		}
		p := make([]byte, n)
		fill(p, w.written)
		ch := make(chan result, 1)
		w.write = ch
		return func() {
			go func() {
				n, err := f.Write(p)
				ch <- result{n, err}
			}()
		}
	case opPeerRead:
		return w.peerRead
	case opReadDeadline:
		return func() { w.setDeadline(s, f.SetReadDeadline, &f.rd) }
	case opWriteDeadline:
		return func() { w.setDeadline(s, f.SetWriteDeadline, &f.wr) }
	case opDeadline:
		return func() { w.setDeadline(s, f.SetDeadline, &f.rd, &f.wr) }
	case opArm:
		called := make(chan error, 2)
		w.called = called
		return func() {
			if err := f.OnReadable(func(err error) { called <- err }); err != nil {
				called <- err // as if it had been called with that
			}
		}
	case opCancel:
		return func() {
			if f.CancelOnReadable() {
				w.called <- errCancelled // of a callback that may be armed by a step that this one is done with
			}
		}
	case opTryRead:
		return w.tryRead
	case opExpose:
		return func() { _ = f.RawControl(func(uintptr) {}) }
	case opShutdown:
		return func() { _ = f.Shutdown(syscall.SHUT_WR) }
	case opClose:
		return func() { _ = f.Close() }
	}
	panic("no such step")
}

var errCancelled = fmt.Errorf("the callback was cancelled")

// setDeadline carries out a step that moves a deadline. One that is soon it waits for.
func (w *fdWorld) setDeadline(s step, set func(time.Time) error, halves ...*half) {
	at := time.Time{}
	switch s.deadlineKind() {
	case deadlineFar:
		at = time.Now().Add(time.Hour + time.Duration(s.arg)*time.Minute)
	case deadlinePast:
		at = time.Now().Add(-time.Duration(s.arg) * time.Second)
	case deadlineSoon:
		at = time.Now().Add(time.Duration(s.arg) * 4 * time.Microsecond)
	}
	if set(at) != nil || s.deadlineKind() != deadlineSoon {
		return
	}
	eventually(w.t, "the deadline passes", func() bool {
		for _, half := range halves {
			if half.deadline.Load() != expired && !w.f.life.closed() {
				return false
			}
		}
		return true
	})
}

// tryRead reads all there is without waiting.
func (w *fdWorld) tryRead() {
	p := make([]byte, 500)
	n := 0
	err := w.f.RawRead(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), p)
		return true
	})
	if err != nil {
		w.fatalf("RawRead: %v", err)
	}
	if n = max(n, 0); n != min(len(p), w.model.unread) {
		w.fatalf("RawRead at once: got %d bytes, want %d", n, min(len(p), w.model.unread))
	}
	w.check("RawRead", p[:n], w.got)
	w.got += n
	w.model.unread -= n
}

// peerRead reads our bytes until the peer has them all. If much is being
// written, that is when the write is done.
func (w *fdWorld) peerRead() {
	p := make([]byte, 64<<10)
	deadline := time.Now().Add(testnet.HangTimeout)
	for {
		n, err := unix.Read(w.peer, p)
		switch {
		case n > 0:
			w.check("peer", p[:n], w.peerGot)
			w.peerGot += n
			continue
		case n == 0 || err != unix.EAGAIN:
			return // the end, or a reset by a Close with data unread
		}
		if w.model.write == pending {
			select {
			case r := <-w.write:
				ch := make(chan result, 1)
				ch <- r // compare wants it too
				w.write = ch
				if w.written+r.n == w.peerGot {
					return
				}
			default:
			}
		} else if w.peerGot >= w.written {
			return
		}
		if time.Now().After(deadline) {
			w.fatalf("peer got %d bytes, want %d or more", w.peerGot, w.written)
		}
		runtime.Gosched()
	}
}

// compare checks that each call under way has met the fate that one of the models says.
func (w *fdWorld) compare(models ...*fdModel) {
	w.compareRead(models)
	w.compareWrite(models)
	w.compareCallback(models)
	if w.t.Failed() {
		w.fatalf("the steps above failed")
	}
	w.model.unread = w.peerWrote - w.got
}

// outcome waits for a call, if one is under way, to end if the models agree that it does, and to be
// parked or to end if they don't. It notes the fate, which is of's.
func (w *fdWorld) outcome(what string, call *<-chan result, s *half, models []*fdModel, of func(m *fdModel) *fate) (r result, ended bool) {
	if *call == nil {
		return r, false
	}
	allowed := func(f fate) bool {
		return slices.ContainsFunc(models, func(m *fdModel) bool { return *of(m) == f })
	}
	got := pending
	if !allowed(pending) {
		r = await(w.t, fmt.Sprintf("%s, after\n%s", what, w.trace.String()), *call)
		got = fateOf(r)
	} else {
		eventually(w.t, what+" ends or waits", func() bool {
			select {
			case r = <-*call:
				got = fateOf(r)
				return true
			default:
				return s.state.Load()&waiting != 0
			}
		})
	}
	if !allowed(got) {
		w.fatalf("%s: %v %s, which none of the models says", what, r, got)
	}
	*of(&w.model) = got
	if ended = got != pending; ended {
		*call = nil
	}
	return r, ended
}

func (w *fdWorld) compareRead(models []*fdModel) {
	r, ended := w.outcome("Read", &w.read, &w.f.rd, models, func(m *fdModel) *fate { return &m.read })
	if !ended {
		return
	}
	if (r.n > 0) != (r.err == nil) || r.n > w.peerWrote-w.got {
		w.fatalf("Read: got %v with %d bytes to read", r, w.peerWrote-w.got)
	}
	w.check("Read", w.readBuf[:r.n], w.got)
	w.got += r.n
}

func (w *fdWorld) compareWrite(models []*fdModel) {
	r, _ := w.outcome("Write", &w.write, &w.f.wr, models, func(m *fdModel) *fate { return &m.write })
	w.written += r.n
}

// compareCallback differs from the others in that a callback may be called with nil for nothing.
func (w *fdWorld) compareCallback(models []*fdModel) {
	if w.called == nil {
		return
	}
	settle(w.t, w.f.loop)
	mayWait := false
	for _, m := range models {
		mayWait = mayWait || m.callback == pending
	}
	var err error
	if mayWait {
		select {
		case err = <-w.called:
		default:
			w.model.callback = pending
			return
		}
	} else {
		err = testnet.Receive(w.t, fmt.Sprintf("the callback, after\n%s", w.trace.String()), w.called)
	}
	got := fateOf(result{err: err})
	if err == errCancelled {
		got = cancelled
	}
	ok := got == succeeds
	for _, m := range models {
		ok = ok || got == m.callback
	}
	if !ok {
		w.fatalf("the callback: %s; the model says it %s", got, models[0].callback)
	}
	w.model.callback, w.called = none, nil
}

// finish closes all that is open and looks for remaining mistakes.
func (w *fdWorld) finish() {
	if !w.model.closed {
		w.one(step{op: opClose})
	}
	if w.f.CancelOnReadable() {
		w.fatalf("a callback is still armed after Close")
	}
	if w.model.unread > 0 {
		return // closing with data unread resets the connection: our bytes may be lost
	}
	w.peerRead()
	if w.peerGot != w.written {
		w.fatalf("the peer got %d bytes, %d were written", w.peerGot, w.written)
	}
}
