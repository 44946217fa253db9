//go:build !percore_net

package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// drainedClient makes requests over TLS on a connection that it keeps until an answer says that it ends.
type drainedClient struct {
	address string
	conn    *tls.Conn // nil: none
	reader  *bufio.Reader
	used    bool      // an answer has come on conn
	last    time.Time // when it came
	made    int
}

// errNoConn is for a request on a new connection, which a server that ends may refuse.
var errNoConn = errors.New("no connection")

// request makes a request, and reports whether the answer says that the connection ends. It has no error
// if the client was held up for so long that its connection may be one that the server takes for idle.
func (c *drainedClient) request() (closes bool, err error) {
	defer func() {
		if c.conn != nil && (err != nil || closes) {
			c.conn.Close()
			c.conn = nil
		}
	}()
	if c.conn == nil {
		conn, err := tls.Dial("tcp", c.address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return false, fmt.Errorf("%w: %w", errNoConn, err)
		}
		c.conn, c.reader, c.used = conn, bufio.NewReader(conn), false
	}
	closes, err = c.exchange()
	switch {
	case err == nil:
		c.used, c.last = true, time.Now()
	case !c.used:
		err = fmt.Errorf("%w: %w", errNoConn, err)
	case time.Since(c.last) > time.Second/2:
		c.conn.Close()
		c.conn, err = nil, nil
	}
	return closes, err
}

func (c *drainedClient) exchange() (closes bool, err error) {
	c.made++
	body := fmt.Sprintf("request %d", c.made)
	_ = c.conn.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := fmt.Fprintf(c.conn, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return false, err
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(got) != body {
		return false, fmt.Errorf("got %s, %q, %w, want %q", resp.Status, got, err, body)
	}
	return resp.Close, nil
}

// Clients over TLS, whose connections can't move, lose no request to restarts, nor to a stop with a
// delay: each connection ends with an answer that says so.
func TestServeDrainsTLS(t *testing.T) {
	for _, args := range [][]string{{"-tls"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			const clients, restarts = 8, 2
			g := startGenerations(t, append(args, "-drain-delay", "1s")...)
			var stopping atomic.Bool // from then on a new connection may be refused
			var made, told atomic.Int64
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					c := drainedClient{address: g.httpAddress}
					for {
						closes, err := c.request()
						switch {
						case errors.Is(err, errNoConn) && stopping.Load():
							return
						case err != nil:
							t.Errorf("client %d, request %d: %v", i, c.made, err)
							return
						}
						made.Add(1)
						if closes {
							told.Add(1)
						}
						time.Sleep(rand.N(2 * time.Millisecond)) // connections wait now and then
					}
				})
			}
			moreRequests := func() {
				before := made.Load()
				testnet.Eventually(t, "requests", func() bool { return made.Load() > before+10*clients || t.Failed() })
			}
			for range restarts {
				moreRequests()
				before, predecessor := told.Load(), g.pid
				g.restart()
				testnet.Eventually(t, "the predecessor's end", func() bool { return !g.isRunning(predecessor) })
				if told.Load() == before {
					t.Error("no client was told by the predecessor")
				}
			}
			moreRequests()
			before := told.Load()
			stopping.Store(true)
			_ = syscall.Kill(g.pid, syscall.SIGTERM)
			testnet.Within(t, "the clients", all.Wait)
			if told.Load() == before {
				t.Error("no client was told before the end")
			}
			g.stop()
		})
	}
}
