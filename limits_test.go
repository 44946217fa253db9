package percore

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/sockaddr"
	"github.com/percore/percore/internal/testnet"
)

// onLimitedListeners runs test with listeners on TCP and unix sockets.
func onLimitedListeners(t *testing.T, lc ListenConfig, test func(t *testing.T, ln *Listener)) {
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		t.Run(string(kind), func(t *testing.T) {
			testnet.NoLeaks(t)
			network, address := testnet.Address(t, kind)
			test(t, listen(t, lc, network, address))
		})
	}
}

// takenConn is a result of Accept.
type takenConn struct {
	c   net.Conn
	err error
}

// goAccept calls Accept on a goroutine and returns once Accept waits.
func goAccept(t testing.TB, ln net.Listener) <-chan takenConn {
	t.Helper()
	ch := make(chan takenConn, 1)
	testnet.GoBlocked(t, "Accept", func() {
		c, err := ln.Accept()
		ch <- takenConn{c, err}
	})
	return ch
}

// mustAccept accepts a connection, which is closed when the test ends.
func mustAccept(t testing.TB, ln net.Listener) net.Conn {
	t.Helper()
	ch := make(chan takenConn, 1)
	go func() {
		c, err := ln.Accept()
		ch <- takenConn{c, err}
	}()
	return awaitConn(t, ch)
}

// awaitConn waits until an Accept under way returns a connection, which is closed when the test ends.
func awaitConn(t testing.TB, next <-chan takenConn) net.Conn {
	t.Helper()
	c := takeConn(t, next)
	t.Cleanup(func() { c.Close() })
	return c
}

// takeConn is awaitConn for a caller that closes the connection, or forgets it.
func takeConn(t testing.TB, next <-chan takenConn) net.Conn {
	t.Helper()
	taken := testnet.Receive(t, "Accept", next)
	if taken.err != nil {
		t.Fatalf("Accept: %v", taken.err)
	}
	return taken.c
}

// TestMaxConns fills a listener. Accept waits until a connection is closed, and a second Close does
// not count. The deadline and Close of the listener also end Accept. Connections with NetBuffers count
// like all others.
func TestMaxConns(t *testing.T) {
	test := func(t *testing.T, ln *Listener) {
		for range 4 {
			testnet.Dial(t, ln)
		}
		first, second := mustAccept(t, ln), mustAccept(t, ln)
		if s := ln.Stats(); s.Conns != 2 || s.LimitWaits != 0 {
			t.Errorf("got %d open and %d waits, want 2 and 0", s.Conns, s.LimitWaits)
		}
		third := goAccept(t, ln)
		testnet.Eventually(t, "a wait", func() bool { return ln.Stats().LimitWaits == 1 })
		select {
		case a := <-third:
			t.Fatalf("a third connection: got %v, %v", a.c, a.err)
		default:
		}
		first.Close()
		a := testnet.Receive(t, "the third connection", third)
		if a.err != nil {
			t.Fatalf("the third connection: %v", a.err)
		}
		defer a.c.Close()
		if first.Close() == nil {
			t.Error("a second Close: got nil")
		}
		ln.SetDeadline(time.Now().Add(20 * time.Millisecond)) // the second Close must not count
		_, err := ln.Accept()
		wantErr(t, "Accept of a fourth", err, "accept", os.ErrDeadlineExceeded)
		ln.SetDeadline(time.Time{})
		fourth := goAccept(t, ln)
		ln.SetDeadline(time.Unix(1, 0))
		wantErr(t, "Accept past its deadline", testnet.Receive(t, "Accept", fourth).err, "accept", os.ErrDeadlineExceeded)
		ln.SetDeadline(time.Time{})
		fourth = goAccept(t, ln)
		ln.Close()
		wantErr(t, "Accept after Close", testnet.Receive(t, "Accept", fourth).err, "accept", net.ErrClosed)
		second.Close()
		if s := ln.Stats(); s.Conns != 1 {
			t.Errorf("got %d open, want 1", s.Conns)
		}
	}
	for _, netBuffers := range []bool{false, true} {
		onLimitedListeners(t, ListenConfig{MaxConns: 2, NetBuffers: netBuffers}, test)
	}
}

