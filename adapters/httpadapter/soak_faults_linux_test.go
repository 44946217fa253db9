//go:build percore_faults && !percore_net

package httpadapter

import (
	"maps"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestHTTP1SoakFaults is the soak test with system calls that fail at random. Connections end,
// but no answer is wrong, no client hangs, and nothing is left behind.
func TestHTTP1SoakFaults(t *testing.T) {
	testnet.NoLeaks(t)
	soakFaults(t, false)
}

// The same over TLS, once the handshake is done.
func TestHTTP1TLSSoakFaults(t *testing.T) {
	testnet.NoLeaks(t)
	soakFaults(t, true)
}

// soakFaults is soak with system calls that fail once the clients dial, or once they have. No call fails
// before: the listener would.
func soakFaults(t *testing.T, dialed bool) {
	restore := func() {}
	defer func() { restore() }()
	soak(t, true, func(now bool) {
		if now == dialed {
			restore = injectAtRandom()
		}
	})
}

// injectAtRandom makes one system call in 300 fail, until restore is called.
func injectAtRandom() (restore func()) {
	faults := maps.Clone(testnet.FatalFaults)
	faults[sys.OpGetsockname] = []syscall.Errno{unix.ENOBUFS}
	return testnet.InjectAtRandom(faults, 300)
}
