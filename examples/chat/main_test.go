package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithCheck(pool.CheckLeaks)) }

// start serves a chat on three loops and returns the listener.
func start(t *testing.T) net.Listener {
	group, err := loop.NewGroup(loop.Config{Loops: 3})
	if err != nil {
		t.Skip("no loops: ", err)
	}
	defer group.Close()
	lc := percore.ListenConfig{Group: group, LeastLoaded: true}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		testnet.Receive(t, "the server's end", done)
	})
	return ln
}

// TestChat makes clients on all loops talk at once: each receives all lines of every other client,
// in order.
func TestChat(t *testing.T) {
	ln := start(t)
	const clients, lines = 12, 50
	var conns []net.Conn
	var readers []*bufio.Reader
	for range clients {
		c := testnet.Dial(t, ln)
		conns, readers = append(conns, c), append(readers, bufio.NewReader(c))
		fmt.Fprintln(c, "hello")
		readLine(t, readers[len(readers)-1]) // so that it is in a room
	}
	done := make(chan bool)
	for i, c := range conns {
		go func() {
			for n := range lines {
				fmt.Fprintln(c, i, n)
			}
			done <- true
		}()
		go func() {
			defer func() { done <- true }()
			var next [clients]int
			for range clients * lines {
				line, err := hear(readers[i])
				var from, n int
				if fmt.Sscan(line, &from, &n); err != nil || n != next[from] {
					t.Errorf("client %d got line %d of client %d, %v, want its line %d", i, n, from, err, next[from])
					return
				}
				next[from]++
			}
		}()
	}
	for range 2 * clients {
		testnet.Receive(t, "a client's end", done)
	}
}

// hear returns the next line that isn't a greeting.
func hear(r *bufio.Reader) (line string, err error) {
	for err == nil && (line == "" || line == "hello\n") {
		line, err = r.ReadString('\n')
	}
	return line, err
}

func readLine(t *testing.T, r *bufio.Reader) {
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// TestFlood makes a client send nearly as many lines as fit into WriteHardLimit at once, again and
// again, to clients that only read. They receive all of them, in order, and none is cut off.
func TestFlood(t *testing.T) {
	ln := start(t)
	const listeners, size, rounds = 20, 960 << 10, 8
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	flood := bytes.Repeat(line, size/len(line))
	conns := make([]net.Conn, listeners+1) // the talker is the first, and receives its own lines
	greetings := make([]*bufio.Reader, len(conns))
	for i := range conns {
		conns[i] = testnet.Dial(t, ln)
		greetings[i] = bufio.NewReader(conns[i])
		fmt.Fprintln(conns[i], "hello")
		readLine(t, greetings[i]) // so that it is in a room
	}
	heard := make(chan error, len(conns))
	for range rounds {
		for i, r := range greetings {
			conns[i].SetDeadline(time.Now().Add(testnet.HangTimeout))
			go func() {
				got := make([]byte, len(flood))
				n := 0
				for n < len(got) {
					line, err := hear(r)
					if err != nil {
						heard <- err
						return
					}
					n += copy(got[n:], line)
				}
				if !bytes.Equal(got, flood) {
					heard <- errors.New("lines are missing")
					return
				}
				heard <- nil
			}()
		}
		if _, err := conns[0].Write(flood); err != nil {
			t.Fatal(err)
		}
		for range conns {
			if err := testnet.Receive(t, "the lines", heard); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSilentReader has a client that never reads: it is cut off, and the others receive everything.
func TestSilentReader(t *testing.T) {
	ln := start(t)
	silent, talker := testnet.Dial(t, ln), testnet.Dial(t, ln)
	r := bufio.NewReader(talker)
	// A line goes to the clients that are in a room when it is sent. So the talker enters one
	// before the other client speaks.
	for _, c := range []net.Conn{talker, silent} {
		fmt.Fprintln(c, "hello")
		readLine(t, r)
	}
	line := make([]byte, lineMax)
	for i := range line {
		line[i] = 'x'
	}
	line[len(line)-1] = '\n'
	for range 4096 { // more than a socket's buffers and WriteHardLimit hold
		if _, err := talker.Write(line); err != nil {
			t.Fatal(err)
		}
		readLine(t, r)
	}
}
