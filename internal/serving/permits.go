package serving

import (
	"runtime"
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// permits are the permits of handshakes to compute. As many compute at a time as there were processors
// when the server was made: more would not be done sooner, and the loops would wait behind all of them.
//
// While it computes, crypto/tls calls functions of the tls.Config, which may block: GetCertificate may
// ask another server. So a permit that is held for long while others wait is lent out: its handshake
// goes on, and another one begins.
//
//	handshake  in running  leaves by
//	resting    no          compute: computing, or waiting if max compute
//	waiting    no          another rests or lends: computing, in order
//	computing  yes         rest: resting; lend: lent
//	lent       no          rest: resting
//
// If a handshake is waiting, max are computing.
type permits struct {
	max int // immutable

	mu      sync.Mutex
	running map[*Handshake]int64 // and since when
	waiting []waitingHandshake
	timer   *time.Timer // lends; set while handshakes wait
	set     bool
}

// waitingHandshake is a handshake that waits, until begun is closed.
type waitingHandshake struct {
	*Handshake
	begun chan struct{}
}

// lendTime is how long a permit is held before it is lent out. A handshake computes for a millisecond
// or two, and for some more while the processors are busy.
const lendTime = 20 * time.Millisecond

func (p *permits) init() {
	p.max = runtime.GOMAXPROCS(0)
	p.running = make(map[*Handshake]int64)
}

// compute waits for h's permit.
func (p *permits) compute(h *Handshake) {
	p.mu.Lock()
	if h.ended {
		p.mu.Unlock()
		return
	}
	if len(p.running) < p.max {
		p.running[h] = monotime.Local()
		p.mu.Unlock()
		return
	}
	w := waitingHandshake{h, make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.lendSoonLocked()
	p.mu.Unlock()
	<-w.begun
}

// rest takes h's permit back.
func (p *permits) rest(h *Handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restLocked(h)
}

// end takes h's last permit back.
func (p *permits) end(h *Handshake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.ended = true
	p.restLocked(h)
}

func (p *permits) restLocked(h *Handshake) {
	delete(p.running, h)
	h.lentAt.Store(0)
	p.nextLocked()
}

// nextLocked gives the permits that are free.
func (p *permits) nextLocked() {
	for len(p.running) < p.max && len(p.waiting) > 0 {
		w := p.waiting[0]
		p.waiting[0] = waitingHandshake{}
		p.waiting = p.waiting[1:]
		if !w.ended {
			p.running[w.Handshake] = monotime.Local()
		}
		close(w.begun)
	}
	if len(p.waiting) == 0 {
		p.waiting = nil
	}
}

// lendSoonLocked makes lend run if handshakes wait.
func (p *permits) lendSoonLocked() {
	switch {
	case len(p.waiting) == 0 || p.set:
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(lendTime, p.lend)
	default:
		p.timer.Reset(lendTime)
	}
	p.set = true
}

// lend lends out the permits that have been held for long.
func (p *permits) lend() {
	now := monotime.Local()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = false
	for h, since := range p.running {
		if now-since >= int64(lendTime) && len(p.waiting) > 0 {
			delete(p.running, h)
			h.lentAt.Store(now)
			p.nextLocked()
		}
	}
	p.lendSoonLocked()
}
