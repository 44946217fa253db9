package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// newServerPeer returns a server that sends and receives single frames, and has its SETTINGS to send.
func newServerPeer(t *testing.T, nc net.Conn, settings ...uint32) *frames.Peer {
	t.Helper()
	p, err := frames.NewServerPeer(t, nc, settings...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wantFrame reads frames until line comes.
func wantFrame(p *frames.Peer, line string) {
	p.T.Helper()
	for got := p.Next(); got != line; got = p.Next() {
		if got == "end" || len(got) > 6 && got[:6] == "error:" {
			p.T.Fatalf("got %q, want the frame %q", got, line)
		}
	}
}

// pipeClient makes a client with a connection in memory, and returns that, and the server's end.
func pipeClient(t *testing.T, config ClientConfig, wrap func(net.Conn) net.Conn) (c *Conn, server net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	client := NewClient(config)
	t.Cleanup(func() { client.Close() })
	c, err := client.Attach(wrap(ours), client)
	if err != nil {
		t.Fatal(err)
	}
	return c, theirs
}

func asItIs(nc net.Conn) net.Conn { return nc }

// cutConn fails to write once cut is set, as if the peer had reset the connection.
type cutConn struct {
	net.Conn
	cut    *atomic.Bool
	failed chan struct{}
}

func (c cutConn) Write(p []byte) (int, error) {
	if c.cut.Load() {
		close(c.failed) // panics the second time
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// TestClientAnswerBehindCut: an answer that the server has sent before it takes no more is read, though
// the client finds out by writing. After that the connection ends: at once with the server's end, or
// after a while if that doesn't come.
func TestClientAnswerBehindCut(t *testing.T) {
	for _, ends := range []bool{true, false} {
		for _, size := range []int{10, 20 << 10, 300 << 10} { // of what the client writes
			synctest.Test(t, func(t *testing.T) {
				cut := cutConn{cut: new(atomic.Bool), failed: make(chan struct{})}
				states := make(chan ConnState, 10)
				c, server := pipeClient(t, ClientConfig{State: func(_ *Conn, s ConnState) { states <- s }}, func(nc net.Conn) net.Conn {
					cut.Conn = nc
					return cut
				})
				defer server.Close()
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					p := newServerPeer(t, server, 4, 1<<20).Window(0, 1<<20).Flush()
					wantFrame(p, "headers 1 :authority=example.com :method=POST :path=/ :scheme=http")
					go func() { _, _ = io.Copy(io.Discard, server) }()
					<-cut.failed
					p.Headers(1, false, ":status", "200").Data(1, "early", true).Flush()
					if ends {
						server.Close()
					}
				}()
				s, other := open(t, c, Message{}), open(t, c, Message{})
				synctest.Wait()
				cut.cut.Store(true)
				begin := time.Now()
				sent := make(chan error)
				go func() { sent <- s.Send(Message{Body: make([]byte, size)}) }()
				if a, err := s.Answer(); a.Status != 200 || err != nil {
					t.Fatalf("got %+v and %v", a, err)
				}
				if got, err := io.ReadAll(s); string(got) != "early" || err != nil {
					t.Fatalf("got %q and %v", got, err)
				}
				err := <-sent
				synctest.Wait() // the answer may be known before the writer's failure
				if size > outputMost && !errors.Is(err, syscall.EPIPE) && !(ends && errors.Is(err, io.EOF)) {
					t.Errorf("Send returned %v, want EPIPE", err)
				}
				if err := s.Send(Message{Body: []byte("x")}); !ends && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("another Send returned %v, want EPIPE", err)
				}
				if err := c.Open(t.Context(), new(Stream), post, Message{}); err != ErrLeaving {
					t.Errorf("Open returned %v, want ErrLeaving", err)
				}
				want, after := error(io.EOF), time.Duration(0)
				if !ends {
					want, after = syscall.EPIPE, lingerTime
				}
				if _, err := other.Answer(); !errors.Is(err, want) || time.Since(begin) != after {
					t.Errorf("the other stream has ended with %v after %v, want %v after %v", err, time.Since(begin), want, after)
				}
				<-answered
				synctest.Wait()
				close(states)
				var got []ConnState
				for s := range states {
					got = append(got, s)
				}
				if got[len(got)-1] != Closed || !ends && !slices.Contains(got, Leaving) {
					t.Errorf("got the states %v, want Leaving, and Closed at the end", got)
				}
			})
		}
	}
}

// TestClientCutIdle: a connection without streams to which nothing can be sent ends at once.
func TestClientCutIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := cutConn{cut: new(atomic.Bool), failed: make(chan struct{})}
		c, server := pipeClient(t, ClientConfig{PingAfter: time.Minute, PingIdle: true}, func(nc net.Conn) net.Conn {
			cut.Conn = nc
			return cut
		})
		defer server.Close()
		go func() { newServerPeer(t, server).Flush(); _, _ = io.Copy(io.Discard, server) }()
		begin := time.Now()
		time.Sleep(time.Second)
		cut.cut.Store(true)
		<-cut.failed
		synctest.Wait()
		if err := c.Err(); !errors.Is(err, syscall.EPIPE) || time.Since(begin) != time.Minute {
			t.Errorf("it has ended with %v after %v, want EPIPE after a minute", err, time.Since(begin))
		}
	})
}

