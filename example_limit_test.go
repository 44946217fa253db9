package percore_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"sync"

	"github.com/percore/percore"
)

// perAddress counts the open connections of each client address. An IPv6 client usually has a
// 64-bit network to itself, which counts as one address.
type perAddress struct {
	max int

	mu   sync.Mutex
	open map[netip.Prefix]int // guarded by mu; no entries of 0
}

func (l *perAddress) accept(_, remote netip.AddrPort) bool {
	client := network(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client] == l.max {
		return false
	}
	l.open[client]++
	return true
}

func (l *perAddress) closed(_, remote netip.AddrPort) {
	client := network(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

func network(remote netip.AddrPort) netip.Prefix {
	bits := 32
	if remote.Addr().Is6() {
		bits = 64
	}
	p, _ := remote.Addr().Prefix(bits) // without the zone
	return p
}

// At most two connections of each client are open at a time. More are closed at once.
func ExampleListenConfig_limitPerAddress() {
	limit := &perAddress{max: 2, open: make(map[netip.Prefix]int)}
	lc := percore.ListenConfig{OnAccept: limit.accept, OnClose: limit.closed}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	closed := make(chan struct{})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
				closed <- struct{}{}
			}()
		}
	}()

	echo := func(name string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		io.WriteString(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			fmt.Println(name, "was refused")
		} else {
			fmt.Println(name, "was served")
		}
		return c
	}
	first, second := echo("the first"), echo("the second")
	echo("the third").Close()
	first.Close()
	<-closed
	fourth := echo("the fourth")
	second.Close()
	fourth.Close()
	<-closed
	<-closed
	// Output:
	// the first was served
	// the second was served
	// the third was refused
	// the fourth was served
}
