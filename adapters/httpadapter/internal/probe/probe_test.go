package probe

import (
	"errors"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/percore/percore/internal/testnet"
)

func TestNetHTTP(t *testing.T) {
	testnet.NoLeaks(t)
	if way, err := playScripts(); err != nil {
		t.Errorf("the calls of net/http (%s) are not those that parking relies on: %v", runtime.Version(), err)
	} else {
		t.Logf("net/http (%s) waits in the way %d", runtime.Version(), way)
	}
}

// In a synctest bubble its goroutines belong to the bubble.
func TestInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := playScripts(); err != nil {
			t.Error(err)
		}
	})
}

// If net/http doesn't make a call, nothing hangs forever.
func TestMissingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScriptConn(silentScript, silentScript.alternatives(limits{}, nil))
		c.told(http.StateNew)
		c.await()
		c.end()
		if want := `after "new" came "nothing", and not "Read"`; c.err() == nil || c.err().Error() != want {
			t.Errorf("got %v, want %s", c.err(), want)
		}
		if n, err := c.Read(make([]byte, ReadBytes)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read afterwards: got %d, %v, want net.ErrClosed", n, err)
		}
	})
}

func BenchmarkNetHTTP(b *testing.B) {
	for b.Loop() {
		if _, err := playScripts(); err != nil {
			b.Fatal(err)
		}
	}
}
