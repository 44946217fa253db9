package h2

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// endless writes until it fails, and sends the error.
func endless(ended chan<- error) HandlerFunc {
	return func(s *Stream, _ *Request) {
		err := s.Send(Message{Status: 200})
		for err == nil {
			_, err = s.Write(make([]byte, 4<<10))
		}
		ended <- err
	}
}

// greedy says hello, opens the windows, and requests something.
func greedy(t testing.TB, c net.Conn) *frames.Peer {
	const window = 1 << 30
	return frames.NewPeer(t, c, 4, window).Window(0, window).Request(1, true).Flush()
}

// TestBubbleStopped: a client that was stopped for less than twice WriteTimeout, and goes on, reads why
// its streams have ended.
func TestBubbleStopped(t *testing.T) {
	for _, test := range []struct {
		stopped time.Duration
		ended   bool // the stream, by then
		closed  bool
	}{
		{29 * time.Second, false, false},
		{31 * time.Second, true, false},
		{45 * time.Second, true, false},
		{61 * time.Second, true, true},
	} {
		t.Run(test.stopped.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				server := New(endless(ended), Config{})
				_, p := pipePeer(t, server)
				p = greedy(t, p.Conn).Want("headers 1 :status=200")
				time.Sleep(test.stopped)
				line := p.Next()
				for n := 0; strings.HasPrefix(line, "data 1 ") && (test.ended || n < 100); n++ {
					line = p.Next()
				}
				switch {
				case test.closed && line != "end" && !strings.HasPrefix(line, "error"), !test.ended && !strings.HasPrefix(line, "data"):
					t.Errorf("after %v: got %q", test.stopped, line)
				case test.ended && !test.closed:
					if want := `goaway 1 NO_ERROR "the client has taken nothing for 30s"`; line != want {
						t.Errorf("got %q, want %q", line, want)
					}
					p.Want("end")
				}
				if !test.ended {
					return
				}
				if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "WriteTimeout") {
					t.Errorf("the stream has ended after %v: %v", test.stopped, err)
				}
			})
		})
	}
}

// TestBubbleSlowReader: a client that reads slowly, but all the time, keeps its connection, in clear and
// over TLS.
func TestBubbleSlowReader(t *testing.T) {
	ids := newIdentities(t)
	for name, conns := range bubbleConns {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				server := New(endless(ended), Config{})
				ours, theirs := conns(t, ids)
				if _, err := server.Attach(ours, nil, nil); err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				p := greedy(t, theirs).Want("headers 1 :status=200")
				for range 100 {
					time.Sleep(5 * time.Second)
					if _, err := io.ReadFull(p.Conn, make([]byte, 5<<10)); err != nil {
						t.Fatal(err, <-ended)
					}
				}
				select {
				case err := <-ended:
					t.Errorf("the stream has ended: %v", err)
				default:
				}
			})
		})
	}
}

// attachSocket returns a client of a TCP connection that the server gets, with the kernel's own buffers.
func attachSocket(t *testing.T, server *Server, secure bool) *frames.Peer {
	l := testnet.Listen(t, percore.Listen, testnet.TCP4)
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if secure {
		ids := newIdentities(t)
		shaken := ids.accept(t, ours)
		theirs = ids.dial(t, theirs)
		ours = <-shaken
	}
	if _, err := server.Attach(ours, nil, nil); err != nil {
		t.Fatal(err)
	}
	return greedy(t, theirs).Want("headers 1 :status=200")
}

// TestSlowReader: the kernel of a client that reads all the time acknowledges a whole buffer, and then
// nothing for more than twice WriteTimeout, as with 3 KB/s and the default.
func TestSlowReader(t *testing.T) {
	for name, secure := range map[string]bool{"clear": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const (
				timeout   = 400 * time.Millisecond
				perSecond = 100 << 10
				total     = 3 * perSecond
			)
			ended := make(chan error, 1)
			server := New(endless(ended), Config{WriteTimeout: timeout})
			defer server.Close()
			p := attachSocket(t, server, secure)
			begun := time.Now()
			for got := 0; got < total; {
				time.Sleep(10 * time.Millisecond)
				due := int(time.Since(begun) * perSecond / time.Second)
				if due <= got {
					continue
				}
				if _, err := io.ReadFull(p.Conn, make([]byte, due-got)); err != nil {
					t.Fatalf("after %d bytes: %v", got, err)
				}
				got = due
				select {
				case err := <-ended:
					t.Fatalf("after %d bytes the stream has ended: %v", got, err)
				default:
				}
			}
		})
	}
}

// TestStopped: a client that was stopped until its streams ended reads why.
func TestStopped(t *testing.T) {
	for name, secure := range map[string]bool{"clear": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			server := New(endless(ended), Config{WriteTimeout: time.Second})
			defer server.Close()
			p := attachSocket(t, server, secure)
			testnet.Eventually(t, "the end of its patience", func() bool { return server.Stats().Timeouts["read"] == 1 })
			b, err := io.ReadAll(p.Conn) // megabytes, in a second
			if want := "the client has taken nothing for 1s"; err != nil || !strings.HasSuffix(string(b), want) {
				t.Errorf("got %d bytes, %q and %v at the end, want %q", len(b), b[max(0, len(b)-100):], err, want)
			}
			if err := testnet.Receive(t, "the stream's end", ended); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "WriteTimeout") {
				t.Errorf("the stream has ended: %v", err)
			}
		})
	}
}

