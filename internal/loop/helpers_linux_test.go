package loop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// engines are the ways to wait that tests of the engine go through.
var engines = []struct {
	name   string
	config Config
}{
	{"nested", Config{}},
	{"thread", Config{Strategy: Thread}},
	{"pinned", Config{Strategy: Thread, Pin: true}},
}

// onEveryEngine runs test as a subtest per engine, with a group of that many loops.
func onEveryEngine(t *testing.T, loops int, test func(t *testing.T, g *Group)) {
	onEveryConfig(t, loops, func(t *testing.T, config Config) { test(t, newTestGroup(t, config)) })
}

// onEveryConfig is onEveryEngine for tests that make their groups.
func onEveryConfig(t *testing.T, loops int, test func(t *testing.T, config Config)) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			config := engine.config
			config.Loops = loops
			test(t, config)
		})
	}
}

// newTestGroup makes a group that must have ended by the end of the test, after all its cleanups.
func newTestGroup(t testing.TB, config Config) *Group {
	t.Helper()
	g, err := NewGroup(config)
	if err != nil {
		t.Fatalf("NewGroup(%+v): %v", config, err)
	}
	t.Cleanup(func() {
		g.Close()
		select {
		case <-g.Stopped():
		case <-time.After(testnet.HangTimeout):
			t.Errorf("the group has not ended: %+v", g.Counts())
		}
	})
	return g
}

// A transport makes connected pairs of non-blocking sockets.
type transport struct {
	name string
	kind StreamKind
	make func() (a, b int, err error)
}

// pair is make for the test's own goroutine.
func (tr transport) pair(t testing.TB) (a, b int) {
	t.Helper()
	a, b, err := tr.make()
	if err != nil {
		t.Fatalf("making a pair of %s sockets: %v", tr.name, err)
	}
	return a, b
}

var (
	overTCP  = transport{"tcp", TCP, makeTCPPair}
	overUnix = transport{"unix", Plain, makeUnixPair}
)

// onEveryPair runs test on every engine and transport, with a descriptor on a
// group of one loop and its peer, which package net looks after.
func onEveryPair(t *testing.T, test func(t *testing.T, f *FD, peer net.Conn)) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for _, tr := range []transport{overTCP, overUnix} {
			t.Run(tr.name, func(t *testing.T) {
				f, peer := newPair(t, g.Loop(0), tr)
				test(t, f, peer)
			})
		}
	})
}

// newPair returns a descriptor on l and its peer. Both are closed when the test ends.
func newPair(t testing.TB, l *Loop, tr transport) (*FD, net.Conn) {
	t.Helper()
	a, b := tr.pair(t)
	return newTestFD(t, l, a, tr.kind), netConn(t, b)
}

// newFDPair returns two connected descriptors, one on each loop.
func newFDPair(t testing.TB, la, lb *Loop, tr transport) (*FD, *FD) {
	t.Helper()
	a, b := tr.pair(t)
	return newTestFD(t, la, a, tr.kind), newTestFD(t, lb, b, tr.kind)
}

// newTestFD registers sysfd and closes it when the test ends.
func newTestFD(t testing.TB, l *Loop, sysfd int, kind StreamKind) *FD {
	t.Helper()
	f, err := l.NewFD(sysfd, kind)
	if err != nil {
		syscall.Close(sysfd)
		t.Fatalf("NewFD: %v", err)
	}
	t.Cleanup(func() {
		if !f.life.closed() {
			closeFD(t, f)
		}
	})
	return f
}

// closeFD closes f, which must not take forever.
func closeFD(t testing.TB, f *FD) {
	t.Helper()
	testnet.Within(t, "Close", func() {
		if err := f.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	})
}

// netConn hands sysfd to package net.
func netConn(t testing.TB, sysfd int) net.Conn {
	t.Helper()
	file := os.NewFile(uintptr(sysfd), "peer")
	defer file.Close()
	c, err := net.FileConn(file) // duplicates sysfd
	if err != nil {
		t.Fatalf("FileConn: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// bufferBytes makes the kernel's buffers small (the kernel doubles it, and the size that it doubles
// isn't all for data): manyBytes are more than one side's for sending and the other's for receiving
// hold. Left alone TCP would let both grow to megabytes, the latter when the reader takes much.
const bufferBytes = 128 << 10

var manyBytes = make([]byte, 2<<20)

func setBuffers(fds ...int) {
	for _, fd := range fds {
		for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, bufferBytes)
		}
	}
}

// makeUnixPair is socketpair(2).
func makeUnixPair() (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	setBuffers(fds[0], fds[1])
	return fds[0], fds[1], nil
}

// makeTCPPair makes a TCP connection over loopback.
func makeTCPPair() (a, b int, err error) {
	ln, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(ln)
	if err := unix.Bind(ln, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, -1, err
	}
	if err := unix.Listen(ln, 1); err != nil {
		return -1, -1, err
	}
	addr, err := unix.Getsockname(ln)
	if err != nil {
		return -1, -1, err
	}
	if b, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, -1, err
	}
	if err = unix.Connect(b, addr); err == nil {
		if err = unix.SetNonblock(b, true); err == nil {
			a, _, err = unix.Accept4(ln, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		}
	}
	if err != nil {
		unix.Close(b)
		return -1, -1, err
	}
	setBuffers(a, b)
	// As every server has it; otherwise small writes wait for acknowledgements.
	for _, fd := range []int{a, b} {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	return a, b, nil
}

// result is the result of a Read or Write.
type result struct {
	n   int
	err error
}

func (r result) String() string { return fmt.Sprintf("%d, %v", r.n, r.err) }

// start runs call in a goroutine and returns where its result comes.
func start(call func() (int, error)) <-chan result {
	ch := make(chan result, 1)
	go func() {
		n, err := call()
		ch <- result{n, err}
	}()
	return ch
}

// startErr is start for calls that return an error only.
func startErr(call func() error) <-chan result {
	return start(func() (int, error) { return 0, call() })
}

// await returns the result of a call that must not hang.
func await(t testing.TB, what string, ch <-chan result) result {
	t.Helper()
	return testnet.Receive(t, what, ch)
}

// eventually is testnet.Eventually for events that happen at once most of the time.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for range 200 {
		if condition() {
			return
		}
		runtime.Gosched()
	}
	testnet.Eventually(t, what, condition)
}

