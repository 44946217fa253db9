package loop

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// newCompany returns that many descriptors on the same loop, with their peers.
func newCompany(t *testing.T, n int) (l *Loop, fds []*FD, peers []net.Conn) {
	t.Helper()
	l = newTestGroup(t, Config{Loops: 1}).Loop(0)
	for i := range n {
		f, peer := newPair(t, l, []transport{overTCP, overUnix}[i%2])
		fds, peers = append(fds, f), append(peers, peer)
	}
	return l, fds, peers
}

// startRead begins a Read and returns once it waits.
func startRead(t *testing.T, f *FD) <-chan result {
	t.Helper()
	read := start(func() (int, error) { return f.Read(make([]byte, 8)) })
	awaitWaiting(t, &f.rd)
	return read
}

// visitUntil visits l until cond holds.
func visitUntil(t *testing.T, l *Loop, what string, cond func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		l.Look(false)
		return cond()
	})
}

// wantRead checks that a Read of one byte has ended.
func wantRead(t *testing.T, what string, read <-chan result) {
	t.Helper()
	if r := await(t, what, read); r != (result{1, nil}) {
		t.Errorf("%s: got %v, want 1", what, r)
	}
}

// While the loop's goroutine is busy, a guest wakes those that wait.
func TestVisit(t *testing.T) {
	l, fds, peers := newCompany(t, 3)
	defer holdLoop(t, l)()
	if l.Look(false) {
		t.Log("there was an event left") // of a registration, say
	}
	var reads []<-chan result
	for i, f := range fds {
		reads = append(reads, startRead(t, f))
		mustWrite(t, peers[i], "x")
	}
	visitUntil(t, l, "all are woken", func() bool {
		for _, f := range fds {
			if f.rd.awaited() {
				return false
			}
		}
		return true
	})
	for _, read := range reads {
		wantRead(t, "Read", read)
	}
	written := start(func() (int, error) { return fds[0].Write(manyBytes) })
	awaitWaiting(t, &fds[0].wr)
	go func() { _, _ = io.CopyN(io.Discard, peers[0], int64(len(manyBytes))) }()
	visitUntil(t, l, "Write ends", func() bool { return len(written) > 0 })
	if r := await(t, "Write", written); r != (result{len(manyBytes), nil}) {
		t.Errorf("Write: got %v, want %d", r, len(manyBytes))
	}
}

// A worker that visits a loop finds what there is in the next one, too.
func TestVisitNextLoop(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 2})
	for _, l := range g.loops {
		newPair(t, l, overTCP) // so that it has started
		defer holdLoop(t, l)()
	}
	for i, l := range g.loops {
		f, peer := newPair(t, g.loops[1-i], overTCP)
		read := startRead(t, f)
		mustWrite(t, peer, "x")
		visitUntil(t, l, "the reader is woken", func() bool { return !f.rd.awaited() })
		wantRead(t, "Read", read)
	}
}

// Loops that find events soon themselves have no guests.
func TestVisitOtherEngines(t *testing.T) {
	for _, engine := range engines[1:] {
		t.Run(engine.name, func(t *testing.T) {
			config := engine.config
			config.Loops = 1
			l := newTestGroup(t, config).Loop(0)
			f, peer := newPair(t, l, overTCP)
			release := holdLoop(t, l)
			read := startRead(t, f)
			mustWrite(t, peer, "x")
			for range 100 {
				if l.Look(false) {
					t.Fatal("Visit: got an event, want none")
				}
			}
			release()
			wantRead(t, "Read", read)
		})
	}
}

// offLoop is a handler whose OnReadable may run anywhere.
type offLoop struct{ called chan error }

func (h offLoop) OnReadable(err error) { h.called <- err }
func (h offLoop) OffLoop()             {}

