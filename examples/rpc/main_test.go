package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithCheck(pool.CheckLeaks)) }

// start serves methods and returns the listener.
func start(t *testing.T, methods map[string]method) net.Listener {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server, err := newServer(methods)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		testnet.Receive(t, "the server's end", done)
	})
	return ln
}

// send makes a call.
func send(t *testing.T, c net.Conn, number uint32, name, arg string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := c.Write(appendCall(nil, number, name, []byte(arg))); err != nil {
		t.Fatal(err)
	}
}

// expect reads an answer.
func expect(t *testing.T, c net.Conn, number uint32, result, failure string) {
	t.Helper()
	gotNumber, got, err := readAnswer(c)
	gotFailure := ""
	if err != nil {
		gotFailure = err.Error()
	}
	if gotNumber != number || string(got) != result || gotFailure != failure {
		t.Fatalf("got answer %d, %q, %q, want %d, %q, %q", gotNumber, got, gotFailure, number, result, failure)
	}
}

func TestMethods(t *testing.T) {
	ln := start(t, methods)
	if got, err := callOnce(ln.Addr().String(), "upper", "hello"); got != "HELLO" || err != nil {
		t.Errorf("got %q, %v, want HELLO", got, err)
	}
	if got, err := callOnce(ln.Addr().String(), "hash", "hello"); len(got) != 64 || err != nil {
		t.Errorf("got %q, %v, want a hash", got, err)
	}
	if got, err := callOnce(ln.Addr().String(), "hash", ""); err == nil || err.Error() != "nothing to hash" {
		t.Errorf("got %q, %v, want a failure", got, err)
	}
	if got, err := callOnce(ln.Addr().String(), "lower", "HELLO"); err == nil || err.Error() != `there is no method "lower"` {
		t.Errorf("got %q, %v, want a failure", got, err)
	}
}

// TestQuickOvertakesSlow has a slow call under way: quick ones of the same connection are answered,
// and slow ones after it in order.
func TestQuickOvertakesSlow(t *testing.T) {
	release := make(chan bool)
	ln := start(t, map[string]method{
		"slow":  {run: func(arg []byte) ([]byte, error) { <-release; return arg, nil }},
		"quick": {quick: true, run: func(arg []byte) ([]byte, error) { return arg, nil }},
	})
	c := testnet.Dial(t, ln)
	for n := range uint32(3) {
		send(t, c, n, "slow", "s")
	}
	send(t, c, 7, "quick", "q")
	expect(t, c, 7, "q", "")
	close(release)
	for n := range uint32(3) {
		expect(t, c, n, "s", "")
	}
}

// TestManyClients makes calls from many connections at once. Each client gets its own answers.
func TestManyClients(t *testing.T) {
	ln := start(t, methods)
	const clients, calls = 16, 50
	var wg sync.WaitGroup
	for i := range clients {
		c := testnet.Dial(t, ln)
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		wg.Go(func() {
			var all []byte
			for n := range calls {
				all = appendCall(all, uint32(n), []string{"upper", "hash"}[n%2], fmt.Appendf(nil, "client %d", i))
			}
			if _, err := c.Write(all); err != nil {
				t.Error(err)
				return
			}
			var seen [calls]bool
			for range calls {
				number, result, err := readAnswer(c)
				switch {
				case err != nil:
					t.Error(err)
					return
				case number >= calls || seen[number]:
					t.Errorf("got a second answer to call %d", number)
				case number%2 == 0 && string(result) != fmt.Sprintf("CLIENT %d", i):
					t.Errorf("client %d got %q", i, result)
				}
				seen[number] = true
			}
		})
	}
	testnet.Within(t, "the clients' end", wg.Wait)
}

// TestHalfClose has a client that ends its stream behind its calls: it gets all answers.
func TestHalfClose(t *testing.T) {
	release := make(chan bool)
	ln := start(t, map[string]method{
		"slow": {run: func(arg []byte) ([]byte, error) { <-release; return arg, nil }},
	})
	c := testnet.Dial(t, ln)
	for n := range uint32(3) {
		send(t, c, n, "slow", "s")
	}
	c.(*net.TCPConn).CloseWrite()
	close(release)
	for n := range uint32(3) {
		expect(t, c, n, "s", "")
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		t.Errorf("got %d bytes, %v, want the end", n, err)
	}
}