// TestClientSendWaits: while the server doesn't read, and the socket's buffer is full, a caller waits
// for its stream, which its context ends, and for nothing else.
func TestClientSendWaits(t *testing.T) {
	for name, dial := range dialers {
		for _, secure := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", TLS"}[secure], func(t *testing.T) {
				l := testnet.Listen(t, net.Listen, testnet.TCP4)
				f := &fixture{t: t, l: l}
				var serverTLS *tls.Config
				if secure {
					serverTLS, f.tls = testnet.TLS(t)
					serverTLS = serverTLS.Clone()
					serverTLS.NextProtos = []string{"h2"}
				}
				begun := make(chan net.Conn, 1)
				go func() {
					nc, err := l.Accept()
					if err != nil {
						return
					}
					if secure {
						nc = tls.Server(nc, serverTLS)
					}
					newServerPeer(t, nc, 4, windowMax).Window(0, windowMax-windowMin).Flush()
					begun <- nc
				}()
				c := f.attach(dial, ClientConfig{WriteTimeout: -1})
				defer testnet.Receive(t, "the server", begun).Close()
				testnet.Eventually(t, "the server's windows are known", func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.core.Settled()
				})
				s := open(t, c, Message{})
				sent := make(chan error, 1)
				go func() { sent <- s.Send(Message{Body: make([]byte, 64<<20)}) }()
				testnet.Eventually(t, "it waits without writing", func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return s.core.Queued() && c.flushing
				})
				s.Reset(Cancel)
				var reset *StreamError
				if err := testnet.Receive(t, "Send's return", sent); !errors.As(err, &reset) || reset.Code != Cancel {
					t.Errorf("Send returned %v, want that the stream was reset", err)
				}
			})
		}
	}
}

