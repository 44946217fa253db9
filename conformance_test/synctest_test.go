package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// A bubble of testing/synctest owns the channels and timers that are made in it. If an engine uses
// one from outside, the process ends. So a failure of these tests may look like that.

// bubbled makes listeners and connections for a bubble, on one engine and network.
type bubbled struct {
	listen           testnet.ListenFunc
	dial             func(network, address string) (net.Conn, error)
	network, address string
}

// inBubbles runs test on package net, which shows what works in a bubble, and on percore, on several
// networks. It starts the loops once in the test, and once before it, outside of any bubble.
func inBubbles(t *testing.T, test func(t *testing.T, b *bubbled)) {
	for _, engine := range []struct {
		name   string
		listen testnet.ListenFunc
		dial   func(network, address string) (net.Conn, error)
	}{
		{"net", net.Listen, net.Dial},
		{"percore", percore.Listen, percore.Dial},
		{"percore, dialed by net", percore.Listen, net.Dial},
	} {
		for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Abstract} {
			for _, begun := range []string{"begun by the test", "begun before"} {
				t.Run(engine.name+"/"+string(kind)+"/"+begun, func(t *testing.T) {
					testnet.NoLeaks(t)
					if begun == "begun before" {
						server, client := testnet.Pair(t, engine.listen, kind)
						wantPingPong(t, server, client)
					}
					b := &bubbled{listen: engine.listen, dial: engine.dial}
					b.network, b.address = testnet.Address(t, kind)
					test(t, b)
				})
			}
		}
	}
}

// pair returns both ends of a connection. Both belong to the engine.
func (b *bubbled) pair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	ln, err := b.listen(b.network, b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = b.dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

// wantPingPong makes the ends answer each other, each waiting in Read.
func wantPingPong(t *testing.T, server, client net.Conn) {
	t.Helper()
	const rounds = 50
	var answering sync.WaitGroup
	answering.Go(func() {
		p := make([]byte, 8)
		for range rounds {
			n, err := server.Read(p)
			if err == nil {
				_, err = server.Write(p[:n])
			}
			if err != nil {
				t.Errorf("answering: %v", err)
				return
			}
		}
	})
	for range rounds {
		wantAnswer(t, client)
	}
	answering.Wait()
}

// wantAnswer expects c's peer to send back what it receives.
func wantAnswer(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatalf("Write: %v", err)
	}
	p := make([]byte, 8)
	if n, err := c.Read(p); string(p[:n]) != "ping" || err != nil {
		t.Fatalf("Read: got %q, %v, want ping", p[:n], err)
	}
}

// wantReadError expects a Read to fail.
func wantReadError(t *testing.T, c net.Conn, want error) {
	t.Helper()
	if n, err := c.Read(make([]byte, 8)); n != 0 || !errors.Is(err, want) {
		t.Errorf("Read: got %d, %v, want %v", n, err, want)
	}
}

func closeAll(conns ...net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// TestSynctestCrossing uses connections on both sides of a bubble's border: made outside and used
// inside, and the other way round.
func TestSynctestCrossing(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		var server, client net.Conn
		synctest.Test(t, func(t *testing.T) {
			server, client = b.pair(t)
			wantPingPong(t, server, client)
		})
		wantPingPong(t, server, client)
		server2, client2 := b.pair(t)
		wantPingPong(t, server2, client2)
		synctest.Test(t, func(t *testing.T) {
			wantPingPong(t, server, client)
			wantPingPong(t, server2, client2)
			closeAll(server, client2)
		})
		closeAll(client, server2)
	})
}

// TestSynctestBothSides makes one end wait inside and the other outside.
func TestSynctestBothSides(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		server, client := b.pair(t)
		var outside sync.WaitGroup
		outside.Go(func() { _, _ = io.Copy(server, server) })
		synctest.Test(t, func(t *testing.T) {
			for range 50 {
				wantAnswer(t, client)
			}
			closeAll(client)
		})
		outside.Wait()
		closeAll(server)
	})
}