// TestMaxConnsOfAllSockets accepts from each socket and from all together at the same time. More
// clients come and go than may be connected at once, and no client may be forgotten.
func TestMaxConnsOfAllSockets(t *testing.T) {
	const maxConns = 3
	onLimitedListeners(t, ListenConfig{MaxConns: maxConns, LeastLoaded: true}, func(t *testing.T, ln *Listener) {
		if most := echoToMany(t, ln, 12, 25, ""); most > maxConns {
			t.Errorf("got %d connections at a time, want at most %d", most, maxConns)
		}
	})
}

// echoToMany accepts from each of ln's sockets and from all together, and echoes to clients that come
// and go, each of which begins with a header, in two parts. It returns the most connections that there
// were at a time.
func echoToMany(t *testing.T, ln *Listener, clients, rounds int, header string) (most int64) {
	t.Helper()
	var open, peak atomic.Int64
	var served, dialed sync.WaitGroup
	for _, from := range append(perLoop(t, ln), ln) {
		served.Go(func() {
			for {
				c, err := from.Accept()
				if err != nil {
					wantErr(t, "Accept", err, "accept", net.ErrClosed)
					return
				}
				n := open.Add(1)
				for m := peak.Load(); n > m && !peak.CompareAndSwap(m, n); m = peak.Load() {
				}
				if got := c.RemoteAddr().String(); header != "" && got != clientV1 {
					t.Errorf("got %s, want %s", got, clientV1)
				}
				served.Go(func() {
					io.Copy(c, c)
					open.Add(-1)
					c.Close()
				})
			}
		})
	}
	for i := range clients {
		dialed.Go(func() {
			for round := range rounds {
				c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
				if err != nil {
					t.Errorf("dialing: %v", err)
					return
				}
				at := (7*i + round) % (len(header) + 1)
				io.WriteString(c, header[:at])
				io.WriteString(c, header[at:])
				if got, err := roundTrip(c, "x"); got != "x" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
				c.Close()
			}
		})
	}
	testnet.Within(t, "all clients", dialed.Wait)
	ln.Close()
	testnet.Within(t, "the server", served.Wait)
	if s := ln.Stats(); s.Conns != 0 || s.BadHeaders != 0 {
		t.Errorf("got %+v, want none open or bad", s)
	}
	return peak.Load()
}

// A connection that the program forgets frees its slot.
func TestMaxConnsForgotten(t *testing.T) {
	onLimitedListeners(t, ListenConfig{MaxConns: 1}, func(t *testing.T, ln *Listener) {
		testnet.Dial(t, ln)
		testnet.Dial(t, ln)
		if _, err := ln.Accept(); err != nil {
			t.Fatal(err)
		}
		next := goAccept(t, ln)
		testnet.Eventually(t, "the next connection", func() bool {
			runtime.GC()
			return len(next) == 1
		})
		(<-next).c.Close()
	})
}

// TestListenMistakes passes invalid options, to Listen and, for TCP, to FileListener.
func TestListenMistakes(t *testing.T) {
	testnet.NoLeaks(t)
	all := []netip.Prefix{netip.MustParsePrefix("::/0")}
	file := fileOf(t, testnet.Listen(t, net.Listen, testnet.TCP4))
	for _, c := range []struct {
		lc            ListenConfig
		network, want string
	}{
		{ListenConfig{MaxConns: -1}, "tcp", "MaxConns is -1"},
		{ListenConfig{MaxConns: -1}, "unixpacket", "MaxConns is -1"},
		{ListenConfig{MaxConns: 1}, "unixpacket", "networks tcp and unix"},
		{ListenConfig{OnAccept: func(netip.AddrPort, netip.AddrPort) bool { return true }}, "unixpacket", "networks tcp and unix"},
		{ListenConfig{ProxyProtocol: &ProxyProtocol{}}, "tcp", "trusts no peers"},
		{ListenConfig{ProxyProtocol: &ProxyProtocol{Trusted: append(all, netip.Prefix{})}}, "tcp", "Trusted[1]"},
		{ListenConfig{ProxyProtocol: &ProxyProtocol{Trusted: all, HeaderTimeout: -1}}, "tcp", "HeaderTimeout is"},
	} {
		ln, err := c.lc.Listen(t.Context(), c.network, "127.0.0.1:0")
		if err == nil {
			ln.Close()
		}
		var operr *net.OpError
		if !errors.As(err, &operr) || operr.Op != "listen" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error about %q", c.network, err, c.want)
		}
		if c.network != "tcp" {
			continue
		}
		if ln, err = c.lc.FileListener(file); err == nil {
			ln.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("FileListener: got %v, want an error about %q", err, c.want)
		}
	}
}

