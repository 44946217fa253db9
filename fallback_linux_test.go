//go:build !percore_net

package percore

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestEngineNet disables the engine through the environment.
func TestEngineNet(t *testing.T) {
	testnet.NoLeaks(t)
	captureLog(t)
	t.Setenv("PERCOREDEBUG", "engine=net")
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		ln := testnet.Listen(t, Listen, kind)
		switch ln.(type) {
		case *net.TCPListener, *net.UnixListener:
		default:
			t.Errorf("Listen: got a %T, want package net's", ln)
		}
		c, err := Dial(ln.Addr().Network(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch c.(type) {
		case *net.TCPConn, *net.UnixConn:
		default:
			t.Errorf("Dial: got a %T, want package net's", c)
		}
	}
	t.Setenv("PERCOREDEBUG", "engine=percore")
	if ln := testnet.Listen(t, Listen, testnet.TCP4); !isListener(ln) {
		t.Errorf("with engine=percore: got a %T", ln)
	}
}

func isListener(ln net.Listener) bool {
	_, ok := ln.(*Listener)
	return ok
}

// TestEngineNetLimits: limits and PROXY rules hold without the engine.
func TestEngineNetLimits(t *testing.T) {
	testnet.NoLeaks(t)
	captureLog(t)
	closed := make(chan netip.AddrPort, 10)
	lc := ListenConfig{
		MaxConns:      1,
		ReusePort:     true,
		ProxyProtocol: loopback(),
		OnAccept:      func(_, remote netip.AddrPort) bool { return remote.String() == clientV1 },
		OnClose:       func(_, remote netip.AddrPort) { closed <- remote },
	}
	inherited := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
	files, err := inherited.Files()
	if err != nil {
		t.Fatal(err)
	}
	inherited.Close()
	t.Setenv("PERCOREDEBUG", "engine=net")
	one, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	several, err := lc.FileListeners(files...)
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range []net.Listener{one, several} {
		refused := testnet.Dial(t, ln)
		next := goAccept(t, ln)
		send(t, refused, headerV2)
		if err := awaitEnd(refused); err != nil {
			t.Errorf("a refused client: got %v, want the end of the stream", err)
		}
		first, second := testnet.Dial(t, ln), testnet.Dial(t, ln)
		send(t, first, headerV1[:20])
		send(t, first, headerV1[20:]+"x")
		a := testnet.Receive(t, "Accept", next)
		if a.err != nil {
			t.Fatal(a.err)
		}
		if isConn(a.c) || a.c.RemoteAddr().String() != clientV1 || a.c.LocalAddr().String() != serverV1 {
			t.Errorf("got a %T from %v to %v", a.c, a.c.RemoteAddr(), a.c.LocalAddr())
		}
		if b := make([]byte, 1); true {
			if _, err := io.ReadFull(a.c, b); string(b) != "x" || err != nil {
				t.Errorf("got %q, %v", b, err)
			}
		}
		send(t, second, headerV1)
		next = goAccept(t, ln)
		a.c.Close()
		if got := testnet.Receive(t, "OnClose", closed).String(); got != clientV1 {
			t.Errorf("OnClose: got %s, want %s", got, clientV1)
		}
		if a = testnet.Receive(t, "Accept", next); a.err != nil {
			t.Fatal(a.err)
		}
		next = goAccept(t, ln)
		ln.Close()
		wantErr(t, "Accept", testnet.Receive(t, "Accept", next).err, "accept", net.ErrClosed)
		a.c.Close()
		<-closed
	}
}

func isConn(c net.Conn) bool {
	_, ok := c.(*Conn)
	return ok
}
