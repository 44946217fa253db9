package conformance

import (
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// The optional interfaces of connections and listeners.
type (
	filer       interface{ File() (*os.File, error) }
	syscallConn interface {
		SyscallConn() (syscall.RawConn, error)
	}
	noDelayer         interface{ SetNoDelay(bool) error }
	keepAliver        interface{ SetKeepAlive(bool) error }
	keepAlivePerioder interface{ SetKeepAlivePeriod(time.Duration) error }
	keepAliveConfiger interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}
	lingerer       interface{ SetLinger(int) error }
	readBufferer   interface{ SetReadBuffer(int) error }
	writeBufferer  interface{ SetWriteBuffer(int) error }
	multipathTCPer interface{ MultipathTCP() (bool, error) }
)

// A socketOption is one call of one setter.
type socketOption struct {
	name string
	set  func(a *actor) error
}

// settings returns a call of a setter for each value.
func settings[I, V any](name string, set func(I, V) error, values ...V) (calls []socketOption) {
	for _, v := range values {
		calls = append(calls, socketOption{fmt.Sprintf("%s(%+v)", name, v), func(a *actor) error { return set(as[I](a), v) }})
	}
	return calls
}

// tcpOptions covers every setter of *net.TCPConn with usual, extreme and refused values.
var tcpOptions = slices.Concat(
	settings("SetNoDelay", noDelayer.SetNoDelay, false, true),
	settings("SetKeepAlive", keepAliver.SetKeepAlive, false, true),
	settings("SetKeepAlivePeriod", keepAlivePerioder.SetKeepAlivePeriod, 90*time.Second, 1500*time.Millisecond, time.Nanosecond, 0,
		-time.Second, time.Hour*24*365, math.MaxInt32*time.Second, math.MaxInt64),
	settings("SetKeepAliveConfig", keepAliveConfiger.SetKeepAliveConfig,
		net.KeepAliveConfig{},
		net.KeepAliveConfig{Enable: true},
		net.KeepAliveConfig{Enable: true, Idle: 11 * time.Second, Interval: 12 * time.Second, Count: 3},
		net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1},
		net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: -1, Count: 0},
		net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Hour * 24 * 365, Count: 1000},
		net.KeepAliveConfig{Enable: false, Idle: 21 * time.Second, Interval: 22 * time.Second, Count: 5}),
	settings("SetLinger", lingerer.SetLinger, 5, 0, -1, 1<<30),
	bufferOptions,
)

var bufferOptions = slices.Concat(
	settings("SetReadBuffer", readBufferer.SetReadBuffer, 64<<10, 0, -1, 1<<30),
	settings("SetWriteBuffer", writeBufferer.SetWriteBuffer, 64<<10, 0, -1, 1<<30),
)

// TestDiffOptions sets every option, and after each reads back what the kernel made of it. It
// begins with the options of a newly accepted connection.
func TestDiffOptions(t *testing.T) {
	playScripts(t, []script{{
		name:  "setters",
		kinds: onTCP,
		shows: []string{`SetNoDelay\(false\): nil`, `SetKeepAlivePeriod\(8760h0m0s\): OpError\{"set".*EINVAL`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.noteOptions("as accepted")
			for _, option := range tcpOptions {
				srv.call(option.name, func() error { return option.set(srv) })
				srv.noteOptions("then")
			}
		},
	}, {
		name:  "setters on a closed connection",
		kinds: onTCP,
		shows: []string{`SetNoDelay\(false\): OpError\{"set".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			for _, option := range tcpOptions {
				srv.call(option.name, func() error { return option.set(srv) })
			}
		},
	}, {
		name:  "setters on a reset connection",
		kinds: onTCP,
		shows: []string{`SetReadBuffer\(65536\): nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			for _, option := range tcpOptions {
				srv.call(option.name, func() error { return option.set(srv) })
			}
			srv.read(1)
			srv.read(1)
		},
	}, {
		name:  "buffer sizes of unix connections",
		kinds: []testnet.Kind{testnet.Unix, testnet.Abstract},
		shows: []string{`SetReadBuffer\(65536\): nil`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.noteOptions("as accepted")
			for _, option := range bufferOptions {
				srv.call(option.name, func() error { return option.set(srv) })
				srv.noteOptions("then")
			}
		},
	}, {
		name:  "multipath TCP",
		kinds: onTCP,
		shows: []string{`MultipathTCP: false nil`},
		play: func(s *stage) {
			srv, _ := s.pair()
			// Don't check again after Close: net says yes then, because it gets no error.
			used, err := as[multipathTCPer](srv).MultipathTCP()
			srv.note("MultipathTCP: %t %s", used, describeError(err))
		},
	}, {
		name: "of the listener",
		play: func(s *stage) {
			s.noteListenerOptions(s.listen())
		},
	}})
}
