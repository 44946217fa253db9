package httpadapter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
)

// If parking is not safe, connections are served anyway, and the log and Stats say so.
func TestUnsafe(t *testing.T) {
	needParking(t)
	asked := 0
	f := start(t, echoPath, nil, func(c *config) {
		c.checkNetHTTP = func() (probe.Way, error) { asked++; return probe.Unknown, errors.New("it sings") }
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
	f, config := startTLS(t, echoPath, nil, fastPath(), func(c *config) {
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

// Nothing is checked if nothing would be parked.
func TestUnsafeUnasked(t *testing.T) {
	f := start(t, echoPath, nil, NoParking(), func(c *config) {
		c.checkNetHTTP = func() (probe.Way, error) { return probe.Unknown, errors.New("asked") }
	})
	f.dial().get("/")
	if f.server.Stats().Unsafe {
		t.Error("Stats.Unsafe: got true, want false")
	}
}

// TestNoParking: the adapter serves plain requests, and what net/http has had once stays with it.
// Nothing is checked, and nothing is wrong.
func TestNoParking(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, nil, NoParking(), fastPath(), func(c *config) {
		c.checkNetHTTP = func() (probe.Way, error) { return probe.Unknown, errors.New("asked") }
	})
	c := f.dial()
	c.wantGet("/1", "/1")
	f.wantFast(1)
	c.send("GET /2 HTTP/1.1\r\nHost: a\r\nPragma: x\r\n\r\n") // not plain
	if got := c.answer(); got != "/2" {
		t.Errorf("got %q, want /2", got)
	}
	c.wantGet("/3", "/3")
	if got := f.server.FastPathStats(); got.Requests != 1 {
		t.Errorf("got %d requests on the fast path, want the first alone", got.Requests)
	}
	if got := f.server.Stats(); got.Parks != 0 || got.Unsafe {
		t.Errorf("got %+v, want no parks, and nothing unsafe", got)
	}
	if log := f.log.String(); log != "" {
		t.Errorf("got the log %q, want none", log)
	}
}
