package reactor

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A peer that has not got all that was written sees an error, whatever the reason is: it would take the
// end of the stream for the end of the message.
func TestDroppedBytesReset(t *testing.T) {
	testnet.NoLeaks(t)
	for name, tt := range map[string]struct {
		config Config
		drop   func(s *Server, c *Conn)
	}{
		"Abort":              {Config{}, func(_ *Server, c *Conn) { c.Abort() }},
		"Abort of Close":     {Config{}, func(_ *Server, c *Conn) { c.Close(); c.Abort() }},
		"Server.Close":       {Config{}, func(s *Server, _ *Conn) { s.Close() }},
		"WriteTimeout":       {Config{WriteTimeout: 20 * time.Millisecond}, func(*Server, *Conn) {}},
		"WriteIdleTimeout":   {Config{WriteIdleTimeout: 20 * time.Millisecond}, func(*Server, *Conn) {}},
		"a refused write":    {Config{}, func(_ *Server, c *Conn) { c.Write(make([]byte, 16<<20)) }},
		"a missed broadcast": {Config{}, func(s *Server, _ *Conn) { s.Broadcast(make([]byte, 16<<20), nil) }},
		"a panic":            {Config{Log: slog.New(slog.DiscardHandler)}, func(*Server, *Conn) { panic("a handler's") }},
	} {
		for _, layered := range []bool{false, true} {
			end, ended := closes()
			var s *Server
			s, _ = serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
				smallBuffer(c)
				c.Write(make([]byte, 8<<20))
				tt.drop(s, c)
				return len(p)
			}}, tt.config)
			var peer net.Conn
			if layered {
				_, client := attachTLS(t, s)
				peer = client.NetConn()
				client.Write([]byte("x"))
			} else {
				_, peer = attach(t, s)
				peer.Write([]byte("x"))
			}
			peer.(*net.TCPConn).SetReadBuffer(socketBytes)
			testnet.Receive(t, "Close", ended)
			peer.SetDeadline(time.Now().Add(testnet.HangTimeout))
			if n, err := io.Copy(io.Discard, peer); !errors.Is(err, syscall.ECONNRESET) || n >= 8<<20 {
				t.Errorf("%s (layered %t): the peer got %d bytes, %v, want fewer than %d, and a reset", name, layered, n, err, 8<<20)
			}
		}
	}
}

// Bytes that a callback has written before a panic, or before it ends its goroutine, are sent.
func TestWriteBeforePanic(t *testing.T) {
	testnet.NoLeaks(t)
	for name, end := range map[string]func(){"panic": func() { panic("a handler's") }, "Goexit": runtime.Goexit} {
		for _, place := range []string{"Open", "Data", "End", "AfterFunc", "Go"} {
			h := &counted{t: t, at: place, ends: make(chan error, 1)}
			h.do = func(c *Conn) {
				c.Write([]byte("last"))
				end()
			}
			_, dial := serve(t, h, silent)
			peer := dial().(*net.TCPConn)
			peer.Write([]byte("x"))
			if place == "End" {
				peer.CloseWrite()
			}
			if got, err := io.ReadAll(peer); err == nil && !strings.Contains(string(got), "last") {
				t.Errorf("%s in %s: the peer got %q and the end of the stream", name, place, got)
			}
		}
	}
}

// A hijacked connection is reset if it is closed before the rest is sent, whether a goroutine sends it
// at the moment or its deadline has passed, and no buffer is lost.
func TestDroppedRestResets(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	for _, late := range []bool{false, true} {
		c, peer := hijackFull(t, s, numbers(12<<20))
		if late {
			c.SetWriteDeadline(time.Unix(1, 0)) // ends the goroutine, with bytes left
			c.Write([]byte("x"))
		}
		c.Close()
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("late %t: got %v, want %v", late, err, net.ErrClosed)
		}
		if n, err := io.Copy(io.Discard, peer); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("late %t: the peer got %d bytes, %v, want a reset", late, n, err)
		}
		testnet.Eventually(t, "the buffers' release", func() bool { return percore.ReadStats().Pool.BuffersInUse == 0 })
	}
}

// Abort of a connection that has sent everything ends the stream; with SetLinger(0) it is reset.
func TestAbortOfNothing(t *testing.T) {
	testnet.NoLeaks(t)
	for _, reset := range []bool{false, true} {
		_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
			if reset {
				c.SetLinger(0)
			}
			if c.SetLinger(1) == nil {
				t.Error("SetLinger(1): got no error")
			}
			c.Abort()
			return len(p)
		}})
		c := dial()
		c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); reset != errors.Is(err, syscall.ECONNRESET) || !reset && err != io.EOF {
			t.Errorf("SetLinger(0) %t: got %v", reset, err)
		}
	}
}
