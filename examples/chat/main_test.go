package main

import (
	"bufio"

	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithCheck(pool.CheckLeaks)) }

// start serves a chat on three loops and returns the listener. Its unix sockets hold less than those of
// TCP, so that messages wait for clients that read slowly.
func start(t *testing.T, patience time.Duration) net.Listener {
	group, err := loop.NewGroup(loop.Config{Loops: 3})
	if err != nil {
		t.Skip("no loops: ", err)
	}
	defer group.Close()
	lc := percore.ListenConfig{Group: group, LeastLoaded: true}
	network, address := testnet.Address(t, testnet.Unix)
	ln, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(patience)
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
	ln := start(t, testnet.HangTimeout)
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

// TestFlood has several clients write without a pause to others that only read, one of them little at a
// time. All receive all lines, those of each client in order, and little is in memory.
func TestFlood(t *testing.T) {
	ln := start(t, testnet.HangTimeout)
	const talkers, listeners, lines = 3, 10, 1500
	filler := strings.Repeat("x", 1000)
	conns := make([]net.Conn, talkers+listeners) // talkers receive their own lines, too
	readers := make([]*bufio.Reader, len(conns))
	for i := range conns {
		conns[i] = testnet.Dial(t, ln)
		readers[i] = bufio.NewReader(conns[i])
		if i == len(conns)-1 {
			readers[i] = bufio.NewReaderSize(conns[i], 256)
		}
		fmt.Fprintln(conns[i], "hello")
		readLine(t, readers[i]) // so that it is in a room
		conns[i].SetDeadline(time.Now().Add(testnet.HangTimeout))
	}
	done := make(chan error, 2*len(conns))
	for i, c := range conns[:talkers] {
		go func() {
			w := bufio.NewWriterSize(c, 256<<10)
			for n := range lines {
				fmt.Fprintln(w, i, n, filler)
			}
			done <- w.Flush()
		}()
	}
	for _, r := range readers {
		go func() { done <- hearAll(r, talkers, lines) }()
	}
	for range talkers + len(conns) {
		if err := testnet.Receive(t, "a client's end", done); err != nil {
			t.Fatal(err)
		}
	}
}

// hearAll reads the lines of all talkers, and looks at how much is in memory.
func hearAll(r *bufio.Reader, talkers, lines int) error {
	next := make([]int, talkers)
	for range talkers * lines {
		line, err := hear(r)
		var from, n int
		if fmt.Sscan(line, &from, &n); err != nil || n != next[from] {
			return fmt.Errorf("got line %d of client %d, %v, want its line %d", n, from, err, next[from])
		}
		next[from]++
		// A message of each talker, and the backlog of the slowest, which the others share: far less
		// than the four megabytes that are sent.
		if got := percore.ReadStats().Pool.BytesInUse; n%10 == 0 && got > 2<<20 {
			return fmt.Errorf("got %d bytes of buffers in use", got)
		}
	}
	return nil
}

// TestSilentReader has a client that never reads: it is cut off, and the others receive everything.
func TestSilentReader(t *testing.T) {
	ln := start(t, 50*time.Millisecond)
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
	silent.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if n, err := io.Copy(io.Discard, silent); os.IsTimeout(err) || n >= 4096*lineMax {
		t.Errorf("the client that didn't read got %d bytes, %v; want fewer, and the end", n, err)
	}
}
