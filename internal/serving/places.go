package serving

import (
	"cmp"
	"slices"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// enter makes h wait to begin.
func (s *Handshakes) enter(h *Handshake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	peer := s.peers[h.peer]
	if peer == nil {
		peer = &shakingPeer{queued: true}
		s.peers[h.peer] = peer
		s.fresh = append(s.fresh, peer)
	}
	peer.waiting = append(peer.waiting, h)
	s.waiting++
	s.queueLocked(peer)
	s.dispatchLocked()
}

// leave gives h's permit and place to others.
func (s *Handshakes) leave(h *Handshake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, h)
	if s.running[h] {
		s.ageLocked(h)
		delete(s.running, h)
		peer := s.peers[h.peer]
		peer.running--
		if peer.running+len(peer.waiting) == 0 {
			delete(s.peers, h.peer)
		}
	}
	s.restLocked(h)
}

// resume gives h a permit, or returns what is closed when it has one.
func (s *Handshakes) resume(h *Handshake) (permit <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.rests = false
	switch {
	case !s.all[h]: // it has left
		return nil
	case s.computing < s.permits: // and none waits
		s.permitLocked(h)
		return nil
	}
	r := resuming{h, make(chan struct{})}
	s.resuming = append(s.resuming, r)
	return r.permit
}

// restLocked takes h's permit back, if it has one.
func (s *Handshakes) restLocked(h *Handshake) {
	if h.permit != nil {
		h.permit.Stop()
		h.permit = nil
		s.computing--
	}
	s.dispatchLocked()
}

func (s *Handshakes) permitLocked(h *Handshake) {
	if h.permit != nil {
		return // two of its goroutines resume, one that reads and one that writes
	}
	s.computing++
	var permit *time.Timer
	permit = time.AfterFunc(permitTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.permit == permit {
			s.restLocked(h)
		}
	})
	h.permit = permit
}

// queueLocked puts a peer that may have a place, and needs one, in the queue.
func (s *Handshakes) queueLocked(peer *shakingPeer) {
	if !peer.queued && len(peer.waiting) > 0 && peer.young < s.share {
		peer.queued = true
		s.queue = append(s.queue, peer)
	}
}

// dispatchLocked gives out the permits that are free.
func (s *Handshakes) dispatchLocked() {
	for s.computing < s.permits {
		switch {
		case len(s.resuming) > 0:
			r := takeFirst(&s.resuming)
			s.permitLocked(r.Handshake)
			close(r.permit)
		case len(s.fresh)+len(s.queue) > 0 && s.young < s.youngMax && len(s.running) < s.max:
			s.beginLocked()
		default:
			s.sweepSoonLocked()
			return
		}
	}
}

// beginLocked begins the next handshake: in turn the peer's that has come last, which would wait behind
// thousands otherwise, and that of the one that has waited for longest.
func (s *Handshakes) beginLocked() {
	var peer *shakingPeer
	if last := len(s.fresh) - 1; last >= 0 && (len(s.queue) == 0 || s.begun%2 == 0) {
		peer, s.fresh[last] = s.fresh[last], nil
		s.fresh = s.fresh[:last]
	} else {
		peer = takeFirst(&s.queue)
	}
	s.begun++
	h := takeFirst(&peer.waiting)
	s.waiting--
	s.running[h], h.young, h.begun = true, true, monotime.Local()
	s.young++
	peer.running++
	peer.young++
	peer.queued = false
	s.queueLocked(peer)
	s.permitLocked(h)
	go h.run()
}

// ageLocked makes room for a younger handshake, if h was young.
func (s *Handshakes) ageLocked(h *Handshake) {
	if h.young {
		h.young = false
		s.young--
		peer := s.peers[h.peer]
		peer.young--
		s.queueLocked(peer)
	}
}

// takeFirst takes the first element out of a queue.
func takeFirst[T any](queue *[]T) (first T) {
	first, (*queue)[0] = (*queue)[0], first
	if *queue = (*queue)[1:]; len(*queue) == 0 {
		*queue = nil
	}
	return first
}

// sweepSoonLocked makes sweep run if handshakes wait, which is for a place where it is called.
func (s *Handshakes) sweepSoonLocked() {
	if s.waiting > 0 && !s.sweeping {
		s.sweeping = true
		time.AfterFunc(sweepTime, s.sweep)
	}
}

// sweep makes room for handshakes that wait for a place. It gives up as many as wait at most, and they
// keep their places until their goroutines know.
func (s *Handshakes) sweep() {
	s.mu.Lock()
	s.sweeping = false
	stalled := s.stalledLocked()
	s.dispatchLocked()
	s.mu.Unlock()
	for _, h := range stalled {
		h.giveUp()
	}
}

// stalledLocked ends the youth of those that have been under way for long, and returns those of them
// that are to be given up.
func (s *Handshakes) stalledLocked() (stalled []*Handshake) {
	now, long := monotime.Local(), int64(s.youngTimeLocked())
	for h := range s.running {
		if now-h.begun < long {
			continue
		}
		if s.ageLocked(h); h.rests && !h.over.Load() {
			stalled = append(stalled, h)
		}
	}
	if len(s.running) < s.max {
		return nil
	}
	slices.SortFunc(stalled, func(a, b *Handshake) int {
		return cmp.Or(cmp.Compare(s.peers[b.peer].running, s.peers[a.peer].running), cmp.Compare(a.begun, b.begun))
	})
	return stalled[:min(len(stalled), s.waiting)]
}

// youngTimeLocked returns how long a handshake is young now. With twice as many handshakes as there are
// places for young ones it is half as long: so more places change hands when more clients stop.
func (s *Handshakes) youngTimeLocked() time.Duration {
	return max(youngTime/4, youngTime*time.Duration(s.youngMax)/time.Duration(s.youngMax+s.waiting))
}
