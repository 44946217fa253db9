package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// start serves a new store and returns the listener.
func start(t *testing.T) net.Listener { return startWith(t, testnet.HangTimeout) }

func startWith(t *testing.T, patience time.Duration) net.Listener {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server, err := newServer(patience)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		if err := server.Shutdown(t.Context()); err != nil {
			server.Close()
		}
		testnet.Receive(t, "the server's end", done)
	})
	return ln
}

// conversations are commands and their answers.
var conversations = map[string][2]string{
	"values":       {"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhello\r\n*2\r\n$3\r\nget\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n", "+OK\r\n$5\r\nhello\r\n$-1\r\n"},
	"empty value":  {"*3\r\n$3\r\nSET\r\n$1\r\ne\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\ne\r\n", "+OK\r\n$0\r\n\r\n"},
	"overwritten":  {"set k long-value\r\nset k x\r\nget k\r\n", "+OK\r\n+OK\r\n$1\r\nx\r\n"},
	"deleted":      {"set x 1\r\nset y 2\r\ndel x y z\r\nget x\r\n", "+OK\r\n+OK\r\n:2\r\n$-1\r\n"},
	"numbers":      {"incr n\r\nincr n\r\nget n\r\nset n 9223372036854775807\r\nincr n\r\nset n x\r\nincr n\r\n", ":1\r\n:2\r\n$1\r\n2\r\n+OK\r\n-ERR value is not an integer or out of range\r\n+OK\r\n-ERR value is not an integer or out of range\r\n"},
	"ping":         {"PING\r\n*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n\r\n", "+PONG\r\n$2\r\nhi\r\n"},
	"unknown":      {"flushall\r\n", "-ERR unknown command '\"FLUSHALL\"'\r\n"},
	"arguments":    {"get\r\n", "-ERR wrong number of arguments for '\"GET\"' command\r\n"},
	"no array":     {"*0\r\nPING\r\n", "+PONG\r\n"},
	"bad length":   {"*x\r\nPING\r\n", "-ERR Protocol error: invalid length\r\n"},
	"negative":     {"*-1\r\nPING\r\n", "-ERR Protocol error: invalid length\r\n"},
	"long length":  {"*1\r\n$99999999999999999999999\r\n", "-ERR Protocol error: invalid length\r\n"},
	"not a string": {"*1\r\n:1\r\n", "-ERR Protocol error: expected a bulk string\r\n"},
	"wrong end":    {"*1\r\n$4\r\nPINGxx", "-ERR Protocol error: expected a bulk string\r\n"},
}

// TestConversations sends each at once, and byte by byte.
func TestConversations(t *testing.T) {
	for name, conversation := range conversations {
		question, want := conversation[0], conversation[1]
		for _, portion := range []int{len(question), 1} {
			t.Run(fmt.Sprintf("%s by %d bytes", name, portion), func(t *testing.T) {
				c := testnet.Dial(t, start(t))
				for p := range slices.Chunk([]byte(question), portion) {
					if _, err := c.Write(p); err != nil {
						break // the server has closed the connection
					}
				}
				c.(*net.TCPConn).CloseWrite()
				answer, _ := io.ReadAll(c) // a reset may end it
				if string(answer) != want {
					t.Errorf("got %q, want %q", answer, want)
				}
			})
		}
	}
}

