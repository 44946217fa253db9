package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// These tests are for the race detector. They do everything at once, from many goroutines, and
// check the properties that hold in any order. No call hangs after Close, every error is one that
// net could return, nothing is lost, repeated or mixed up, and nothing leaks.

// rounds scales how often something is repeated.
func rounds(n int) int {
	if testing.Short() || race.Enabled {
		return max(1, n/4)
	}
	return n
}

// onEachGOMAXPROCS runs test with few and many threads: orders of events that never happen with one
// number are common with another.
func onEachGOMAXPROCS(t *testing.T, test func(t *testing.T, e engine)) {
	onEachEngine(t, func(t *testing.T, e engine) {
		for _, procs := range []int{1, 2, 8} {
			t.Run(fmt.Sprintf("procs%d", procs), func(t *testing.T) {
				testnet.NoLeaks(t)
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				test(t, e)
			})
		}
	})
}

// random returns a separate random source for a goroutine. The callers log the seed,
// so that every goroutine's choices can be repeated.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// usualEnds are the errors that reads and writes of a connection under stress may return.
var usualEnds = []error{
	io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, io.ErrShortWrite,
	syscall.EPIPE, syscall.ECONNRESET, syscall.ENOTCONN,
}

func isUsualEnd(err error) bool {
	for _, end := range usualEnds {
		if err == nil || errors.Is(err, end) {
			return true
		}
	}
	return false
}

// stressOps are the calls that goroutines make on one connection at the same time.
var stressOps = []struct {
	name string
	do   func(c net.Conn, r *rand.Rand) error
}{
	{"Read", func(c net.Conn, r *rand.Rand) error { _, err := c.Read(make([]byte, 1+r.IntN(5000))); return err }},
	{"Write", func(c net.Conn, r *rand.Rand) error { _, err := c.Write(pattern(1 + r.IntN(5000))); return err }},
	{"large Write", func(c net.Conn, r *rand.Rand) error { _, err := c.Write(pattern(1 << 20)); return err }},
	{"empty Read", func(c net.Conn, r *rand.Rand) error { _, err := c.Read(nil); return err }},
	{"SetDeadline past", func(c net.Conn, r *rand.Rand) error { return c.SetDeadline(longAgo) }},
	{"SetDeadline none", func(c net.Conn, r *rand.Rand) error { return c.SetDeadline(time.Time{}) }},
	{"SetDeadline", func(c net.Conn, r *rand.Rand) error {
		return c.SetDeadline(time.Now().Add(time.Duration(r.IntN(int(2 * time.Millisecond)))))
	}},
	{"SetReadDeadline", func(c net.Conn, r *rand.Rand) error {
		return c.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(int(2 * time.Millisecond)))))
	}},
	{"SetWriteDeadline", func(c net.Conn, r *rand.Rand) error {
		return c.SetWriteDeadline(time.Now().Add(time.Duration(r.IntN(int(2 * time.Millisecond)))))
	}},
	{"addresses", func(c net.Conn, r *rand.Rand) error {
		_ = c.LocalAddr().String() + c.RemoteAddr().String()
		return nil
	}},
	{"Control", func(c net.Conn, r *rand.Rand) error {
		raw, err := c.(syscallConn).SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(func(uintptr) {})
	}},
	{"raw Read", func(c net.Conn, r *rand.Rand) error {
		raw, err := c.(syscallConn).SyscallConn()
		if err != nil {
			return err
		}
		return raw.Read(func(uintptr) bool { return r.IntN(2) == 0 })
	}},
	{"OnReadable", func(c net.Conn, r *rand.Rand) error {
		p, ok := c.(interface {
			OnReadable(func(error)) error
			CancelOnReadable() bool
		})
		if !ok {
			return nil // of package net
		}
		err := p.OnReadable(func(error) {})
		p.CancelOnReadable()
		if errors.Is(err, loop.ErrArmed) || errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		return err
	}},
	{"File", func(c net.Conn, r *rand.Rand) error {
		f, err := c.(filer).File()
		if err != nil {
			return err
		}
		return f.Close()
	}},
	{"copy to", func(c net.Conn, r *rand.Rand) error {
		_, err := io.Copy(c, io.LimitReader(bytes.NewReader(pattern(10_000)), 9000))
		return err
	}},
	{"copy from", func(c net.Conn, r *rand.Rand) error {
		_, err := io.CopyN(io.Discard, c, int64(1+r.IntN(5000)))
		return err
	}},
	{"SetReadBuffer", func(c net.Conn, r *rand.Rand) error { return c.(readBufferer).SetReadBuffer(4096 << r.IntN(6)) }},
	{"CloseRead", func(c net.Conn, r *rand.Rand) error {
		if r.IntN(50) > 0 {
			return nil
		}
		return c.(interface{ CloseRead() error }).CloseRead()
	}},
	{"CloseWrite", func(c net.Conn, r *rand.Rand) error {
		if r.IntN(50) > 0 {
			return nil
		}
		return c.(interface{ CloseWrite() error }).CloseWrite()
	}},
}

