//go:build percore_faults && !percore_net

package h2

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// harmlessFaults are errors of system calls that change nothing for the client.
var harmlessFaults = map[sys.Op][]syscall.Errno{
	sys.OpRead:  {unix.EINTR},
	sys.OpWrite: {unix.EINTR},
	sys.OpPpoll: {unix.EINTR},
}

// TestModelFaults plays models while system calls fail. With harmless faults all answers are whole;
// with others connections end, but nothing is wrong until then, and nothing is left behind.
func TestModelFaults(t *testing.T) {
	seed := modelSeed(t)
	for _, test := range []struct {
		name    string
		faults  map[sys.Op][]syscall.Errno
		one     int // of this many calls fails
		endings []string
	}{
		{"harmless", harmlessFaults, 5, []string{"finish", "finish"}},
		{"fatal", testnet.FatalFaults, 300, []string{"faults", "faults", "faults", "faults", "faults"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
				for i, ending := range test.endings {
					s := serveModel(start)
					m := newModel(t, s, seed+uint64(i))
					m.sync() // behind the handshake, which has tests of its own
					restore := testnet.InjectAtRandom(test.faults, test.one)
					playModel(t, s, m, 300, ending)
					restore()
				}
			})
		})
	}
}

// TestModelFaultAtEach lets one call fail, each of the first of its kind in turn.
func TestModelFaultAtEach(t *testing.T) {
	for _, op := range []sys.Op{sys.OpRead, sys.OpWrite, sys.OpWritev, sys.OpEpollCtl, sys.OpPpoll, sys.OpShutdown, sys.OpClose} {
		for _, errno := range testnet.FatalFaults[op] {
			for n := range 6 {
				s := serveModel(func(h Handler, c Config) *fixture { return serve(t, h, c) })
				m := newModel(t, s, 1)
				m.sync()
				calls := make(chan bool, n+1)
				restore := sys.Inject(func(o sys.Op, _ int) syscall.Errno {
					if o != op {
						return 0
					}
					select {
					case calls <- true:
						if len(calls) == n+1 {
							return errno
						}
					default:
					}
					return 0
				})
				playModel(t, s, m, 60, "faults")
				restore()
				if t.Failed() {
					t.Fatalf("%v of call %d of %v", errno, n, op)
				}
			}
		}
	}
}