// TestLongCalls has a client that makes slow calls with the longest arguments, without end: they take
// little more memory than one.
func TestLongCalls(t *testing.T) {
	release := make(chan bool)
	begun := make(chan bool, 1)
	var ended atomic.Int64
	ln := start(t, map[string]method{
		"slow": {run: func(arg []byte) ([]byte, error) {
			select {
			case begun <- true:
			default:
			}
			<-release
			ended.Add(1)
			return nil, nil
		}},
	})
	c := testnet.Dial(t, ln)
	c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	before := testnet.HeapBytes()
	const calls = 50
	call := appendCall(nil, 1, "slow", make([]byte, frameMax-10))
	var sent atomic.Int64
	sending := make(chan error, 1)
	go func() {
		for range calls {
			n, err := c.Write(call)
			sent.Add(int64(n))
			if err != nil {
				sending <- err
				return
			}
		}
		sending <- nil
	}()
	testnet.Receive(t, "a call", begun)
	// Without a bound all are read before long; with one the sockets take a few.
	last := int64(-1)
	testnet.Eventually(t, "the client is held up", func() bool {
		held := sent.Load() == last
		last = sent.Load()
		time.Sleep(100 * time.Millisecond)
		return held
	})
	// The argument, the frame that is being read, in a buffer of twice its length, and the test's own.
	if got, most := testnet.HeapBytes()-before, 8<<20; got > most {
		t.Errorf("a connection takes %d bytes of heap, want %d at most", got, most)
	}
	close(release)
	for range calls {
		expect(t, c, 1, "", "")
	}
	if err := testnet.Receive(t, "the client's end", sending); err != nil || ended.Load() != calls {
		t.Errorf("%d calls ended, %v, want %d", ended.Load(), err, calls)
	}
}

// TestFlood has clients that make calls without end and don't read answers, in long answers and in slow
// calls. They are held up: neither answers nor what is read fills the memory, and others are served.
func TestFlood(t *testing.T) {
	release := make(chan bool)
	var begun atomic.Int64
	ln := start(t, map[string]method{
		"slow": {run: func(arg []byte) ([]byte, error) { begun.Add(1); <-release; return nil, nil }},
		"long": {quick: true, run: func([]byte) ([]byte, error) { return make([]byte, 100_000), nil }},
		"echo": {quick: true, run: func(arg []byte) ([]byte, error) { return arg, nil }},
	})
	var flooders sync.WaitGroup
	var conns []net.Conn
	for _, name := range []string{"slow", "long"} {
		c := testnet.Dial(t, ln)
		conns = append(conns, c)
		burst := bytes.Repeat(appendCall(nil, 1, name, make([]byte, 1000)), 100)
		flooders.Go(func() {
			for {
				if _, err := c.Write(burst); err != nil {
					return
				}
			}
		})
	}
	// A buffer of the pool is for bytes that wait: WriteHighWaterMark and an answer for one, a read for
	// the other. Calls that wait hold their arguments.
	const inUseMax = 2 << 20
	c := testnet.Dial(t, ln)
	for n := range uint32(2000) {
		send(t, c, n, "echo", "hello")
		expect(t, c, n, "hello", "")
		if got := pool.ReadStats().BytesInUse; got > inUseMax {
			t.Fatalf("got %d bytes of buffers in use, want %d at most", got, inUseMax)
		}
	}
	for _, c := range conns {
		c.Close()
	}
	testnet.Within(t, "the flooders' end", flooders.Wait)
	if got := begun.Load(); got > 1 {
		t.Errorf("%d slow calls of a connection were begun, want one after the other", got)
	}
	close(release)
}

// TestBadCalls sends frames that no client sends: they end the connection.
func TestBadCalls(t *testing.T) {
	ln := start(t, methods)
	for name, p := range map[string]string{
		"long":    "\xff\xff\xff\xff",
		"empty":   "\x00\x00\x00\x00",
		"cut off": "\x00\x00\x00\x05\x00\x00\x00\x01\x05",
	} {
		c := testnet.Dial(t, ln)
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		c.Write([]byte(p))
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: got %d bytes, %v, want the end", name, n, err)
		}
	}
}

func FuzzCall(f *testing.F) {
	f.Add(appendCall(nil, 1, "upper", []byte("hello")))
	f.Add([]byte("\x00\x00\x00\x05\x00\x00\x00\x01\x05"))
	f.Fuzz(func(t *testing.T, p []byte) {
		frame, used, err := format.Next(p)
		if err != nil || used == 0 {
			if frame != nil {
				t.Errorf("%q: got a frame of %d bytes, %v", p, used, err)
			}
			return
		}
		if used != headLen+int(binary.BigEndian.Uint32(p)) || len(frame) != used-headLen {
			t.Errorf("%q: got a frame of %d bytes, %d in total", p, len(frame), used)
		}
		number, name, arg, err := parseCall(frame)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Error(err)
			}
			return
		}
		if again := appendCall(nil, number, string(name), arg); !bytes.Equal(again, p[:used]) {
			t.Errorf("%q: got %q again", p[:used], again)
		}
	})
}
