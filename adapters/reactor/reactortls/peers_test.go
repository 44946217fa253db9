package reactortls

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// Clients that leave at any point of a handshake, of a record, or of an echo that they may not read, end
// no other connection, and nothing is left of them. It is so of blocking code on package net, too.
func TestPeersLeave(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		for name, start := range map[string]func(t *testing.T, config *tls.Config) (ln net.Listener, conns func() int){
			"reactor": func(t *testing.T, config *tls.Config) (net.Listener, func() int) {
				s, ln := serve(t, config, Limits{}, &handler{data: echo}, quiet)
				return ln, func() int { return s.Stats().Conns }
			},
			"net": serveNet,
		} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, overTLS), func(t *testing.T) {
				testnet.NoLeaks(t)
				server, client := testnet.TLS(t)
				if !overTLS {
					server = nil
				}
				ln, conns := start(t, server)
				testPeersLeave(t, ln, conns, client, overTLS)
			})
		}
	}
}

func testPeersLeave(t *testing.T, ln net.Listener, conns func() int, config *tls.Config, overTLS bool) {
	connect := func() (raw *net.TCPConn, c net.Conn) {
		raw = testnet.Dial(t, ln).(*net.TCPConn)
		if overTLS {
			return raw, tls.Client(raw, config)
		}
		return raw, raw
	}
	_, stays := connect()
	goesOn := func() {
		t.Helper()
		io.WriteString(stays, "hello")
		if _, err := io.ReadFull(stays, make([]byte, 5)); err != nil {
			t.Fatalf("the client that stays: %v", err)
		}
	}
	goesOn()
	long := make([]byte, 16<<20) // for the buffers of sockets
	peers := map[string]func(raw *net.TCPConn, c net.Conn){
		"at once":        func(*net.TCPConn, net.Conn) {},
		"behind an echo": func(_ *net.TCPConn, c net.Conn) { io.WriteString(c, "x"); io.ReadFull(c, make([]byte, 1)) },
		"before an echo": func(_ *net.TCPConn, c net.Conn) { io.WriteString(c, "x") },
		"behind the end": func(_ *net.TCPConn, c net.Conn) {
			io.WriteString(c, "x")
			c.(interface{ CloseWrite() error }).CloseWrite()
		},
		"reading no echo": func(_ *net.TCPConn, c net.Conn) { go c.Write(long) },
	}
	if overTLS {
		hello := clientHello(t, config)
		for _, n := range []int{1, 5, 100, len(hello) - 1, len(hello)} {
			peers[fmt.Sprintf("behind %d bytes of a handshake", n)] = func(raw *net.TCPConn, _ net.Conn) { raw.Write(hello[:n]) }
		}
		peers["behind the handshake"] = func(_ *net.TCPConn, c net.Conn) { c.(*tls.Conn).Handshake() }
		peers["in a record"] = func(raw *net.TCPConn, c net.Conn) {
			io.WriteString(c, "x")
			raw.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
		}
	}
	for _, play := range peers {
		for _, resets := range []bool{false, true} {
			raw, c := connect()
			play(raw, c)
			goesOn()
			if resets {
				_ = raw.SetLinger(0)
			}
			raw.Close()
			goesOn()
			testnet.Eventually(t, "the end of the connection", func() bool { return conns() == 1 })
		}
	}
}

// serveNet serves echoes with blocking code, until the test ends.
func serveNet(t *testing.T, config *tls.Config) (ln net.Listener, conns func() int) {
	ln = testnet.Listen(t, net.Listen, testnet.TCP4)
	var mu sync.Mutex
	var open []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if config != nil {
				c = tls.Server(c, config)
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			serving.Go(func() {
				_, _ = io.Copy(c, c)
				c.Close()
				mu.Lock()
				defer mu.Unlock()
				open = slices.DeleteFunc(open, func(o net.Conn) bool { return o == c })
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return ln, func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(open)
	}
}