// A guest leaves callbacks and watchers to the loop's goroutine, and none is lost.
func TestVisitCallbacks(t *testing.T) {
	for _, worker := range []bool{false, true} {
		l, fds, peers := newCompany(t, 4)
		release := holdLoop(t, l)
		onLoop := make(chan bool, 1)
		if err := fds[0].OnReadable(func(error) { onLoop <- l.onLoop() && len(l.caught.batch) == 0 }); err != nil {
			t.Fatal(err)
		}
		events := make(chan Readiness, 8)
		var h EventHandler = eventFunc(func(r Readiness) { events <- r })
		if err := fds[1].Watch(&h); err != nil {
			t.Fatal(err)
		}
		anywhere := offLoop{make(chan error, 1)}
		if err := fds[2].NotifyReadable(anywhere); err != nil {
			t.Fatal(err)
		}
		read := startRead(t, fds[3])
		for _, peer := range peers {
			mustWrite(t, peer, "x")
		}
		eventually(t, "the reader is woken, and the callback that may run here", func() bool {
			l.visit(worker, (*poller).glance)
			return !fds[3].rd.awaited() && (!worker || len(anywhere.called) > 0)
		})
		wantRead(t, "Read", read)
		if worker {
			if err := testnet.Receive(t, "the callback that may run on a worker", anywhere.called); err != nil {
				t.Errorf("OnReadable: got %v, want nil", err)
			}
		}
		if len(onLoop)+len(events)+len(anywhere.called) > 0 {
			t.Errorf("worker %t: the guest has run foreign code: %d callbacks, %d events, %d off the loop",
				worker, len(onLoop), len(events), len(anywhere.called))
		}
		release()
		testnet.Receive(t, "the callback", onLoop)
		if r := testnet.Receive(t, "the event", events); r&Readable == 0 {
			t.Errorf("OnEvent: got %b, want it readable", r)
		}
		if !worker {
			testnet.Receive(t, "the callback", anywhere.called)
		}
		fds[1].Unwatch()
	}
}

type eventFunc func(Readiness)

func (f eventFunc) OnEvent(r Readiness) { f(r) }

// A guest whose array is full leaves events behind: the loop's goroutine finds them. It also finds its
// tasks, of which a guest sees the wake-up.
func TestVisitFull(t *testing.T) {
	const n = 5
	l, fds, peers := newCompany(t, n)
	release := holdLoop(t, l)
	for l.Look(false) {
		// Until the events of the registrations are gone.
		if l.tasks.woken.Load() {
			break
		}
	}
	l.guests.caught.events.events = make([]unix.EpollEvent, 1)
	l.guests.caught.events.grow = false
	var reads []<-chan result
	for i, f := range fds {
		reads = append(reads, startRead(t, f))
		mustWrite(t, peers[i], "x")
	}
	l.Look(false)
	ran := make(chan struct{})
	l.Submit(func() { close(ran) })
	l.Look(false)
	release()
	for _, read := range reads {
		wantRead(t, "Read", read)
	}
	testnet.Receive(t, "the task", ran)
}

// haveGuests has two guests visit l again and again, a reader and a worker, until the returned
// function is called.
func haveGuests(l *Loop) (leave func()) {
	var stop atomic.Bool
	var visits sync.WaitGroup
	for i := range 2 {
		visits.Go(func() {
			for !stop.Load() && l.hosts() {
				poll := (*poller).glance
				if rand.IntN(4) == 0 {
					poll = (*poller).linger
				}
				l.visit(i == 0, poll)
				for range rand.IntN(3) {
					runtime.Gosched()
				}
				if rand.IntN(8) == 0 {
					time.Sleep(20 * time.Microsecond)
				}
			}
		})
	}
	return func() {
		stop.Store(true)
		visits.Wait()
	}
}