// harass does random things to c from several goroutines until it is closed.
func harass(t *testing.T, wg *sync.WaitGroup, c net.Conn, seed uint64) {
	const goroutines = 8
	for g := range uint64(goroutines) {
		wg.Go(func() {
			r := random(seed*goroutines + g)
			for {
				op := stressOps[r.IntN(len(stressOps))]
				err := op.do(c, r)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if !isUsualEnd(err) {
					t.Errorf("%s: got %v", op.name, err)
				}
			}
		})
	}
}

// TestStressConn closes connections in the middle of everything: from several goroutines, or after
// the peer has closed or reset them.
func TestStressConn(t *testing.T) { onEachGOMAXPROCS(t, stressConn) }

func stressConn(t *testing.T, e engine) {
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		ln := testnet.Listen(t, e.listen, kind)
		for round := range uint64(rounds(60)) {
			server, client := e.connect(t, ln)
			var wg sync.WaitGroup
			harass(t, &wg, server, 2*round)
			harass(t, &wg, client, 2*round+1)
			r := random(round)
			time.Sleep(time.Duration(r.IntN(int(3 * time.Millisecond))))
			if r.IntN(2) == 0 {
				resetOnClose(client)
			}
			if r.IntN(2) == 0 {
				client.Close()
			}
			var closed atomic.Int32
			for range 3 {
				wg.Go(func() {
					if server.Close() == nil {
						closed.Add(1)
					}
				})
			}
			client.Close()
			testnet.Within(t, fmt.Sprintf("round %d: everything ending after Close", round), wg.Wait)
			if got := closed.Load(); got != 1 {
				t.Errorf("round %d: got %d calls of Close without error, want 1", round, got)
			}
		}
	}
}

// TestStressListener accepts, dials, sets deadlines, takes files and closes, all at once.
func TestStressListener(t *testing.T) { onEachGOMAXPROCS(t, stressListener) }

func stressListener(t *testing.T, e engine) {
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		for round := range uint64(rounds(20)) {
			ln := testnet.Listen(t, e.listen, kind)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { acceptUntilClosed(t, ln) })
			}
			stop := make(chan struct{})
			for g := range uint64(4) {
				wg.Go(func() { dialUntil(stop, ln, random(round*4+g)) })
			}
			wg.Go(func() {
				for r := random(round); ; {
					err := ln.(deadliner).SetDeadline(time.Now().Add(time.Duration(r.IntN(int(time.Millisecond)))))
					if err != nil {
						return
					}
					if f, err := ln.(filer).File(); err == nil {
						f.Close()
					}
					_ = ln.Addr().String()
				}
			})
			time.Sleep(time.Duration(random(round).IntN(int(5 * time.Millisecond))))
			for range 2 {
				wg.Go(func() { ln.Close() })
			}
			time.Sleep(time.Millisecond)
			close(stop)
			testnet.Within(t, fmt.Sprintf("round %d: everything ending after Close", round), wg.Wait)
		}
	}
}

func acceptUntilClosed(t *testing.T, ln net.Listener) {
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			c.Close()
		case errors.Is(err, net.ErrClosed):
			return
		case !errors.Is(err, os.ErrDeadlineExceeded):
			t.Errorf("Accept: got %v", err)
			return
		}
	}
}

func dialUntil(stop <-chan struct{}, ln net.Listener, r *rand.Rand) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
		if err != nil {
			continue // the listener is closed, or has a full backlog
		}
		resetOnClose(c) // or thousands of ports would be used up
		if r.IntN(2) == 0 {
			io.WriteString(c, "hello")
		}
		c.Close()
	}
}