// awaitWaiting returns when a goroutine is parked on s, or about to be.
func awaitWaiting(t testing.TB, s *half) {
	t.Helper()
	eventually(t, "a call waits", func() bool { return s.state.Load()&waiting != 0 })
}

// awaitBits returns when all the bits of f's read half are on.
func awaitBits(t testing.TB, f *FD, bits uint32) {
	t.Helper()
	eventually(t, fmt.Sprintf("bits %04b of the state are on", bits), func() bool {
		f.loop.Submit(func() {}) // no goroutine need poll while none waits: see ownership
		return f.rd.state.Load()&bits == bits
	})
}

// settle returns when l has dispatched all events that were there when it was
// called, and run all tasks that they led to.
func settle(t testing.TB, l *Loop) {
	t.Helper()
	// The first task is run after a poll that may have been under way; what
	// comes before the second is a whole one.
	for range 3 {
		done := make(chan struct{})
		l.Submit(func() { close(done) })
		testnet.Receive(t, "a task is run", done)
	}
}

// holdLoop keeps l busy until the returned function is called.
func holdLoop(t testing.TB, l *Loop) (release func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	l.Submit(func() {
		close(held)
		<-free
	})
	testnet.Receive(t, "a task is run", held)
	return func() { close(free) }
}

// mustWrite writes all of p to the peer.
func mustWrite(t testing.TB, c net.Conn, p string) {
	t.Helper()
	if err := c.SetWriteDeadline(time.Now().Add(testnet.HangTimeout)); err != nil {
		t.Fatalf("SetWriteDeadline: %v", err)
	}
	if n, err := c.Write([]byte(p)); n != len(p) || err != nil {
		t.Fatalf("peer writing %d bytes: got %d, %v", len(p), n, err)
	}
}

// mustRead reads once and wants the given bytes.
func mustRead(t testing.TB, f *FD, want string) {
	t.Helper()
	p := make([]byte, len(want)+64)
	r := await(t, fmt.Sprintf("Read of %q", want), start(func() (int, error) { return f.Read(p) }))
	if got := string(p[:r.n]); got != want || r.err != nil {
		t.Fatalf("Read: got %q, %v, want %q, nil", got, r.err, want)
	}
}

// collide calls a and b in the same moment, give or take the time that either takes, up to rounds times,
// less often where a round takes long: before each round prepare, after it check, which reports whether
// to go on. a is called on the caller's goroutine, like prepare and check, b always on one other.
//
// Mistakes between two instructions show up in a few of a thousand rounds on two processors.
func collide(t testing.TB, rounds int, prepare, a, b func(), check func(round int) bool) {
	t.Helper()
	var turn, done atomic.Int64
	await := func(v *atomic.Int64, want int64) (ok bool) {
		for spins := 0; v.Load() < want; spins++ {
			if v.Load() < 0 {
				return false
			}
			if spins > 2_000 || runtime.GOMAXPROCS(0) == 1 {
				runtime.Gosched()
			}
		}
		return true
	}
	dither := func(rng *rand.Rand) {
		for range rng.IntN(100) {
			turn.Load()
		}
	}
	defer turn.Store(math.MinInt64)
	go func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for round := int64(1); await(&turn, round); round++ {
			dither(rng)
			b()
			done.Store(round)
		}
	}()
	rng := rand.New(rand.NewPCG(2, 2))
	testnet.Within(t, "the collisions", func() {
		for round, begin := 1, time.Now(); round <= rounds && time.Since(begin) < collideTimeMax; round++ {
			prepare()
			turn.Store(int64(round))
			dither(rng)
			a()
			await(&done, int64(round))
			if !check(round) {
				return
			}
		}
	})
}

// collideTimeMax bounds collide. On a single processor a round in which a loop must be woken takes
// 10 ms: goroutines that spin keep the scheduler from looking for events.
const collideTimeMax = time.Second

// readableFunc is a function as a ReadableHandler.
type readableFunc func(error)

func (fn readableFunc) OnReadable(err error) { fn(err) }

// OnReadable is NotifyReadable for a function.
func (f *FD) OnReadable(fn func(error)) error { return f.NotifyReadable(readableFunc(fn)) }