// newReaders returns two descriptors whose readers a guest has woken, while the loop is busy, and the
// Read of another one, of no batch, for which there is a byte.
func newReaders(t *testing.T) (a, b *FD, readC <-chan result) {
	t.Helper()
	l, fds, peers := newCompany(t, 3)
	t.Cleanup(holdLoop(t, l))
	a, b, c := fds[0], fds[1], fds[2]
	readA, readB := startRead(t, a), startRead(t, b)
	mustWrite(t, peers[0], "x")
	mustWrite(t, peers[1], "x")
	eventually(t, "the bytes are there", func() bool {
		return sys.Readable(int(a.sysfd)) && sys.Readable(int(b.sysfd))
	})
	visitUntil(t, l, "both are woken", func() bool { return !a.rd.awaited() && !b.rd.awaited() })
	wantRead(t, "Read of a", readA)
	wantRead(t, "Read of b", readB)
	readC = startRead(t, c)
	mustWrite(t, peers[2], "x")
	eventually(t, "the byte is there", func() bool { return sys.Readable(int(c.sysfd)) })
	return a, b, readC
}

// The reader that is the last of its batch to wait again, or to go in another way that the count
// knows of, visits the loop.
func TestLastReaderVisits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(t *testing.T, f *FD) <-chan result
	}{
		{"Read", func(t *testing.T, f *FD) <-chan result {
			return start(func() (int, error) { return f.Read(make([]byte, 8)) })
		}},
		{"ReadReady", func(t *testing.T, f *FD) <-chan result {
			return start(func() (int, error) {
				return f.ReadReady(func() []byte { return make([]byte, 8) }, func() {})
			})
		}},
		{"RawRead", func(t *testing.T, f *FD) <-chan result {
			return startErr(func() error {
				_ = f.RawRead(func(fd uintptr) bool { _, err := unix.Read(int(fd), make([]byte, 8)); return err == nil })
				return ErrClosed // whichever it was
			})
		}},
		{"Close", func(t *testing.T, f *FD) <-chan result { return startErr(f.Close) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b, readC := newReaders(t)
			// One batch or two: in any case the last one of the last batch is one of the two.
			againA := start(func() (int, error) { return a.Read(make([]byte, 8)) })
			awaitWaiting(t, &a.rd)
			left := tt.leave(t, b)
			wantRead(t, "Read of c, which nobody but the last reader can have woken", readC)
			closeUnlessClosed(t, a)
			closeUnlessClosed(t, b)
			await(t, "Read of a", againA)
			await(t, tt.name, left)
		})
	}
}

func closeUnlessClosed(t *testing.T, f *FD) {
	t.Helper()
	if !f.life.closed() {
		closeFD(t, f)
	}
}

// While processors are crowded one of them may have been taken from a reader of the batch. The next one
// that waits again visits the loop, and doesn't leave it to that one.
func TestCrowdedReaderVisits(t *testing.T) {
	a, _, readC := newReaders(t)
	crowd(a.loop)
	againA := start(func() (int, error) { return a.Read(make([]byte, 8)) })
	wantRead(t, "Read of c, while b doesn't read", readC)
	closeFD(t, a)
	await(t, "Read of a", againA)
}

// While processors are crowded, the loop's goroutine looks for the next event after it has called a
// watcher, before it waits for the runtime's poller.
func TestCrowdedWatcher(t *testing.T) {
	l, fds, peers := newCompany(t, 2)
	called := make(chan uint64, 1)
	next := eventFunc(func(r Readiness) {
		if r&Readable != 0 {
			called <- l.wakeups.Load()
		}
	})
	var first atomic.Uint64
	answer := eventFunc(func(r Readiness) {
		if r&Readable != 0 {
			first.Store(l.wakeups.Load())
			mustWrite(t, peers[1], "x") // an event that comes after the poll
		}
	})
	for i, h := range []EventHandler{answer, next} {
		if err := fds[i].Watch(&h); err != nil {
			t.Fatal(err)
		}
		defer fds[i].Unwatch()
	}
	crowd(l)
	mustWrite(t, peers[0], "x")
	if got := testnet.Receive(t, "the second event", called); got != first.Load() {
		t.Errorf("the second event was found by wake-up %d, the first by %d, want the same", got, first.Load())
	}
}