// TestStressWritesDoNotMix writes blocks larger than the socket's buffers from several goroutines;
// each must arrive in one piece.
func TestStressWritesDoNotMix(t *testing.T) {
	const writers, blockSize = 6, 1 << 20
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		blocks := rounds(8)
		server, client := testnet.Pair(t, e.listen, kind)
		var wg sync.WaitGroup
		for id := range writers {
			wg.Go(func() {
				block := bytes.Repeat([]byte{byte('A' + id)}, blockSize)
				for range blocks {
					if n, err := server.Write(block); n != blockSize || err != nil {
						t.Errorf("writer %d: got %d, %v, want %d", id, n, err, blockSize)
						return
					}
				}
			})
		}
		received := make([]byte, blockSize)
		for i := range writers * blocks {
			if _, err := io.ReadFull(client, received); err != nil {
				t.Fatalf("block %d: %v", i, err)
			}
			if n := bytes.Count(received, received[:1]); n != blockSize {
				t.Fatalf("block %d is mixed: %d of %d bytes are %q", i, n, blockSize, received[0])
			}
		}
		wg.Wait()
	})
}

// TestStressReadersShareTheStream reads one stream from several goroutines. Together they must
// receive the whole stream, each byte once.
func TestStressReadersShareTheStream(t *testing.T) {
	const readers, size = 6, 4 << 20
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		server, client := testnet.Pair(t, e.listen, kind)
		go func() {
			client.Write(pattern(size))
			client.Close()
		}()
		var mu sync.Mutex
		var got, want [256]int
		for _, b := range pattern(size) {
			want[b]++
		}
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				buf := make([]byte, 1000)
				for {
					n, err := server.Read(buf)
					mu.Lock()
					for _, b := range buf[:n] {
						got[b]++
					}
					mu.Unlock()
					if err != nil {
						if err != io.EOF {
							t.Errorf("reading: got %v, want io.EOF", err)
						}
						return
					}
				}
			})
		}
		testnet.Within(t, "the readers", wg.Wait)
		if got != want {
			t.Errorf("got other bytes than were sent:\n%v\nwant\n%v", got, want)
		}
	})
}

// TestStressAbortedReads makes the calls of net/http around each request. A deadline in the past
// aborts a blocked read, then the deadline is cleared and reading continues. Data arrives all the
// time, and none of it may be lost.
func TestStressAbortedReads(t *testing.T) { onEachGOMAXPROCS(t, stressAbortedReads) }

func stressAbortedReads(t *testing.T, e engine) {
	const size = 200_000
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		server, client := testnet.Pair(t, e.listen, kind)
		go func() {
			r := random(1)
			for rest := pattern(size); len(rest) > 0; {
				n := min(len(rest), 1+r.IntN(500))
				client.Write(rest[:n])
				rest = rest[n:]
				if r.IntN(20) == 0 {
					time.Sleep(time.Duration(r.IntN(int(time.Millisecond))))
				}
			}
			client.Close()
		}()
		stop := make(chan struct{})
		var aborter sync.WaitGroup
		aborter.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				server.SetReadDeadline(longAgo)
				runtime.Gosched()
				server.SetReadDeadline(time.Time{})
				runtime.Gosched()
			}
		})
		var received []byte
		buf := make([]byte, 700)
		for {
			n, err := server.Read(buf)
			received = append(received, buf[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v, want a timeout or the end", err)
				break
			}
		}
		close(stop)
		aborter.Wait()
		if !bytes.Equal(received, pattern(size)) {
			t.Errorf("%s: got %s, want %s", kind, digest(received), digest(pattern(size)))
		}
	}
}

// TestStressDeadlines runs many reads with random deadlines that are moved; each must end, but not
// before its time.
func TestStressDeadlines(t *testing.T) { onEachGOMAXPROCS(t, stressDeadlines) }

func stressDeadlines(t *testing.T, e engine) {
	const conns, reads = 100, 10
	ln := testnet.Listen(t, e.listen, testnet.Unix)
	var wg sync.WaitGroup
	for i := range uint64(conns) {
		server, _ := testnet.Connect(t, ln)
		wg.Go(func() {
			r := random(i)
			for range reads {
				deadline := time.Now().Add(time.Duration(r.IntN(int(20 * time.Millisecond))))
				switch r.IntN(3) {
				case 0:
					server.SetReadDeadline(deadline.Add(-10 * time.Millisecond)) // then later
				case 1:
					server.SetReadDeadline(deadline.Add(time.Hour)) // then earlier
				}
				server.SetReadDeadline(deadline)
				_, err := server.Read(make([]byte, 1))
				if now := time.Now(); now.Before(deadline) {
					t.Errorf("got %v %v before the deadline", err, deadline.Sub(now))
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v, want a timeout", err)
				}
			}
		})
	}
	testnet.Within(t, "all reads ending", wg.Wait)
}

