package wsadapter

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore/internal/testnet"
)

// sweepByHand has connections linger until the test sweeps, and begin to however slow the machine is.
func sweepByHand(t *testing.T) {
	statsAtRest(t) // others would read the pause
	setPause := func(pause time.Duration) {
		testnet.Eventually(t, "the connections that linger being swept", func() bool {
			lingerers.sweep()
			lingerers.mu.Lock()
			defer lingerers.mu.Unlock()
			if lingerers.set {
				return false
			}
			lingerers.pause = pause
			return true
		})
	}
	setPause(time.Hour)
	t.Cleanup(func() { setPause(sweepPause) })
}

// sweepUntilIdle sweeps until the conversation doesn't linger any more.
func (t *talk) sweepUntilIdle() {
	t.Helper()
	testnet.Eventually(t, "the linger's end", func() bool {
		lingerers.sweep()
		return ReadStats() == t.idle()
	})
}

// TestLinger: a conversation whose messages follow each other isn't armed between them, and one that
// has gone quiet is.
func TestLinger(t *testing.T) {
	sweepByHand(t)
	onEachWay(t, func(t *talk) {
		before := counters.woken.Load()
		exchange := func(woken uint64) {
			t.Helper()
			t.send(frame("one"), ping(), frame("two"))
			t.want("one", "two")
			t.wantPong()
			if got := counters.woken.Load() - before; t.armable && got != woken {
				t.Errorf("got %d wake-ups, want %d", got, woken)
			}
		}
		t.start().awaitIdle()
		for range 5 {
			exchange(1)
		}
		t.sweepUntilIdle()
		exchange(2) // has lingered without a message, so it is armed at once
		t.awaitIdle()
		for range 5 {
			exchange(3)
		}
		t.sweepUntilIdle()
		t.client.Close()
		t.wantEnd(io.EOF)
	})
}

// TestSeldom: a conversation that was armed for long doesn't linger.
func TestSeldom(t *testing.T) {
	c := &Conn{since: milliseconds() - uint16(2*sweepPause.Milliseconds())}
	if c.woken(); c.linger != noLinger {
		t.Errorf("got the state %d, want %d", c.linger, noLinger)
	}
}

// TestSweeps: no message is lost, and no read fails, at whatever moment a linger is ended.
func TestSweeps(t *testing.T) {
	sweepByHand(t)
	onEachWay(t, func(t *talk) {
		messages := 1000
		if testing.Short() {
			messages = 100
		}
		var sweeps sync.WaitGroup
		stop := make(chan struct{})
		sweeps.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					lingerers.sweep()
					runtime.Gosched()
				}
			}
		})
		t.start()
		for i := range messages {
			text := fmt.Sprint("message ", i)
			f := frame(text)
			cut := rand.IntN(len(f) + 1)
			t.send(f[:cut])
			for range rand.IntN(20) {
				runtime.Gosched()
			}
			t.send(f[cut:])
			t.want(text)
		}
		close(stop)
		sweeps.Wait()
		t.client.Close()
		t.wantEnd(io.EOF)
	})
}

// TestConnSize: what a connection that waits takes is no more than it has to be.
func TestConnSize(t *testing.T) {
	const most = 64
	if size := unsafe.Sizeof(Conn{}); strconv.IntSize == 64 && size > most {
		t.Errorf("a Conn has %d bytes, want %d at most", size, most)
	}
}
