package httpadapter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// If crypto/tls can't be read as the adapter does, net/http serves TLS, and the log and Stats say so.
func TestUnsafeTLS(t *testing.T) {
	needParking(t)
	f, config := startTLS(t, echoPath, nil, func(c *config) {
		c.checkTLS = func() error { return errors.New("it sings") }
	})
	c := f.dialTLS(config)
	for i := range 3 {
		path := fmt.Sprintf("/%d", i)
		if got := c.get(path); got != path {
			t.Errorf("got %q, want %q", got, path)
		}
	}
	if got := f.server.Stats(); !got.Unsafe || got.Conns != 0 || got.Requests > 0 {
		t.Errorf("got %+v, want Unsafe and a connection that net/http serves", got)
	}
	if log := f.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "crypto/tls") || !strings.Contains(log, "it sings") {
		t.Errorf("got the log %q, want one line that says why net/http serves", log)
	}
}