// TestClientSaysGoAway: the server is told when a client closes a connection, before its end, whether
// the client's own streams have ended or not. A server that doesn't read isn't waited for.
func TestClientSaysGoAway(t *testing.T) {
	ways := map[string]func(c *Conn){
		"Close":        func(c *Conn) { c.Close() },
		"Client.Close": func(c *Conn) { clientOf(c).Close() },
		"Abort":        func(c *Conn) { c.Abort(NoError, "because") },
	}
	for name, end := range ways {
		for _, busy := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				check := func(t *testing.T, c *Conn, server net.Conn) {
					p := newServerPeer(t, server).Flush()
					wantFrame(p, "settings ack")
					var s *Stream
					if busy {
						s = open(t, c, Message{})
						wantFrame(p, "headers 1 :authority=example.com :method=POST :path=/ :scheme=http")
					}
					go end(c)
					want := "goaway 0 NO_ERROR"
					if name == "Abort" {
						want += ` "because"`
					}
					p.Want(want, "end")
					if !busy {
						return
					}
					if _, err := s.Answer(); err == nil {
						t.Error("a stream has not ended")
					}
				}
				synctest.Test(t, func(t *testing.T) {
					c, server := pipeClient(t, ClientConfig{}, asItIs)
					check(t, c, server)
				})
				for dialer, dial := range dialers {
					t.Run(dialer, func(t *testing.T) {
						f := &fixture{t: t, l: testnet.Listen(t, net.Listen, testnet.TCP4)}
						c := f.attach(dial, ClientConfig{})
						server, err := f.l.Accept()
						if err != nil {
							t.Fatal(err)
						}
						defer server.Close()
						check(t, c, server)
					})
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		c, server := pipeClient(t, ClientConfig{State: func(_ *Conn, s ConnState) {
			if s == Closed {
				close(closed)
			}
		}}, asItIs)
		defer server.Close()
		newServerPeer(t, server).Flush() // and reads no more
		synctest.Wait()
		begin := time.Now()
		c.Close()
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("Close returned after %v, want 0", waited)
		}
		<-closed
		if got := time.Since(begin); got != lingerTime {
			t.Errorf("closed after %v, want %v", got, lingerTime)
		}
	})
}

// TestClientAnswerDeadline: a deadline of the answer that passes after the answer has come means
// nothing, even before Answer was called; one that passes before it is final.
func TestClientAnswerDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := pipeClient(t, ClientConfig{}, asItIs)
		defer server.Close()
		answer := make(chan uint32)
		go func() {
			p := newServerPeer(t, server).Flush()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			for id := range answer {
				p.Headers(id, false, ":status", "200").Flush()
				time.Sleep(2 * time.Second)
				p.Data(id, "body", true).Flush()
			}
		}()
		defer close(answer)
		bare := Message{End: true}
		s, late, none := open(t, c, bare), open(t, c, bare), open(t, c, bare)
		for _, s := range []*Stream{s, late, none} {
			if err := s.SetAnswerDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		_ = none.SetAnswerDeadline(time.Time{})
		answer <- 1
		time.Sleep(time.Second)
		synctest.Wait()
		if a, err := s.Answer(); a.Status != 200 || err != nil {
			t.Errorf("got %+v and %v", a, err)
		}
		if got, err := io.ReadAll(s); string(got) != "body" || err != nil {
			t.Errorf("got %q and %v, want the body, which comes later", got, err)
		}
		answer <- 3
		synctest.Wait()
		if a, err := late.Answer(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %+v and %v for an answer that is late", a, err)
		}
		answer <- 5
		if a, err := none.Answer(); a.Status != 200 || err != nil {
			t.Errorf("got %+v and %v without a deadline", a, err)
		}
		_, _ = io.ReadAll(none)
	})
}

// TestClientAtOnce: a message with AtOnce is sent if the windows let all of its body go, and else none
// of it.
func TestClientAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := pipeClient(t, ClientConfig{}, asItIs)
		p := newServerPeer(t, server, 4, 10) // SETTINGS_INITIAL_WINDOW_SIZE
		read := make(chan bool)
		go func() {
			wantFrame(p, `data 1 "0123456789" end`)
			close(read)
			_, _ = io.Copy(io.Discard, server)
		}()
		p.Flush()
		synctest.Wait()
		s := open(t, c, Message{})
		if err := s.Send(Message{Body: []byte("0123456789a"), AtOnce: true}); err != ErrNotAtOnce {
			t.Errorf("got %v of more than the window, want %v", err, ErrNotAtOnce)
		}
		if err := s.Send(Message{Body: []byte("0123456789"), End: true, AtOnce: true}); err != nil {
			t.Error(err)
		}
		<-read
	})
}

