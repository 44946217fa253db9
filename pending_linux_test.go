//go:build !percore_net

package percore

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/testnet"
)

// TestSilentConnsMakeRoom: connections whose header is awaited don't hold the places of MaxConns: those
// that have sent nothing, or a part of a header, are closed for a client that comes.
func TestSilentConnsMakeRoom(t *testing.T) {
	const places = 4
	proxy := loopback()
	proxy.HeaderTimeout = time.Hour
	ln := listen(t, ListenConfig{MaxConns: places, ProxyProtocol: proxy}, "tcp", "127.0.0.1:0")
	ln.listener.limits.AddAwaiting(awaitedConns{ln.listener}, time.Millisecond)
	next := goAccept(t, ln)
	var silent []net.Conn
	for i := range places {
		c := testnet.Dial(t, ln)
		send(t, c, headerV1[:i*5])
		silent = append(silent, c)
	}
	testnet.Eventually(t, "all places taken", func() bool { return ln.Stats().AwaitingHeader == places })
	for range places {
		client := testnet.Dial(t, ln)
		send(t, client, headerV1+"hello")
		a := awaitConn(t, next)
		defer a.Close()
		wantClient(t, a, clientV1, serverV1, "hello")
		next = goAccept(t, ln)
	}
	for _, c := range silent {
		if err := awaitEnd(c); err != nil {
			t.Errorf("a silent connection: got %v, want its end", err)
		}
	}
	if s := ln.Stats(); s.Conns != places || s.MadeRoom != places || s.BadHeaders != 0 {
		t.Errorf("got %d open, %d closed to make room and %d bad headers, want %d, %[4]d and 0", s.Conns, s.MadeRoom, s.BadHeaders, places)
	}
	ln.Close()
	testnet.Receive(t, "Accept's end", next)
}

// TestHeaderBehindLoopStays: a connection whose header has come, and whose loop has not read it yet, is
// not closed to make room.
func TestHeaderBehindLoopStays(t *testing.T) {
	ln := listen(t, ListenConfig{MaxConns: 1, ProxyProtocol: loopback()}, "tcp", "127.0.0.1:0")
	next := goAccept(t, ln)
	client := testnet.Dial(t, ln)
	testnet.Eventually(t, "awaited", func() bool { return ln.Stats().AwaitingHeader == 1 })
	var p *pendingConn
	ln.listener.all.pending.eachAwaited(func(one *pendingConn) { p = one })

	held, release := make(chan struct{}), make(chan struct{})
	p.c.sock.Loop().Submit(func() { close(held); <-release })
	<-held
	send(t, client, headerV1+"hello")
	testnet.Eventually(t, "the header", func() bool { return p.unread() > 0 })
	if p.CloseIdle(p.since) {
		t.Error("a connection with a header was closed")
	}
	close(release)
	a := awaitConn(t, next)
	defer a.Close()
	wantClient(t, a, clientV1, serverV1, "hello")
}

// TestLongHeadersLeave: the memory of long headers is counted while they are awaited, and no longer,
// however they leave.
func TestLongHeadersLeave(t *testing.T) {
	ln := listen(t, ListenConfig{MaxConns: 10, ProxyProtocol: loopback()}, "tcp", "127.0.0.1:0")
	long := &ln.listener.proxy.Long
	header := longHeader()
	begin := func(rest string) net.Conn {
		c := testnet.Dial(t, ln)
		send(t, c, header[:len(header)-1]+rest)
		return c
	}
	left := func(step string) {
		t.Helper()
		testnet.Eventually(t, step, func() bool { return long.Bytes() == 0 })
	}
	held := func() {
		t.Helper()
		testnet.Eventually(t, "a long header", func() bool { return long.Bytes() >= len(header)-4<<10-1 })
	}
	next := goAccept(t, ln)

	c := begin("")
	held()
	send(t, c, header[len(header)-1:]+"hello")
	a := awaitConn(t, next)
	defer a.Close()
	wantClient(t, a, clientV2, serverV2, "hello")
	left("after the header is whole")
	next = goAccept(t, ln)

	c = begin("")
	held()
	c.Close()
	left("after the client's end")

	begin("")
	held()
	ln.listener.all.pending.eachAwaited(func(p *pendingConn) {
		go p.CloseIdle(p.since)
	})
	left("after it has made room")

	for range 2 {
		begin("")
	}
	held()
	ln.Close()
	testnet.Receive(t, "Accept's end", next)
	left("after Close")
}

// TestLongHeadersShare: a proxy whose awaited headers take too much memory loses the connection.
func TestLongHeadersShare(t *testing.T) {
	log := captureLog(t)
	ln := listen(t, ListenConfig{ProxyProtocol: loopback()}, "tcp", "127.0.0.1:0")
	c := testnet.Dial(t, ln)
	peer := accepting.Peer(c.LocalAddr().(*net.TCPAddr).AddrPort().Addr())
	if _, err := ln.listener.proxy.Long.Hold(peer, 0, 16<<20); err != nil { // as hundreds of others would
		t.Fatal(err)
	}
	next := goAccept(t, ln)
	_, _ = io.WriteString(c, longHeader()[:60<<10]) // it may be reset
	testnet.Eventually(t, "its end", func() bool { return ln.Stats().BadHeaders == 1 })
	wantProxyLog(t, log, accepting.ErrLongHeaders.Error())
	ln.Close()
	testnet.Receive(t, "Accept's end", next)
}
