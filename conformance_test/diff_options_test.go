package conformance

import (
	"fmt"
	"math"
	"net"
	"os"
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

func noDelay(on bool) socketOption {
	return socketOption{fmt.Sprintf("SetNoDelay(%t)", on), func(a *actor) error { return as[noDelayer](a).SetNoDelay(on) }}
}

func keepAlive(on bool) socketOption {
	return socketOption{fmt.Sprintf("SetKeepAlive(%t)", on), func(a *actor) error { return as[keepAliver](a).SetKeepAlive(on) }}
}

func keepAlivePeriod(d time.Duration) socketOption {
	return socketOption{fmt.Sprintf("SetKeepAlivePeriod(%v)", d), func(a *actor) error {
		return as[keepAlivePerioder](a).SetKeepAlivePeriod(d)
	}}
}

func keepAliveConfig(config net.KeepAliveConfig) socketOption {
	return socketOption{fmt.Sprintf("SetKeepAliveConfig(%+v)", config), func(a *actor) error {
		return as[keepAliveConfiger](a).SetKeepAliveConfig(config)
	}}
}

func lingering(seconds int) socketOption {
	return socketOption{fmt.Sprintf("SetLinger(%d)", seconds), func(a *actor) error { return as[lingerer](a).SetLinger(seconds) }}
}

func readBuffer(bytes int) socketOption {
	return socketOption{fmt.Sprintf("SetReadBuffer(%d)", bytes), func(a *actor) error { return as[readBufferer](a).SetReadBuffer(bytes) }}
}

func writeBuffer(bytes int) socketOption {
	return socketOption{fmt.Sprintf("SetWriteBuffer(%d)", bytes), func(a *actor) error { return as[writeBufferer](a).SetWriteBuffer(bytes) }}
}

// tcpOptions covers every setter of *net.TCPConn with usual, extreme and refused values.
var tcpOptions = []socketOption{
	noDelay(false),
	noDelay(true),
	keepAlive(false),
	keepAlive(true),
	keepAlivePeriod(90 * time.Second),
	keepAlivePeriod(1500 * time.Millisecond),
	keepAlivePeriod(time.Nanosecond),
	keepAlivePeriod(0),
	keepAlivePeriod(-time.Second),
	keepAlivePeriod(time.Hour * 24 * 365),
	keepAlivePeriod(math.MaxInt32 * time.Second),
	keepAlivePeriod(math.MaxInt64),
	keepAliveConfig(net.KeepAliveConfig{}),
	keepAliveConfig(net.KeepAliveConfig{Enable: true}),
	keepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 11 * time.Second, Interval: 12 * time.Second, Count: 3}),
	keepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}),
	keepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 7 * time.Second, Interval: -1, Count: 0}),
	keepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Hour * 24 * 365, Count: 1000}),
	keepAliveConfig(net.KeepAliveConfig{Enable: false, Idle: 21 * time.Second, Interval: 22 * time.Second, Count: 5}),
	lingering(5),
	lingering(0),
	lingering(-1),
	lingering(1 << 30),
	readBuffer(64 << 10),
	readBuffer(0),
	readBuffer(-1),
	readBuffer(1 << 30),
	writeBuffer(64 << 10),
	writeBuffer(0),
	writeBuffer(-1),
	writeBuffer(1 << 30),
}

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
			for _, option := range []socketOption{readBuffer(64 << 10), writeBuffer(64 << 10), readBuffer(-1), writeBuffer(0)} {
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