// TestSynctestDeadline: a deadline is as far off as the bubble's clock says, but passes by the real
// clock, because a Read is not durably blocked.
func TestSynctestDeadline(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		server, client := b.pair(t)
		began := time.Now()
		synctest.Test(t, func(t *testing.T) {
			for _, distance := range []time.Duration{50 * time.Millisecond, 0, -time.Hour} {
				_ = server.SetReadDeadline(time.Now().Add(distance))
				wantReadError(t, server, os.ErrDeadlineExceeded)
			}
			_ = server.SetReadDeadline(time.Unix(1, 0))
			wantReadError(t, server, os.ErrDeadlineExceeded)
			_ = server.SetReadDeadline(time.Now().Add(time.Hour))
			wantPingPong(t, server, client)
			// Setting a deadline wakes a Read that already waits.
			var reading sync.WaitGroup
			reading.Go(func() { wantReadError(t, client, os.ErrDeadlineExceeded) })
			_ = client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			reading.Wait()
			_ = client.SetReadDeadline(time.Time{})
		})
		if took := time.Since(began); took < 100*time.Millisecond {
			t.Errorf("two deadlines of 50ms, one after the other, have passed in %v", took)
		}
		wantPingPong(t, server, client) // the deadline of the bubble's next hour is an hour off
		_ = server.SetReadDeadline(time.Now().Add(time.Millisecond))
		wantReadError(t, server, os.ErrDeadlineExceeded)
		closeAll(server, client)
	})
}

// TestSynctestAcceptDeadline tests a listener's deadline.
func TestSynctestAcceptDeadline(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		synctest.Test(t, func(t *testing.T) {
			ln, err := b.listen(b.network, b.address)
			if err != nil {
				t.Fatal(err)
			}
			_ = ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(time.Millisecond))
			if c, err := ln.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Accept: got %v, %v, want %v", c, err, os.ErrDeadlineExceeded)
			}
			ln.Close()
		})
	})
}

// TestSynctestListener accepts from one listener outside of bubbles, in one, and in another.
func TestSynctestListener(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		var ln net.Listener
		wantAccept := func(t *testing.T) {
			client, err := b.dial(ln.Addr().Network(), ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			server, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			wantPingPong(t, server, client)
			if raw, err := ln.(syscall.Conn).SyscallConn(); err != nil || raw.Control(func(uintptr) {}) != nil {
				t.Error("the listener's raw connection can't be had")
			}
			closeAll(server, client)
		}
		for _, begin := range []func(t *testing.T, f func(t *testing.T)){
			func(t *testing.T, f func(t *testing.T)) { f(t) },
			func(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) },
		} {
			begin(t, func(t *testing.T) {
				var err error
				if ln, err = b.listen(b.network, b.address); err != nil {
					t.Fatal(err)
				}
				wantAccept(t)
			})
			synctest.Test(t, wantAccept)
			wantAccept(t)
			synctest.Test(t, wantAccept)
			ln.Close()
		}
	})
}

// TestSynctestListenerCloses closes a listener on one side of a bubble's border while both sides
// accept from it.
func TestSynctestListenerCloses(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		ln, err := b.listen(b.network, b.address)
		if err != nil {
			t.Fatal(err)
		}
		wantClosed := func() {
			if c, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept: got %v, %v, want %v", c, err, net.ErrClosed)
			}
		}
		var outside sync.WaitGroup
		outside.Go(wantClosed)
		synctest.Test(t, func(t *testing.T) {
			var inside sync.WaitGroup
			inside.Go(wantClosed)
			ln.Close()
			inside.Wait()
		})
		outside.Wait()
	})
}

// TestSynctestClose: Close wakes all calls that wait, on either side of the border.
func TestSynctestClose(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		server, client := b.pair(t)
		reader := make(chan struct{})
		go func() {
			defer close(reader)
			wantReadError(t, server, net.ErrClosed)
		}()
		toClose := make(chan net.Conn, 1)
		go func() {
			c := <-toClose
			c.Close()
		}()
		synctest.Test(t, func(t *testing.T) {
			closeAll(server, client)
			<-reader
			server, client := b.pair(t)
			server2, client2 := b.pair(t)
			ln := testnet.Listen(t, b.listen, testnet.TCP4)
			var inside sync.WaitGroup
			inside.Go(func() { wantReadError(t, server, net.ErrClosed) })
			inside.Go(func() { wantReadError(t, server2, net.ErrClosed) })
			inside.Go(func() {
				if c, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept: got %v, %v, want %v", c, err, net.ErrClosed)
				}
			})
			toClose <- server
			server2.Close()
			ln.Close()
			inside.Wait()
			closeAll(client, client2)
		})
	})
}