// TestStressStartStop opens and closes listeners and connections in every order from several
// goroutines. So everything that an engine starts with the first and stops with the last of them
// starts and stops all the time.
func TestStressStartStop(t *testing.T) {
	onEachGOMAXPROCS(t, func(t *testing.T, e engine) {
		var wg sync.WaitGroup
		for g := range uint64(4) {
			wg.Go(func() {
				r := random(g)
				for range rounds(100) {
					if err := startAndStop(t, e, r); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		testnet.Within(t, "starting and stopping", wg.Wait)
	})
}

// startAndStop opens a listener and a connection, uses them, and closes them in random order.
func startAndStop(t *testing.T, e engine, r *rand.Rand) error {
	ln, err := e.listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	accepted := goAccept(ln, 1)
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	resetOnClose(client)
	outcome := <-accepted
	if outcome.err != nil {
		return outcome.err
	}
	defer outcome.conn.Close()
	closers := []io.Closer{ln, outcome.conn, client}
	if r.IntN(2) == 0 {
		ln.Close() // the connection stays open
	}
	message := pattern(1 + r.IntN(3000))
	go client.Write(message)
	got := make([]byte, len(message))
	if _, err := io.ReadFull(outcome.conn, got); err != nil || !bytes.Equal(got, message) {
		return fmt.Errorf("got %s, %w, want %s", digest(got), err, digest(message))
	}
	r.Shuffle(len(closers), func(i, j int) { closers[i], closers[j] = closers[j], closers[i] })
	for _, c := range closers {
		c.Close()
	}
	return nil
}

// TestStressBusyNeighbors has connections with constant data, and server goroutines that read
// constantly: a quiet connection must get its turn.
func TestStressBusyNeighbors(t *testing.T) {
	onEachGOMAXPROCS(t, func(t *testing.T, e engine) {
		const busy = 4
		ln := testnet.Listen(t, e.listen, testnet.TCP4)
		startEcho(t, ln)
		goesOn := startWitness(t, ln)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range busy {
			c := testnet.Dial(t, ln)
			wg.Go(func() { io.Copy(io.Discard, c) })
			wg.Go(func() {
				defer c.Close()
				for {
					select {
					case <-stop:
						return
					default:
						if _, err := c.Write(pattern(100_000)); err != nil {
							t.Errorf("busy connection: %v", err)
							return
						}
					}
				}
			})
		}
		for range 5 {
			goesOn()
		}
		close(stop)
		testnet.Within(t, "busy connections ending", wg.Wait)
	})
}

// TestStressCopies proxies many connections through io.Copy in both directions
// while some of them are cut.
func TestStressCopies(t *testing.T) {
	onEachGOMAXPROCS(t, func(t *testing.T, e engine) {
		const clients = 16
		backend := testnet.Listen(t, e.listen, testnet.TCP4)
		startEcho(t, backend)
		front := testnet.Listen(t, e.listen, testnet.Unix)
		var proxies sync.WaitGroup
		proxies.Go(func() { proxyAll(t, &proxies, front, backend) })
		t.Cleanup(func() {
			front.Close()
			testnet.Within(t, "the proxy ending", proxies.Wait)
		})
		var wg sync.WaitGroup
		for g := range uint64(clients) {
			wg.Go(func() {
				r := random(g)
				for range rounds(20) {
					c, err := net.Dial("unix", front.Addr().String())
					if err != nil {
						t.Errorf("dialing: %v", err)
						return
					}
					if r.IntN(4) == 0 {
						c.Write(pattern(50_000)) // and cut
					} else if err := roundTrip(c, pattern(1+r.IntN(100_000))); err != nil {
						t.Errorf("through the proxy: %v", err)
					}
					c.Close()
				}
			})
		}
		testnet.Within(t, "the clients", wg.Wait)
	})
}

// proxyAll connects each connection of front to backend until front is closed.
func proxyAll(t *testing.T, wg *sync.WaitGroup, front, backend net.Listener) {
	for {
		near, err := front.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("the proxy's Accept: %v", err)
			}
			return
		}
		far, err := net.Dial(backend.Addr().Network(), backend.Addr().String())
		if err != nil {
			t.Errorf("the proxy dialing: %v", err)
			near.Close()
			continue
		}
		resetOnClose(far)
		for _, way := range [][2]net.Conn{{far, near}, {near, far}} {
			wg.Go(func() {
				if _, err := io.Copy(way[0], way[1]); !isUsualEnd(err) && !strings.Contains(err.Error(), "splice") {
					t.Errorf("copying: %v", err)
				}
				near.Close()
				far.Close()
			})
		}
	}
}
