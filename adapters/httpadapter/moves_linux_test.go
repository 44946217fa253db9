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

// startMoving calls HandOver at random moments until stop is called. The connection may belong to
// another stage of s then.
func (s *side) startMoving(how moves) (stop func()) {
	switch how {
	case fails:
		return s.handOverAgain(func([]percore.WaitingConn) error {
			pauseAMoment()
			return errors.New("no successor")
		}, func() {})
	case leaves:
		other, moved := s.open(), false
		stop := s.handOverAgain(func(conns []percore.WaitingConn) error {
			pauseAMoment()
			if rand.IntN(3) == 0 {
				return errors.New("no successor")
			}
			s.expect(len(conns))
			err := adopt(other.ln, conns)
			if moved = err == nil; !moved {
				s.expect(-len(conns))
			}
			return err
		}, func() {
			if moved {
				testnet.Eventually(s.t, "the move", func() bool { return !s.moves() })
				s.stage, other, moved = other, s.stage, false
			}
		})
		return sync.OnceFunc(func() {
			stop()
			other.close()
		})
	}
	return func() {}
}

// expect notes that n connections of s are on their way to another stage.
func (s *side) expect(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onTheWay += n
}

// moves reports whether a connection is on its way.
func (s *side) moves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.onTheWay > 0
}

// handOverAgain calls HandOver, which gives up soon, and then after, again and again until stop is
// called.
func (s *side) handOverAgain(give func([]percore.WaitingConn) error, after func()) (stop func()) {
	ended, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			pauseAMoment()
			select {
			case <-ended:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
			_ = s.ours.HandOver(ctx, s.ln, give)
			cancel()
			after()
		}
	}()
	return sync.OnceFunc(func() {
		close(ended)
		<-done
	})
}

// pauseAMoment waits for about as long as it takes to park.
func pauseAMoment() { time.Sleep(rand.N(400 * time.Microsecond)) }