// TestClientAnswerEnds: with AnswerEnds a body that waits for a window ends with the answer.
func TestClientAnswerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := pipeClient(t, ClientConfig{AnswerEnds: true, WriteTimeout: -1}, asItIs)
		p := newServerPeer(t, server, 4, 10) // SETTINGS_INITIAL_WINDOW_SIZE
		go func() {
			wantFrame(p, `data 1 "0123456789"`)
			p.Headers(1, false, ":status", "200").Data(1, "answer", true).Flush()
			_, _ = io.Copy(io.Discard, server)
		}()
		p.Flush()
		synctest.Wait()
		s := open(t, c, Message{})
		for range 2 {
			if err := s.Send(Message{Body: []byte("0123456789a")}); err != ErrEnded {
				t.Errorf("Send returned %v, want %v", err, ErrEnded)
			}
		}
		if got, err := io.ReadAll(s); string(got) != "answer" || err != nil {
			t.Errorf("got %q and %v", got, err)
		}
	})
}

// TestClientOpensWithoutReader: Open doesn't wait until a server reads, if there is no body to send. It
// couldn't heed its context.
func TestClientOpensWithoutReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := pipeClient(t, ClientConfig{WriteTimeout: -1}, asItIs)
		defer server.Close()
		newServerPeer(t, server).Flush()
		synctest.Wait()
		r := &Request{Method: "POST", Scheme: "http", Path: "/", Fields: []Field{MakeField("a", strings.Repeat("a", 40<<10))}}
		opened := make(chan error)
		for range 4 {
			go func() {
				s := new(Stream)
				err := c.Open(t.Context(), s, r, Message{Hold: true})
				s.Close()
				opened <- err
			}()
			select {
			case err := <-opened:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Hour):
				t.Error("Open waits for a server that doesn't read")
				server.Close()
				<-opened
			}
		}
	})
}

// TestClientPingResets: streams that were reset take up room until the server answers a PING, unless it
// has sent something since they were opened, or nothing since its last such answer.
func TestClientPingResets(t *testing.T) {
	for _, counts := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, server := pipeClient(t, ClientConfig{PingResets: counts}, asItIs)
			p := newServerPeer(t, server, 3, 3).Flush() // SETTINGS_MAX_CONCURRENT_STREAMS
			go io.Copy(io.Discard, server)
			synctest.Wait()
			open := func(ctx context.Context) (*Stream, error) {
				s := new(Stream)
				return s, c.Open(ctx, s, post, Message{End: true})
			}
			cancel := func() (id uint32) {
				t.Helper()
				s, err := open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				s.Reset(Cancel)
				return s.ID()
			}
			late := func(id uint32) { p.Headers(id, false, ":status", "200").Flush() }
			pong := func() { p.Frame(frames.Ping, frames.Ack, 0, resetPing[:]).Flush() }
			want := func(room int, when string) {
				t.Helper()
				synctest.Wait()
				if !counts {
					room = 3
				}
				if got := c.Quota(); got != room {
					t.Errorf("%s: room for %d streams, want %d", when, got, room)
				}
			}
			cancel()
			id := cancel()
			want(1, "after two resets")
			cancel()
			want(0, "after three")
			if counts {
				if _, err := open(nil); err != ErrNoQuota {
					t.Errorf("Open: got %v, want %v", err, ErrNoQuota)
				}
			}
			waits := make(chan error)
			go func() {
				s, err := open(t.Context())
				s.Close()
				waits <- err
			}()
			synctest.Wait()
			pong()
			if err := <-waits; err != nil {
				t.Errorf("Open, waiting: got %v", err)
			}
			want(3, "after the answer")
			cancel()
			want(3, "since nothing has come behind the answer")
			late(id)
			synctest.Wait()
			cancel()
			want(2, "since something has")
			pong()
			late(id)
			s, err := open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			late(id)
			synctest.Wait()
			s.Reset(Cancel)
			s.Close()
			want(3, "since something has come behind the request")
		})
	}
}
