//go:build !percore_net

package handover

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestGiveUpAnyTime: when either process gives up, at whatever moment, each connection is one's or
// the other's, and works there.
func TestGiveUpAnyTime(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	var tally [3]int // of the rounds: nothing moved, a part, everything
	for i := range rounds {
		t.Run(strconv.Itoa(i), func(t *testing.T) { tally[giveUpOnce(t)]++ })
	}
	t.Logf("nothing had moved %d times, a part %d times, everything %d times", tally[0], tally[1], tally[2])
}

func giveUpOnce(t *testing.T) int {
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 16)
	p.source.batch = 1 + rand.IntN(3)
	giving, taking := pair(t)
	giveCtx, endGive := context.WithCancel(t.Context())
	readyCtx, endReady := context.WithCancel(t.Context())
	defer endGive()
	defer endReady()
	gave := goGive(giveCtx, giving, p.server("web"))
	a, ln := mustTake(t, taking)
	fakeOf(ln).SetUnlinkOnClose(false)
	var ending sync.WaitGroup
	pause, end := time.Duration(rand.IntN(int(4*time.Millisecond))), endReady
	crashes := false
	switch rand.IntN(4) {
	case 0:
		end = endGive
	case 1:
		crashes, end = true, func() { giving.Close() } // as if the process had ended
	case 2:
		old := stepNanoseconds.Load()
		defer stepNanoseconds.Store(old)
		end = func() { stepNanoseconds.Store(int64(time.Microsecond)) } // each takes the other for hung, soon
	}
	ending.Go(func() {
		time.Sleep(pause)
		end()
	})
	readyErr := a.ready(readyCtx, nil)
	gaveErr := testnet.Receive(t, "give", gave)
	ending.Wait()

	f := fakeOf(ln)
	left, moved := p.source.conns, f.adopted
	if len(left)+len(moved) != len(p.clients) {
		t.Fatalf("got %d connections here and %d there, want %d together; give: %v, ready: %v",
			len(left), len(moved), len(p.clients), gaveErr, readyErr)
	}
	goesOn := readyErr == nil || errors.Is(readyErr, errGone)
	if goesOn == (gaveErr != nil) && !crashes {
		t.Errorf("the successor goes on: %t (%v), and so does the predecessor: %t (%v)", goesOn, readyErr, gaveErr != nil, gaveErr)
	}
	if got, want := f.UnlinkOnClose(), goesOn; got != want {
		t.Errorf("the successor removes the file: got %t, want %t; ready: %v", got, want, readyErr)
	}
	for i := range moved {
		talk(t, p.clients[i], &moved[i])
	}
	for i, c := range left {
		exchange(t, p.clients[len(moved)+i], c.Conn)
	}
	switch {
	case len(moved) == 0:
		return 0
	case len(left) > 0:
		return 1
	}
	return 2
}