// bubbleConns make connections in memory, the server's end and the client's.
var bubbleConns = map[string]func(t *testing.T, ids identities) (ours, theirs net.Conn){
	"clear": func(*testing.T, identities) (ours, theirs net.Conn) { return net.Pipe() },
	"TLS": func(t *testing.T, ids identities) (ours, theirs net.Conn) {
		ours, theirs = net.Pipe()
		shaken := ids.accept(t, ours)
		client := ids.dial(t, theirs)
		return <-shaken, client
	},
}

// identities are the configurations of both ends. They are made outside of a bubble, whose time is
// before that of the certificate.
type identities struct{ server, client *tls.Config }

func newIdentities(t *testing.T) (k identities) {
	k.server, k.client = testnet.TLS(t)
	now := time.Now()
	k.client.Time = func() time.Time { return now }
	return k
}

// accept does the server's part of a handshake.
func (k identities) accept(t *testing.T, c net.Conn) <-chan net.Conn {
	done := make(chan net.Conn, 1)
	go func() {
		tc := tls.Server(c, k.server)
		if err := tc.Handshake(); err != nil {
			t.Error(err)
		}
		done <- tc
	}()
	return done
}

// dial does the client's.
func (k identities) dial(t *testing.T, c net.Conn) *recordConn {
	tc, records := testnet.DialRecords(t, c, k.client)
	return &recordConn{Conn: tc, below: c, records: records}
}

// recordConn is a TLS client's connection that can send more than data.
type recordConn struct {
	net.Conn
	below   net.Conn
	records *testnet.Records
	first   []byte // goes before what is written next
}

func (c *recordConn) Write(p []byte) (int, error) {
	if _, err := c.below.Write(append(c.first, c.records.Make(testnet.RecordData, p)...)); err != nil {
		return 0, err
	}
	c.first = nil
	return len(p), nil
}

// playKeyUpdate asks for new keys between two requests.
func playKeyUpdate(t *testing.T, c *recordConn, between func()) {
	p := frames.NewPeer(t, c).Request(1, true).Flush().Want(helloTo(1)...)
	between()
	c.first = c.records.Update(testnet.KeyUpdateWithResponse)
	p.Request(3, true).Flush().Want(helloTo(3)...)
}

// TestBubbleKeyUpdate: crypto/tls answers a KeyUpdate in Read, however long ago something was written.
func TestBubbleKeyUpdate(t *testing.T) {
	ids := newIdentities(t)
	synctest.Test(t, func(t *testing.T) {
		server := New(HandlerFunc(hello), Config{IdleTimeout: -1})
		ours, theirs := net.Pipe()
		shaken := ids.accept(t, ours)
		client := ids.dial(t, theirs)
		if _, err := server.Attach(<-shaken, nil, nil); err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		playKeyUpdate(t, client, func() { time.Sleep(10 * writeTimeout) })
	})
}

// attachTLS returns a client of a connection over TLS that the server gets from attach.
func attachTLS(t *testing.T, attach func(nc net.Conn)) *recordConn {
	ids := newIdentities(t)
	l, err := percore.Listen("unix", filepath.Join(t.TempDir(), "s")) // whose buffer is small
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	nc, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	shaken := ids.accept(t, ours)
	client := ids.dial(t, nc)
	attach(<-shaken)
	return client
}

// TestKeyUpdate: the same on a loop, with a write deadline from before the server got the connection.
func TestKeyUpdate(t *testing.T) {
	server := New(HandlerFunc(hello), Config{})
	defer server.Close()
	client := attachTLS(t, func(nc net.Conn) {
		_ = nc.SetWriteDeadline(time.Unix(1, 0))
		if _, err := server.Attach(nc, nil, nil); err != nil {
			t.Fatal(err)
		}
	})
	playKeyUpdate(t, client, func() {})
}

// TestKeyUpdateFlood: a client that asks for new keys, and doesn't read the answers, holds a worker for
// no longer than one that doesn't read what handlers write.
func TestKeyUpdateFlood(t *testing.T) {
	if l, ok := testnet.Listen(t, percore.Listen, testnet.TCP4).(*percore.Listener); !ok || l.Stats().Sockets == 0 {
		t.Skip("a goroutine reads from each connection, which is held: run it without the build tag percore_net")
	}
	server := New(HandlerFunc(hello), Config{WriteTimeout: 100 * time.Millisecond})
	defer server.Close()
	client := attachTLS(t, func(nc net.Conn) {
		if _, err := server.Attach(nc, nil, nil); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := client.Write([]byte(http2.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for err := error(nil); err == nil; {
			for range 12 { // crypto/tls takes no more in a row
				client.first = append(client.first, client.records.Update(testnet.KeyUpdateWithResponse)...)
			}
			_, err = client.Write([]byte("\x00\x00\x00\x63\x00\x00\x00\x00\x00")) // a frame of an unknown type
		}
	}()
	testnet.Eventually(t, "the end", func() bool { return server.Stats().Timeouts["read"] == 1 && server.Stats().Conns == 0 })
	client.below.Close()
	<-ended
}