// crowd lets the readers of l find that processors are crowded.
func crowd(l *Loop) {
	testnet.BesideComputing(func() {
		for line := &l.guests.line; !line.Crowded(); {
			line.Stand(func() uint64 { return 0 })
		}
	})
}

// A guest that waits for an event finds it, and comes back without one after a moment.
func TestLinger(t *testing.T) {
	l, fds, peers := newCompany(t, 2)
	defer holdLoop(t, l)()
	read := startRead(t, fds[0])
	for l.Look(true) { // of a registration, say
	}
	mustWrite(t, peers[0], "x")
	eventually(t, "the reader is woken", func() bool {
		l.Look(true)
		return !fds[0].rd.awaited()
	})
	wantRead(t, "Read", read)
}

// A loop ends without waiting for a guest in the middle of a visit, who gives the rest back; and there
// are no guests after.
func TestLoopEndsWithGuest(t *testing.T) {
	testnet.NoLeaks(t)
	g, err := NewGroup(Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := g.Loop(0)
	if !l.guests.state.CompareAndSwap(noGuest, visiting) {
		t.Fatal("there is a guest")
	}
	g.Close()
	eventually(t, "the loop's goroutine leaves", func() bool { return l.guests.state.Load() == ended })
	select {
	case <-g.Stopped():
		t.Error("the group has ended, and a guest is about to poll its epoll descriptor")
	default:
	}
	l.endVisit()
	testnet.Receive(t, "the group's end", g.Stopped())
	if l.Look(false) {
		t.Error("Visit after the end: got an event, want none")
	}
}

// Guests come and go while loops end.
func TestLoopEndsUnderGuests(t *testing.T) {
	testnet.NoLeaks(t)
	for range 100 {
		g, err := NewGroup(Config{Loops: 1})
		if err != nil {
			t.Fatal(err)
		}
		leave := haveGuests(g.Loop(0))
		runtime.Gosched()
		g.Close()
		testnet.Receive(t, "the group's end", g.Stopped())
		leave()
	}
}

// The count of a batch against a set of its readers.
func TestBatchReadersModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var b batchReaders
		b.word.Store(rng.Uint64N(2) * (1<<32 - 3) << 32) // at the beginning, or before numbers wrap
		type reader struct{ batch uint32 }
		var readers []reader // woken, and not back
		current, left, dispatching, others := uint32(0), 0, false, 0
		for range 200 {
			switch rng.IntN(4) {
			case 0:
				events := rng.IntN(5)
				number := b.begin(events)
				if number == 0 || number == current {
					t.Fatalf("seed %d: got the batch %d after %d", seed, number, current)
				}
				current, left, dispatching, others = number, events+1, true, 0
				for range events {
					if rng.IntN(3) > 0 {
						readers = append(readers, reader{number})
					} else {
						others++
					}
				}
			case 1:
				if dispatching {
					b.dispatched(current, others)
					left -= others + 1
					dispatching = false
				}
			default:
				if len(readers) == 0 {
					continue
				}
				i := rng.IntN(len(readers))
				r := readers[i]
				readers = append(readers[:i], readers[i+1:]...)
				if rng.IntN(4) == 0 {
					continue // it never waits again
				}
				want := false
				if r.batch == current {
					left--
					want = left == 0
				}
				if got := b.leave(r.batch, 1); got != want {
					t.Fatalf("seed %d: leaving batch %d of %d: got last %t, want %t", seed, r.batch, current, got, want)
				}
			}
			if got := uint32(b.word.Load()); current != 0 && got != uint32(left) {
				t.Fatalf("seed %d: got %d readers, want %d", seed, got, left)
			}
		}
	}
}

// Readers of a few descriptors, or of one, which polls itself, do what a server's do, at random: answer,
// wait by other means, close, end by a panic or runtime.Goexit, have deadlines. Goroutines that compute,
// tasks and guests get in between. Each message is answered on its connection, or that was closed by its
// reader.
func TestGuestsStress(t *testing.T) {
	for _, clients := range []int{1, 4} {
		t.Run(fmt.Sprintf("clients=%d", clients), func(t *testing.T) { stressGuests(t, clients) })
	}
}

