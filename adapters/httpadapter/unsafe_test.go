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
	f, config := startTLS(t, echoPath, nil, FastPath(), func(c *config) {
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
	f := start(t, echoPath, nil, ParkAfter(-1), func(c *config) {
		c.checkNetHTTP = func() (probe.Way, error) { return probe.Unknown, errors.New("asked") }
	})
	f.dial().get("/")
	if f.server.Stats().Unsafe {
		t.Error("Stats.Unsafe: got true, want false")
	}
}
