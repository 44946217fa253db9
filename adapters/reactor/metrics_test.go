package reactor

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/testnet"
)

// figuresNow returns the metrics that percore.ReadStats has of this package, by name and reason.
func figuresNow() map[string]float64 {
	all := make(map[string]float64)
	for _, a := range percore.ReadStats().Adapters {
		if a.Adapter == "reactor" {
			for _, f := range a.Metrics {
				all[f.Name+f.Of] = f.Value
			}
		}
	}
	return all
}

// figuresAtRest returns the metrics once the connections of all tests before are counted out.
func figuresAtRest(t *testing.T) (all map[string]float64) {
	t.Helper()
	testnet.Eventually(t, "the end of other tests' connections", func() bool {
		all = figuresNow()
		return all["connections"] == 0
	})
	return all
}

// changed waits until the metrics have changed by so much, since before.
func changed(t *testing.T, before map[string]float64, by map[string]float64) {
	t.Helper()
	testnet.Eventually(t, fmt.Sprintf("the metrics' change by %v", by), func() bool {
		now := figuresNow()
		for name, n := range by {
			if _, ok := now[name]; !ok || now[name]-before[name] != n {
				return false
			}
		}
		return true
	})
}

// checkGauges says which metric counts something though all connections are gone.
func checkGauges() error {
	for name, n := range figuresNow() {
		switch name {
		case "connections", "blocked_connections", "unsent_bytes", "waiting_functions":
			if n != 0 {
				return fmt.Errorf("reactor: the metric %s is %v though no connection is open", name, n)
			}
		}
	}
	return nil
}

// Each way in which a connection ends is counted, by its reason.
func TestFiguresOfEnds(t *testing.T) {
	testnet.NoLeaks(t)
	handler := &handler{data: func(c *Conn, p []byte) int {
		switch p[0] {
		case 'c':
			c.Abort()
		case 'd':
			conn, _, err := c.Hijack()
			if err != nil {
				t.Errorf("Hijack: %v", err)
				return 0
			}
			conn.Close()
		case 'k': // keeps it
			return 0
		case 'p':
			panic("a test")
		case 'w': // until it is refused, since the peer reads nothing
			for err := error(nil); err == nil; _, err = c.Write(make([]byte, 1<<20)) {
			}
		}
		return len(p)
	}}
	reset := func(c net.Conn) {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	for _, way := range []struct {
		metric string
		text   string
		end    func(c net.Conn)
		config Config
	}{
		{"closed_connections_totalserver", "c", nil, silent},
		{"closed_connections_totalpeer", "x", func(c net.Conn) { c.Close() }, silent},
		{"closed_connections_totalunexpected_eof", "k", func(c net.Conn) { c.Close() }, silent},
		{"closed_connections_totaltimeout", "x", nil, Config{IdleTimeout: time.Millisecond}},
		{"closed_connections_totaltimeout", "k", nil, Config{ReadTimeout: time.Millisecond}},
		{"closed_connections_totalread_buffer_full", "kk", nil, Config{ReadBufferMax: 2}},
		{"closed_connections_totalwrite_buffer_full", "w", nil, silent},
		{"closed_connections_totalpanic", "p", nil, silent},
		{"closed_connections_totalerror", "x", reset, silent},
		{"hijacked_connections_total", "d", nil, silent},
	} {
		before := figuresAtRest(t)
		s, dial := serve(t, handler, way.config)
		c := dial()
		io.WriteString(c, way.text)
		if way.end != nil {
			changed(t, before, map[string]float64{"data_calls_total": 1, "connections": 1})
			way.end(c)
		}
		testnet.Eventually(t, "the end", func() bool { return s.Stats().Conns == 0 })
		changed(t, before, map[string]float64{"opened_connections_total": 1, "connections": 0, way.metric: 1})
	}
	before := figuresAtRest(t)
	s, dial := serve(t, handler)
	dial()
	changed(t, before, map[string]float64{"connections": 1})
	s.Close()
	changed(t, before, map[string]float64{"connections": 0, "closed_connections_totalserver": 1})
}

// Bytes that wait for a peer are counted until the peer has them, and so are writes that are refused
// because of them.
func TestFiguresOfSlowPeers(t *testing.T) {
	testnet.NoLeaks(t)
	const limit, socketBuffer = 8 << 20, 64 << 10 // the kernel's buffers take far less than half
	part := bytes.Repeat([]byte("a"), 64<<10)
	before := figuresAtRest(t)
	s, dial := serve(t, &told{handler: handler{open: func(c *Conn) {
		c.sock.conn.SetWriteBuffer(socketBuffer)
	}, data: func(c *Conn, p []byte) int {
		for {
			if _, err := c.Write(part); err != nil {
				return len(p)
			}
		}
	}}}, Config{WriteHardLimit: limit})
	c := dial()
	c.(*net.TCPConn).SetReadBuffer(socketBuffer)
	io.WriteString(c, "x")
	changed(t, before, map[string]float64{"refused_writes_total": 1, "blocked_connections": 1})
	if n := figuresNow()["unsent_bytes"] - before["unsent_bytes"]; n <= limit/2 || n > limit {
		t.Errorf("got %v unsent bytes, want more than half of WriteHardLimit, %d, and no more than that", n, limit)
	}
	go io.Copy(io.Discard, c)
	changed(t, before, map[string]float64{"unsent_bytes": 0, "blocked_connections": 0})

	other := dial()
	io.WriteString(other, "x")
	changed(t, before, map[string]float64{"refused_writes_total": 2, "blocked_connections": 1})
	other.Close()
	changed(t, before, map[string]float64{"unsent_bytes": 0, "blocked_connections": 0, "connections": 1})
	c.Close()
	testnet.Eventually(t, "the end", func() bool { return s.Stats().Conns == 0 })
}

// Functions that wait for a worker are counted, and callbacks that take long.
func TestFiguresOfWork(t *testing.T) {
	testnet.NoLeaks(t)
	before := figuresAtRest(t)
	goOn := make(chan bool)
	_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
		for range 3 {
			c.Go(func() { <-goOn })
		}
		time.Sleep(loop.SlowPass)
		return len(p)
	}})
	io.WriteString(dial(), "x")
	changed(t, before, map[string]float64{"waiting_functions": 2})
	close(goOn)
	changed(t, before, map[string]float64{"waiting_functions": 0})
	testnet.Eventually(t, "the callback is counted", func() bool {
		return figuresNow()["slow_callbacks_total"] > before["slow_callbacks_total"] // Open may be slow, too
	})
}

// Help texts and labels are there from the start, and reasons have different names.
func TestMetrics(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range readMetrics() {
		if f.Help == "" || (f.Label == "") != (f.Of == "") || seen[f.Name+f.Of] {
			t.Errorf("got %+v, want a help text, and a label exactly if there is a value of it, once", f)
		}
		seen[f.Name+f.Of] = true
	}
	if got := reasonOf(&net.OpError{Err: os.ErrDeadlineExceeded}); got != byTimeout {
		t.Errorf("got %s, want %s", reasonNames[got], reasonNames[byTimeout])
	}
}