// TestPipelined makes clients send all their commands before they read an answer.
func TestPipelined(t *testing.T) {
	ln := start(t)
	const clients, commands = 8, 2000
	done := make(chan error, clients)
	for range clients {
		c := testnet.Dial(t, ln)
		go func() {
			_, err := io.WriteString(c, strings.Repeat("INCR shared\r\nPING\r\n", commands))
			done <- err
		}()
		go func() {
			r := bufio.NewReader(c)
			for range commands {
				number, err := r.ReadString('\n')
				pong, _ := r.ReadString('\n')
				if err != nil || number[0] != ':' || pong != "+PONG\r\n" {
					t.Errorf("got %q and %q, %v, want a number and a pong", number, pong, err)
					break
				}
			}
			done <- nil
		}()
	}
	for range 2 * clients {
		if err := testnet.Receive(t, "a client's end", done); err != nil {
			t.Error(err)
		}
	}
	c := testnet.Dial(t, ln)
	io.WriteString(c, "GET shared\r\n")
	want := "$5\r\n16000\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestPipelinedLong makes a client send all its commands for long values before it reads an answer.
// It gets all answers, in order, and only a few are in memory.
func TestPipelinedLong(t *testing.T) {
	c := testnet.Dial(t, start(t))
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	value := strings.Repeat("v", bulkMax)
	fmt.Fprintf(c, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", len(value), value)
	const gets = 300
	io.WriteString(c, strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", gets)+"PING\r\n")
	r := bufio.NewReader(c)
	line := func(want string) {
		t.Helper()
		if got, err := r.ReadString('\n'); got != want || err != nil {
			t.Fatalf("got %.50q, %v, want %q", got, err, want)
		}
	}
	line("+OK\r\n")
	got := make([]byte, len(value)+2)
	for n := range gets {
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		line(fmt.Sprintf("$%d\r\n", len(value)))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != value+"\r\n" {
			t.Fatalf("answer %d is wrong (%v)", n, err)
		}
		// The rest of the commands, the high-water mark and an answer, in buffers with sizes that
		// are powers of two.
		if n := pool.ReadStats().BytesInUse; n > 4*bulkMax {
			t.Fatalf("got %d bytes of buffers in use, want %d at most", n, 4*bulkMax)
		}
	}
	line("+PONG\r\n")
}

// TestSilentReader has a client that sends commands without end and doesn't read: it is held up, with
// little in memory, and then cut off. Another is served.
func TestSilentReader(t *testing.T) {
	ln := startWith(t, 50*time.Millisecond)
	silent, other := testnet.Dial(t, ln), testnet.Dial(t, ln)
	silent.SetDeadline(time.Now().Add(testnet.HangTimeout))
	other.SetDeadline(time.Now().Add(testnet.HangTimeout))
	value := strings.Repeat("v", 100_000)
	fmt.Fprintf(silent, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", len(value), value)
	cut := make(chan error, 1)
	go func() {
		gets := strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", 1000)
		for {
			if _, err := io.WriteString(silent, gets); err != nil {
				cut <- err
				return
			}
		}
	}()
	for {
		select {
		case err := <-cut:
			if os.IsTimeout(err) {
				t.Error("the client that doesn't read was not cut off")
			}
			return
		default:
		}
		io.WriteString(other, "PING\r\n")
		pong := make([]byte, len("+PONG\r\n"))
		if _, err := io.ReadFull(other, pong); err != nil || string(pong) != "+PONG\r\n" {
			t.Fatalf("the other client got %q, %v", pong, err)
		}
		// The high-water mark, an answer and commands, in buffers with sizes that are powers of two.
		if n := pool.ReadStats().BytesInUse; n > 1<<20 {
			t.Fatalf("got %d bytes of buffers in use", n)
		}
	}
}

// TestRedisBenchmark runs redis-benchmark, where it is installed.
func TestRedisBenchmark(t *testing.T) {
	program, err := exec.LookPath("redis-benchmark")
	if err != nil {
		t.Skip("redis-benchmark is not installed")
	}
	host, port, _ := net.SplitHostPort(start(t).Addr().String())
	out, err := exec.Command(program, "-h", host, "-p", port, "-t", "ping,set,get,incr", "-n", "2000", "-P", "16", "-c", "8", "--csv").CombinedOutput()
	if err != nil || strings.Count(string(out), "\"INCR\"") != 1 {
		t.Errorf("%v:\n%s", err, out)
	}
}

func FuzzParse(f *testing.F) {
	for _, conversation := range conversations {
		f.Add([]byte(conversation[0]))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 {
			return
		}
		args, n, err := parse(p, nil)
		if n < 0 || n > len(p) || err != nil && n != 0 {
			t.Fatalf("got %d bytes of %d, %v", n, len(p), err)
		}
		if n == 0 {
			return
		}
		again, m, err := parse(p[:n], nil)
		if m != n || err != nil || len(again) != len(args) {
			t.Errorf("%q: got %d parts in %d bytes, %v, want %d in %d", p[:n], len(again), m, err, len(args), n)
		}
		if n > 1 {
			if _, m, _ := parse(p[:n-1], nil); m != 0 {
				t.Errorf("%q without its last byte: got %d bytes used, want 0", p[:n], m)
			}
		}
	})
}
