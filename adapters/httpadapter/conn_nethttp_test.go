package httpadapter

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/testnet"
)

// A lease that is used after its Read has returned io.EOF is closed and not parked. An answer would
// be taken for the next request's, and a deadline would apply to it.
func TestLeaseUsedAfterItsEnd(t *testing.T) {
	needParking(t)
	soon := func() time.Time { return time.Now().Add(time.Hour) }
	uses := map[string]func(c *conn){
		"Write":            func(c *conn) { c.Write([]byte("408")) },
		"WriteBuffers":     func(c *conn) { c.WriteBuffers(&net.Buffers{[]byte("408")}) },
		"ReadFrom":         func(c *conn) { c.ReadFrom(strings.NewReader("408")) },
		"ReadReady":        func(c *conn) { c.ReadReady(func() []byte { return make([]byte, 1) }, func() {}) },
		"WriteTo":          func(c *conn) { c.WriteTo(io.Discard) },
		"CloseRead":        func(c *conn) { c.CloseRead() },
		"CloseWrite":       func(c *conn) { c.CloseWrite() },
		"SetDeadline":      func(c *conn) { c.SetDeadline(soon()) },
		"SetReadDeadline":  func(c *conn) { c.SetReadDeadline(soon()) },
		"SetWriteDeadline": func(c *conn) { c.SetWriteDeadline(soon()) },
		"SetLinger":        func(c *conn) { c.SetLinger(0) },
		"SyscallConn":      func(c *conn) { c.SyscallConn() },
		"File": func(c *conn) {
			if f, err := c.File(); err == nil {
				f.Close()
			}
		},
	}
	for name, use := range uses {
		for _, after := range []string{"io.EOF", "Close"} {
			t.Run(name+" after "+after, func(t *testing.T) {
				l := newBorrowed(t)
				l.awaitEnd()
				if after == "Close" {
					l.Close()
				}
				use(l.conn)
				l.Close()
				l.server.connState(l.conn, http.StateClosed)
				l.client.awaitEOF()
				if stats := l.server.Stats(); stats.Conns != 0 || stats.Parks != 0 {
					t.Errorf("got %+v, want a connection that is closed and was not parked", stats)
				}
			})
		}
	}
	// The calls that net/http makes, and some harmless ones.
	for name, use := range map[string]func(c *conn){
		"nothing": func(c *conn) {},
		"Read":    func(c *conn) { c.Read(make([]byte, 1)) },
		"looks":   func(c *conn) { c.LocalAddr(); c.RemoteAddr(); c.NetConn() },
	} {
		t.Run(name, func(t *testing.T) {
			l := newBorrowed(t)
			l.awaitEnd()
			use(l.conn)
			l.Close()
			use(l.conn)
			l.server.connState(l.conn, http.StateClosed)
			if got := l.server.Stats().Parked; got != 1 {
				t.Errorf("got %d parked connections, want 1", got)
			}
		})
	}
}

// borrowed is a lease that the test holds in place of net/http.
type borrowed struct {
	*conn
	server *Server
	client *client
}

func newBorrowed(t *testing.T) *borrowed {
	t.Helper()
	testnet.NoLeaks(t)
	s := wrap(&http.Server{}, ParkAfter(0))
	s.installed.Do(s.install)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	f := s.newServeCall(ln, nil).queues[0]
	f.mu.ready = nil // no net/http takes the idleGuard
	nc := testnet.Dial(t, ln)
	pc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	f.accepted(pc)
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	c := &client{nc, t, bufio.NewReader(nc)}
	c.send("a request")
	lease, err := f.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.call.close()
		lease.Close()
		ln.Close()
	})
	return &borrowed{lease.(*conn), s, c}
}

// awaitEnd serves a request as net/http does, until Read returns the end.
func (b *borrowed) awaitEnd() {
	p := make([]byte, probe.ReadBytes)
	if _, err := b.Read(p); err != nil {
		b.client.t.Fatal(err)
	}
	_ = b.SetReadDeadline(time.Time{})
	b.server.connState(b.conn, http.StateActive)
	_ = b.SetWriteDeadline(time.Time{})
	b.server.connState(b.conn, http.StateIdle)
	_ = b.SetReadDeadline(time.Time{})
	if n, err := b.Read(p); n != 0 || err != io.EOF {
		b.client.t.Fatalf("Read: got %d, %v, want io.EOF", n, err)
	}
}
