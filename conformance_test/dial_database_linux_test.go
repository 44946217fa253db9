package conformance

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// lineDriver is a minimal database driver: a query is a line, and so is its answer. It uses a
// connection as real database drivers do.
type lineDriver struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	address string
	dials   atomic.Int32
}

func (d *lineDriver) Driver() driver.Driver { return nil }

func (d *lineDriver) Connect(ctx context.Context) (driver.Conn, error) {
	d.dials.Add(1)
	c, err := d.dial(ctx, "tcp", d.address)
	if err != nil {
		return nil, err
	}
	return &lineConn{Conn: c, in: bufio.NewReader(c)}, nil
}

type lineConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *lineConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *lineConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }

// Ping sends a query and aborts it when ctx ends, with a deadline in the past.
func (c *lineConn) Ping(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(c.Conn, "ping\n"); err != nil {
		return driver.ErrBadConn
	}
	line, err := c.in.ReadString('\n')
	if ctx.Err() != nil {
		c.Conn.Close()
		return ctx.Err()
	}
	if line != "ping\n" || err != nil {
		return fmt.Errorf("got %q, %w", line, err)
	}
	return nil
}

// ResetSession checks whether the server has closed the connection, as go-sql-driver/mysql does
// before it uses a pooled one. It uses a read that must not block.
func (c *lineConn) ResetSession(context.Context) error {
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	usable := false
	err = raw.Read(func(fd uintptr) bool {
		n, err := syscall.Read(int(fd), make([]byte, 1))
		usable = n < 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
		return true
	})
	if err != nil || !usable {
		return driver.ErrBadConn
	}
	return nil
}

// TestDialDatabase uses a dialed connection as database/sql and its drivers do: it pools it, checks
// it through SyscallConn before use, and aborts calls with deadlines.
func TestDialDatabase(t *testing.T) {
	onEachDialUse(t, func(t *testing.T, u dialUse) {
		ln := testnet.Listen(t, u.server.listen, testnet.TCP4)
		conns := make(chan net.Conn, 10)
		var silent atomic.Bool
		go func() {
			defer close(conns)
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				conns <- c
				go func() {
					for in := bufio.NewReader(c); ; {
						line, err := in.ReadString('\n')
						if err != nil {
							return
						}
						if !silent.Load() {
							io.WriteString(c, line)
						}
					}
				}()
			}
		}()
		d := &lineDriver{dial: u.dial, address: ln.Addr().String()}
		db := sql.OpenDB(d)
		defer func() {
			db.Close()
			ln.Close()
			for c := range conns {
				c.Close()
			}
		}()
		for range 5 {
			if err := db.PingContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.dials.Load(); got != 1 {
			t.Errorf("got %d connections, want 1 for all pings", got)
		}
		// The server closes the connection. The pool notices, if the kernel has already, and dials
		// again.
		first := testnet.Receive(t, "the connection", conns)
		first.Close()
		testnet.Eventually(t, "a ping that needs a new connection", func() bool {
			err := db.PingContext(t.Context())
			return err == nil && d.dials.Load() == 2
		})
		silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := db.PingContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a ping without an answer: got %v, want a timeout", err)
		}
		silent.Store(false)
		if err := db.PingContext(t.Context()); err != nil {
			t.Errorf("a ping after that: %v", err)
		}
	})
}
