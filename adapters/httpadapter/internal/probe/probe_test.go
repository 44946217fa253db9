package httpadapter

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestCanary(t *testing.T) {
	testnet.NoLeaks(t)
	if way, err := playScripts(); err != nil {
		t.Errorf("the calls of net/http (%s) are not those that parking relies on: %v", runtime.Version(), err)
	} else {
		t.Logf("net/http (%s) waits in the way %d", runtime.Version(), way)
	}
}

func TestCanaryOfTLS(t *testing.T) {
	testnet.NoLeaks(t)
	if err := errTLS(); err != nil {
		t.Errorf("crypto/tls (%s) does not read as parking relies on: %v", runtime.Version(), err)
	}
}

// A crypto/tls that ends a connection which is dry is found out.
func TestCanaryOfTLSDiffers(t *testing.T) {
	identity, err := canaryIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		err := playRecords(identity, version, errors.New("for good"))
		if want := "nothing behind a part"; err == nil || !strings.Contains(err.Error(), "for good") {
			t.Errorf("got %v, want a difference at %q", err, want)
		}
	}
}

// In a bubble its goroutines belong to that.
func TestCanaryInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := playScripts(); err != nil {
			t.Error(err)
		}
	})
}

// A net/http that doesn't make a call holds nothing up for good.
func TestCanaryWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCanaryConn(silentScript, silentScript.alternatives(limits{}, nil))
		c.told(http.StateNew)
		c.await()
		c.end()
		if want := `after "new" came "nothing", and not "Read"`; c.err() == nil || c.err().Error() != want {
			t.Errorf("got %v, want %s", c.err(), want)
		}
		if n, err := c.Read(make([]byte, readBytes)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read afterwards: got %d, %v, want net.ErrClosed", n, err)
		}
	})
}

// net/http looks for methods of its connections. The canary has those of a lease, except the ones
// that are percore's own, which no package of the standard library knows.
func TestCanaryHasMethodsOfLeases(t *testing.T) {
	ours := []string{
		"OnReadable", "NotifyReadable", "CancelOnReadable", "AtEnd",
		"AttachTo", "ReadBuffer", "ReadReady", "WriteBuffers", "TryWrite", "TryWriteBuffers", "Watch", "Unwatch", "Loop",
	}
	for _, pair := range []struct{ lease, canary any }{{&conn{}, &canaryTCPConn{}}, {&tlsConn{}, &canaryTLSConn{}}} {
		lease, canary := methods(pair.lease), methods(pair.canary)
		for name, signature := range lease {
			if !slices.Contains(ours, name) && canary[name] != signature {
				t.Errorf("%T: %s%s is missing, which %T has", pair.canary, name, signature, pair.lease)
			}
		}
		for name := range canary {
			if lease[name] == "" {
				t.Errorf("%T has %s, and %T hasn't", pair.canary, name, pair.lease)
			}
		}
	}
}

// methods returns the signatures of the exported methods of v.
func methods(v any) map[string]string {
	all := make(map[string]string)
	for m := range reflect.TypeOf(v).Methods() {
		signature := strings.SplitN(m.Type.String(), ")", 2)
		_, parameters, _ := strings.Cut(signature[0], ",") // without the receiver
		all[m.Name] = "(" + strings.TrimSpace(parameters) + ")" + signature[1]
	}
	return all
}

// If parking is not safe connections are served all the same, and the log and Stats say so.
func TestUnsafe(t *testing.T) {
	needParking(t)
	asked := 0
	f := start(t, echoPath, nil, func(c *config) {
		c.checkNetHTTP = func() (waitWay, error) { asked++; return waitUnknown, errors.New("it sings") }
	})
	c := f.dial()
	for i := range 3 {
		path := fmt.Sprintf("/%d", i)
		if got := c.get(path); got != path {
			t.Errorf("got %q, want %q", got, path)
		}
		time.Sleep(5 * time.Millisecond) // to be parked
	}
	if got := f.server.Stats(); !got.Unsafe || got.Parks > 0 || got.Conns != 1 {
		t.Errorf("got %+v, want Unsafe and a connection that is not parked", got)
	}
	if log := f.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "they can't be parked") || !strings.Contains(log, "it sings") {
		t.Errorf("got the log %q, want one line that says why nothing is parked", log)
	}
	if f.shutdown(); asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
}

// The same over TLS, if it is crypto/tls that differs.
func TestUnsafeTLS(t *testing.T) {
	needParking(t)
	f, config := startTLS(t, echoPath, nil, FastPath(), func(c *config) {
		c.checkTLS = func() error { return errors.New("it sings") }
	})
	c := f.dialTLS(config)
	for i := range 3 {
		path := fmt.Sprintf("/%d", i)
		if got := c.get(path); got != path {
			t.Errorf("got %q, want %q", got, path)
		}
	}
	if got := f.server.Stats(); !got.Unsafe || got.Parks > 0 || got.Conns != 1 || f.server.FastPathStats().Requests > 0 {
		t.Errorf("got %+v, want Unsafe and a connection that is not parked", got)
	}
	if log := f.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "crypto/tls") || !strings.Contains(log, "it sings") {
		t.Errorf("got the log %q, want one line that says why nothing is parked", log)
	}
}

// Nothing is checked where nothing would be parked.
func TestUnsafeUnasked(t *testing.T) {
	f := start(t, echoPath, nil, ParkAfter(-1), func(c *config) {
		c.checkNetHTTP = func() (waitWay, error) { return waitUnknown, errors.New("asked") }
	})
	f.dial().get("/")
	if f.server.Stats().Unsafe {
		t.Error("Stats.Unsafe: got true, want false")
	}
}

// A lease that is used after its Read was told io.EOF is closed and not parked: an answer would
// be the next request's, a deadline would hit that.
func TestLeaseUsedAfterItsEnd(t *testing.T) {
	needParking(t)
	soon := func() time.Time { return time.Now().Add(time.Hour) }
	uses := map[string]func(c *conn){
		"Write":            func(c *conn) { c.Write([]byte("408")) },
		"WriteBuffers":     func(c *conn) { c.WriteBuffers(&net.Buffers{[]byte("408")}) },
		"ReadFrom":         func(c *conn) { c.ReadFrom(strings.NewReader("408")) },
		"ReadBuffer":       func(c *conn) { c.ReadBuffer(1) },
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
	// These are the calls that net/http makes, and harmless ones.
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

// borrowed is a lease that the test has instead of net/http.
type borrowed struct {
	*conn
	server *Server
	client *client
}

func newBorrowed(t *testing.T) *borrowed {
	t.Helper()
	testnet.NoLeaks(t)
	s := Wrap(&http.Server{}, ParkAfter(0))
	s.installed.Do(s.install)
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := s.newServeCall(ln, nil).queues[0]
	f.mu.ready = nil // no net/http takes the bellwether
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

// awaitEnd serves a request as net/http does, until it is told the end.
func (b *borrowed) awaitEnd() {
	p := make([]byte, readBytes)
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

func BenchmarkCanary(b *testing.B) {
	for b.Loop() {
		if _, err := playScripts(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanaryOfTLS(b *testing.B) {
	identity, err := canaryIdentity()
	for b.Loop() {
		err = errors.Join(err, playRecords(identity, tls.VersionTLS13, percore.ErrWouldWait))
	}
	if err != nil {
		b.Fatal(err)
	}
}
