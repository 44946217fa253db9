package httpadapter

import (
	"io"
	"testing"
	"time"
)

// TestBeginTime: a client that stops in a handshake, or in the preface of HTTP/2, is disconnected also
// where the http.Server has no timeouts.
func TestBeginTime(t *testing.T) {
	needParking(t)
	short := func(c *config) { c.beginTime = 20 * time.Millisecond }
	for _, begin := range []string{"", "\x16\x03\x01\x02\x00"} {
		f, _ := startTLS(t, echoPath, nil, short)
		c := f.dial()
		c.send(begin)
		c.awaitEOF()
	}
	f := start(t, echoPath, func(f *fixture) {
		f.srv.Protocols = clearHTTP2(true)
	}, short)
	c := f.dial()
	c.send(preface[:len(preface)/2])
	if _, err := io.ReadAll(c.br); err != nil {
		t.Errorf("half a preface: got %v, want the end", err)
	}
}