// TestSynctestSleep: the bubble's clock advances while connections are open and no call waits.
func TestSynctestSleep(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		synctest.Test(t, func(t *testing.T) {
			server, client := b.pair(t)
			wantPingPong(t, server, client)
			before := time.Now()
			time.Sleep(time.Hour)
			if took := time.Since(before); took != time.Hour {
				t.Errorf("an hour's Sleep took %v by the bubble's clock", took)
			}
			wantPingPong(t, server, client)
			closeAll(server, client)
		})
	})
}

// TestSynctestCopy copies with splice: pipes that the bubble has used outlive it.
func TestSynctestCopy(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		wantCopy := func(t *testing.T) {
			from, in := b.pair(t)
			out, to := b.pair(t)
			content := bytes.Repeat([]byte("percore "), 1<<16)
			var running sync.WaitGroup
			running.Go(func() {
				_, _ = in.Write(content)
				in.Close()
			})
			running.Go(func() {
				_, _ = io.Copy(to, from)
				to.Close()
			})
			if got, err := io.ReadAll(out); !bytes.Equal(got, content) || err != nil {
				t.Errorf("got %d bytes, %v, want the %d that were written", len(got), err, len(content))
			}
			running.Wait()
			closeAll(from, out)
		}
		synctest.Test(t, wantCopy)
		wantCopy(t)
		synctest.Test(t, wantCopy)
	})
}

// TestSynctestHTTP runs servers of net/http/httptest in a bubble, as the tests of
// golang.org/x/net/http2 do.
func TestSynctestHTTP(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			synctest.Test(t, func(t *testing.T) {
				ln := testnet.Listen(t, b.listen, testnet.TCP4)
				srv := httptest.NewUnstartedServer(http.HandlerFunc(sendBack))
				srv.Listener.Close()
				srv.Listener = ln
				srv.Config.ReadTimeout, srv.Config.IdleTimeout = time.Hour, time.Hour
				if srv.EnableHTTP2 = protocol == "HTTP/2.0"; srv.EnableHTTP2 {
					srv.StartTLS()
				} else {
					srv.Start()
				}
				client := srv.Client()
				client.Transport.(*http.Transport).DialContext = func(_ context.Context, network, address string) (net.Conn, error) {
					return b.dial(network, address)
				}
				wantSentBack(t, client, srv.URL, protocol)
				client.CloseIdleConnections()
				srv.Close()
			})
		}
	})
}

// TestSynctestHTTPAdapter: in a bubble a server of httpadapter serves, and parks nothing.
func TestSynctestHTTPAdapter(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *bubbled) {
		synctest.Test(t, func(t *testing.T) {
			ln := testnet.Listen(t, b.listen, testnet.TCP4)
			srv := httpadapter.Wrap(&http.Server{Handler: http.HandlerFunc(sendBack)})
			var serving sync.WaitGroup
			serving.Go(func() {
				if err := srv.Serve(ln); err != http.ErrServerClosed {
					t.Errorf("Serve: got %v, want %v", err, http.ErrServerClosed)
				}
			})
			client := &http.Client{Transport: &http.Transport{}}
			wantSentBack(t, client, "http://"+ln.Addr().String(), "HTTP/1.1")
			client.CloseIdleConnections()
			if err := srv.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			serving.Wait()
		})
	})
}

func sendBack(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

func wantSentBack(t *testing.T, client *http.Client, url, protocol string) {
	t.Helper()
	for range 5 {
		resp, err := client.Post(url, "text/plain", bytes.NewReader([]byte("hello")))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "hello" || resp.Proto != protocol || err != nil {
			t.Errorf("got %q by %s, %v, want hello by %s", body, resp.Proto, err, protocol)
		}
	}
}
