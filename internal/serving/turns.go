package serving

import (
	"runtime"
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// turns are the turns of handshakes to compute. As many compute at a time as there were processors when
// the server was made: more would not be done sooner, and the loops would wait behind all of them.
//
// While it computes, crypto/tls calls functions of the tls.Config, which may block: GetCertificate may
// ask another server. So a turn that lasts for long while others wait is lent out: its handshake goes
// on, and another one begins.
//
//	handshake  in running  leaves by
//	resting    no          compute: computing, or waiting if max compute
//	waiting    no          another rests or lends: computing, in order
//	computing  yes         rest: resting; lend: lent
//	lent       no          rest: resting
//
// If a handshake is waiting, max are computing.
type turns struct {
	max int // immutable

	mu      sync.Mutex
	running map[*Handshake]int64 // and since when
	waiting []waitingTurn
	timer   *time.Timer // lends; set while handshakes wait
	set     bool
}

// waitingTurn is a handshake that waits, until begun is closed.
type waitingTurn struct {
	*Handshake
	begun chan struct{}
}

// lendTime is how long a turn lasts before it is lent out. A handshake computes for a millisecond
// or two, and for some more while the processors are busy.
const lendTime = 20 * time.Millisecond

func (t *turns) init() {
	t.max = runtime.GOMAXPROCS(0)
	t.running = make(map[*Handshake]int64)
}

// compute waits for h's turn.
func (t *turns) compute(h *Handshake) {
	t.mu.Lock()
	if h.ended {
		t.mu.Unlock()
		return
	}
	if len(t.running) < t.max {
		t.running[h] = monotime.Local()
		t.mu.Unlock()
		return
	}
	w := waitingTurn{h, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.lendSoonLocked()
	t.mu.Unlock()
	<-w.begun
}

// rest ends h's turn.
func (t *turns) rest(h *Handshake) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restLocked(h)
}

// end ends h's last turn.
func (t *turns) end(h *Handshake) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.ended = true
	t.restLocked(h)
}

func (t *turns) restLocked(h *Handshake) {
	delete(t.running, h)
	h.lentAt.Store(0)
	t.nextLocked()
}

// nextLocked begins the turns that may begin.
func (t *turns) nextLocked() {
	for len(t.running) < t.max && len(t.waiting) > 0 {
		w := t.waiting[0]
		t.waiting[0] = waitingTurn{}
		t.waiting = t.waiting[1:]
		if !w.ended {
			t.running[w.Handshake] = monotime.Local()
		}
		close(w.begun)
	}
	if len(t.waiting) == 0 {
		t.waiting = nil
	}
}

// lendSoonLocked makes lend run if handshakes wait.
func (t *turns) lendSoonLocked() {
	switch {
	case len(t.waiting) == 0 || t.set:
		return
	case t.timer == nil:
		t.timer = time.AfterFunc(lendTime, t.lend)
	default:
		t.timer.Reset(lendTime)
	}
	t.set = true
}

// lend lends out the turns that have lasted for long.
func (t *turns) lend() {
	now := monotime.Local()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set = false
	for h, since := range t.running {
		if now-since >= int64(lendTime) && len(t.waiting) > 0 {
			delete(t.running, h)
			h.lentAt.Store(now)
			t.nextLocked()
		}
	}
	t.lendSoonLocked()
}
