//go:build !percore_net

package httpadapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// startMoving calls HandOver at random moments, if pf's way includes moving, until stop is called.
// After that, s is the server that has the connection.
func (pf *performance) startMoving(s *stage) (stop func()) {
	switch pf.way {
	case staying:
		return pf.repeat(func() {
			_ = handOverSoon(s, func([]percore.WaitingConn) error {
				pf.pause()
				return errors.New("no successor")
			})
		})
	case moving:
		other := pf.open()
		moves := 0
		stop := pf.repeat(func() {
			moved := false
			_ = handOverSoon(s, func(conns []percore.WaitingConn) error {
				pf.pause()
				if rand.IntN(3) == 0 {
					return errors.New("no successor")
				}
				moved = true
				return adopt(other.ln, conns)
			})
			if moved {
				moves++
				testnet.Eventually(pf.t, "the move; "+pf.p.String(), func() bool {
					pf.mu.Lock()
					defer pf.mu.Unlock()
					return len(pf.conns) == 1+moves
				})
				*s, *other = *other, *s
			}
		})
		return sync.OnceFunc(func() {
			stop()
			other.close()
		})
	}
	return func() {}
}

// repeat calls do at random moments until stop is called.
func (pf *performance) repeat(do func()) (stop func()) {
	ended, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			pf.pause()
			select {
			case <-ended:
				return
			default:
				do()
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(ended)
		<-done
	})
}

// pause waits for about as long as it takes to park.
func (pf *performance) pause() {
	time.Sleep(time.Duration(pauses[rand.IntN(len(pauses))] * float64(200*time.Microsecond)))
}

// handOverSoon calls HandOver and gives up soon.
func handOverSoon(s *stage, give func([]percore.WaitingConn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
	defer cancel()
	return s.server.(*Server).HandOver(ctx, s.ln, give)
}
