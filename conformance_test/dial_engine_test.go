package conformance

import (
	"net"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// The engines that make connections by dialing. They dial net's listeners, so that only one end is
// tested, or percore's, so that both ends are percore's.
var (
	netDialing     = netEngine.dialing("net", net.Dial)
	percoreDialing = netEngine.dialing("percore", percore.Dial)
	percoreBoth    = percoreEngine.dialing("percore", percore.Dial)
)

// dialedByPercore is percoreBoth beside other engines.
func dialedByPercore() engine {
	return percoreEngine.dialing("percore, dialed by percore", percore.Dial)
}

func (e engine) dialing(name string, dial func(network, address string) (net.Conn, error)) engine {
	e.name, e.dial = name, dial
	return e
}

// connect makes one connection to ln, which must have no other pending connection. It returns the
// end under test and the other end. Both are closed when the test ends.
func (e engine) connect(t testing.TB, ln net.Listener) (tested, peer net.Conn) {
	t.Helper()
	if e.dial == nil {
		return testnet.Connect(t, ln)
	}
	outcome := goAccept(ln, 1)
	tested, err := e.dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		t.Fatalf("dialing %v: %v", ln.Addr(), err)
	}
	t.Cleanup(func() { tested.Close() })
	accepted := testnet.Receive(t, "Accept", outcome)
	if accepted.err != nil {
		t.Fatalf("accepting on %v: %v", ln.Addr(), accepted.err)
	}
	t.Cleanup(func() { accepted.conn.Close() })
	return tested, accepted.conn
}

// dialedEnd returns the one of connect's two ends that dialed: the kernel has chosen its port.
func (e engine) dialedEnd(tested, peer net.Conn) net.Conn {
	if e.dial != nil {
		return tested
	}
	return peer
}

// playDialed plays a script of the differential suite again, if it makes connections, with the
// dialed ends under test. It doesn't check the script's facts: accepted ends have already proved
// them, and here the addresses would have to be the other way round. Two kinds are enough, because
// all unix sockets are alike, and so are all IP versions.
func playDialed(t *testing.T, sc script, kind testnet.Kind) {
	if kind != testnet.TCP4 && kind != testnet.Unix {
		return
	}
	t.Run(sc.name+"/"+string(kind)+"/dialed", func(t *testing.T) {
		testnet.NoLeaks(t)
		reference, dials := netDialing, 0
		reference.dial = func(network, address string) (net.Conn, error) {
			dials++
			return net.Dial(network, address)
		}
		want := perform(t, sc, kind, reference)
		if dials == 0 {
			return // the script dials nothing
		}
		if difference := diffLines(want, perform(t, sc, kind, percoreDialing)); difference != "" {
			t.Errorf("percore (+) differs from net (-):\n%s", difference)
		}
	})
}

// TestDialRandomPrograms is TestRandomPrograms with the dialed end as the first one.
func TestDialRandomPrograms(t *testing.T) {
	testnet.NoLeaks(t)
	for _, e := range []engine{percoreDialing, percoreBoth} {
		runRandom(t, 5000, rounds(200), func(t *testing.T, program []byte) { comparePrograms(t, netDialing, e, program) })
	}
}

// TestDialStressConn is TestStressConn with dialed ends.
func TestDialStressConn(t *testing.T) {
	testnet.NoLeaks(t)
	stressConn(t, percoreDialing)
	stressConn(t, percoreBoth)
}
