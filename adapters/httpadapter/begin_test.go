package httpadapter

import (
	"io"
	"net/http"
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
		f.srv.Protocols = new(http.Protocols)
		f.srv.Protocols.SetHTTP1(true)
		f.srv.Protocols.SetUnencryptedHTTP2(true)
	}, short)
	c := f.dial()
	c.send(preface[:len(preface)/2])
	if _, err := io.ReadAll(c.br); err != nil {
		t.Errorf("half a preface: got %v, want the end", err)
	}
}

// TestBeginTimeEnds: the limit of a handshake is over with it.
func TestBeginTimeEnds(t *testing.T) {
	needParking(t)
	f, config := startTLS(t, echoPath, nil)
	f.dialTLS(config)
	f.awaitWaiting(1) // the handshake is over
	if at := f.conn().Sight().ReadDeadline; !at.IsZero() {
		t.Errorf("the connection has a read deadline, %v from now, want none", time.Until(at))
	}
}
