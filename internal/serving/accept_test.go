package serving

import (
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// script is a listener that returns its results in turn: a connection for nil.
type script struct {
	net.Listener
	results []error
}

func (s *script) Accept() (net.Conn, error) {
	err := s.results[0]
	s.results = s.results[1:]
	if err != nil {
		return nil, err
	}
	return &net.TCPConn{}, nil
}

// temporary is an error after which net/http goes on.
type temporary struct{ error }

func (temporary) Temporary() bool { return true }

// TestAccept: temporary errors are waited out for longer and longer, until a connection comes or the
// server is closed.
func TestAccept(t *testing.T) {
	busy, broken := temporary{errors.New("busy")}, errors.New("broken")
	for _, c := range []struct {
		name    string
		results []error
		ended   bool
		want    error
		retries []time.Duration // in ms
		conns   int
	}{
		{"an error", []error{nil, nil, broken}, false, broken, nil, 2},
		{"temporary errors", []error{busy, busy, nil, busy, broken}, false, broken, []time.Duration{5, 10, 5}, 1},
		{"many temporary errors", append(slices.Repeat([]error{busy}, 10), broken), false, broken,
			[]time.Duration{5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000}, 0},
		{"a server that is closed", []error{nil, busy}, true, busy, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var retries []time.Duration
				conns := 0
				begin, slept := time.Now(), time.Duration(0)
				err := Accept(&script{results: c.results}, func() bool { return c.ended },
					func(err error, in time.Duration) {
						retries = append(retries, in/time.Millisecond)
						slept += in
					}, func(net.Conn) { conns++ })
				if err != c.want || !slices.Equal(retries, c.retries) || conns != c.conns || time.Since(begin) != slept {
					t.Errorf("got %v, the retries %d, %d connections, in %v; want %v, %d, %d, %v",
						err, retries, conns, time.Since(begin), c.want, c.retries, c.conns, slept)
				}
			})
		})
	}
}