func stressGuests(t *testing.T, clients int) {
	l := newTestGroup(t, Config{Loops: 1}).Loop(0)
	var stop atomic.Bool
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for !stop.Load() {
				playClient(t, l, byte(i), &stop)
			}
		})
	}
	if clients > 1 {
		running.Go(func() { // computes
			for !stop.Load() {
				for range 1 << 16 {
				}
			}
		})
	}
	running.Go(func() {
		for !stop.Load() {
			ran := make(chan struct{})
			l.Submit(func() { close(ran) })
			testnet.Receive(t, "a task", ran)
			time.Sleep(time.Millisecond)
		}
	})
	time.Sleep(700 * time.Millisecond)
	stop.Store(true)
	testnet.Within(t, "the end", running.Wait)
}

// playClient makes a connection, has its reader serve it, and sends messages of one letter until the
// reader has closed it.
func playClient(t *testing.T, l *Loop, letter byte, stop *atomic.Bool) {
	tr := []transport{overTCP, overUnix}[rand.IntN(2)]
	a, b, err := tr.make()
	if err != nil {
		t.Error(err)
		return
	}
	f, err := l.NewFD(a, tr.kind)
	if err != nil {
		t.Error(err)
		unix.Close(a)
		unix.Close(b)
		return
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer func() { _ = recover() }()
		serveAtRandom(f)
	}()
	file := os.NewFile(uintptr(b), "peer")
	peer, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Error(err)
		return
	}
	_ = peer.SetDeadline(time.Now().Add(testnet.HangTimeout))
	p := make([]byte, 1)
	for !stop.Load() {
		if _, err = peer.Write([]byte{letter}); err == nil {
			_, err = io.ReadFull(peer, p)
		}
		if err == nil && p[0] != letter {
			t.Errorf("got %d, want %d: the bytes of another connection", p[0], letter)
		}
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Error("a message is not answered")
		}
		if err != nil {
			break // it has been closed
		}
		for range rand.IntN(3) {
			runtime.Gosched()
		}
	}
	peer.Close()
	testnet.Receive(t, "the reader's end", served)
}

// serveAtRandom answers messages until it closes f, or the peer does.
func serveAtRandom(f *FD) {
	defer func() { _ = f.Close() }() // fails if it was closed
	p := make([]byte, 1)
	for {
		n, err := readAtRandom(f, p)
		switch {
		case err == os.ErrDeadlineExceeded:
			_ = f.SetReadDeadline(time.Time{})
			continue
		case err != nil || n == 0:
			return
		}
		if _, err := f.Write(p); err != nil {
			return
		}
		switch rand.IntN(40) {
		case 0:
			go f.Close()
		case 1:
			panic("the reader's end")
		case 2:
			runtime.Goexit()
		case 3:
			time.Sleep(time.Millisecond) // counted, and away
		}
	}
}

// readAtRandom is one of the ways to read a byte.
func readAtRandom(f *FD, p []byte) (n int, err error) {
	switch rand.IntN(6) {
	case 0:
		return f.ReadReady(func() []byte { return p }, func() {})
	case 1:
		called := make(chan error, 1)
		if err := f.OnReadable(func(err error) { called <- err }); err != nil {
			return 0, err
		}
		if err := <-called; err != nil {
			return 0, err
		}
	case 2:
		called := offLoop{make(chan error, 1)}
		if err := f.NotifyReadable(called); err != nil {
			return 0, err
		}
		if err := <-called.called; err != nil {
			return 0, err
		}
		f.loop.Look(false) // as a worker would
	case 3:
		_ = f.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(2000)) * time.Microsecond))
		defer func() { _ = f.SetReadDeadline(time.Time{}) }()
	}
	return f.Read(p)
}