// TestOnAccept refuses every second connection. For each of the others OnClose is called once, with
// the addresses that OnAccept got.
func TestOnAccept(t *testing.T) {
	type pair struct{ local, remote netip.AddrPort }
	var mu sync.Mutex
	open, asked, closed := map[pair]int{}, 0, 0
	lc := ListenConfig{
		OnAccept: func(local, remote netip.AddrPort) bool {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked%2 == 0 {
				return false
			}
			open[pair{local, remote}]++
			return true
		},
		OnClose: func(local, remote netip.AddrPort) {
			mu.Lock()
			defer mu.Unlock()
			open[pair{local, remote}]--
			closed++
		},
	}
	onLimitedListeners(t, lc, func(t *testing.T, ln *Listener) {
		asked, closed = 0, 0
		for range 5 {
			client := testnet.Dial(t, ln)
			c := mustAccept(t, ln)
			mu.Lock()
			local, remote := sockaddr.AddrPort(client.RemoteAddr()), sockaddr.AddrPort(client.LocalAddr())
			if n := open[pair{local, remote}]; n != 1 {
				t.Errorf("%v to %v: got %d, want 1, in %v", remote, local, n, open)
			}
			mu.Unlock()
			refused := testnet.Dial(t, ln)
			last := goAccept(t, ln)
			if err := awaitEnd(refused); err != nil {
				t.Errorf("a refused client: got %v, want the end of the stream", err)
			}
			ln.SetDeadline(time.Unix(1, 0))
			testnet.Receive(t, "Accept", last)
			ln.SetDeadline(time.Time{})
			c.Close()
			c.Close()
		}
		for k, n := range open {
			if n != 0 {
				t.Errorf("%v: got %d open, want 0", k, n)
			}
		}
		if s := ln.Stats(); s.Refused != 5 || s.Conns != 0 || closed != 5 {
			t.Errorf("got %d refused, %d open, %d closed, want 5, 0, 5", s.Refused, s.Conns, closed)
		}
	})
}

// TestOnAcceptPanics: if OnAccept panics or closes the listener, the connection is closed, its slot
// is free, and all calls end.
func TestOnAcceptPanics(t *testing.T) {
	var ln *Listener
	closes := false
	lc := ListenConfig{MaxConns: 1, OnAccept: func(netip.AddrPort, netip.AddrPort) bool {
		if closes {
			ln.Close()
			return false
		}
		panic("no")
	}}
	onLimitedListeners(t, lc, func(t *testing.T, l *Listener) {
		ln, closes = l, false
		accept := func() (panicked any, err error) {
			defer func() { panicked = recover() }()
			_, err = ln.Accept()
			return
		}
		client := testnet.Dial(t, ln)
		if panicked, _ := accept(); panicked != "no" {
			t.Errorf("got %v, want OnAccept's panic", panicked)
		}
		if err := awaitEnd(client); err != nil {
			t.Errorf("the client: got %v, want the end of the stream", err)
		}
		if s := ln.Stats(); s.Conns != 0 || s.Refused != 0 {
			t.Errorf("got %+v, want none open", s)
		}
		closes = true
		testnet.Dial(t, ln)
		_, err := accept()
		wantErr(t, "Accept after Close", err, "accept", net.ErrClosed)
	})
}
