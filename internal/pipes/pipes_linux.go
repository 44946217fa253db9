package pipes

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/sys"
)

const (
	// capacityBytes is the capacity that new pipes request: the default of /proc/sys/fs/pipe-max-size,
	// which is the most that one call of splice can move. Package net requests the same.
	capacityBytes = 1 << 20

	// capacityBytesMin is the smallest useful capacity, the kernel's default. An unprivileged user
	// who has many pipes gets two pages (pipe(7), "/proc/sys/fs/pipe-user-pages-soft"). With those,
	// copying is faster.
	capacityBytesMin = 64 << 10

	// openMax limits the pipes that are open at once, including those of transfers that wait for
	// their destination: 1024 descriptors, and in the worst case a megabyte of kernel memory each.
	// Beyond that, transfers copy.
	openMax = 512

	// idleMax limits the pipes that are open and unused. A transfer has a pipe only while bytes are
	// under way, so this is enough for as many transfers as run at the same instant.
	idleMax = 32

	// trimPause is how long a pipe may be unused before it is closed; it may take up to twice as long.
	trimPause = 10 * time.Second
)

// errOpenMax says that no pipe is available because openMax are open.
var errOpenMax = errors.New("too many pipes are in use")

// A Pipe is what bytes are spliced through. The caller of Get owns it until it puts it back. Both
// ends are non-blocking and close-on-exec.
type Pipe struct {
	R, W     int
	Capacity int // in bytes, if the pages that they come in are full
	Buffered int // bytes in it, which the owner must count: bytes put in minus bytes taken out
}

// pool lends pipes, the one used last first, and keeps pipes that come back empty for a while.
type pool struct {
	pause time.Duration // immutable; between two trims

	mu sync.Mutex

	// guarded by mu
	idle  []*Pipe // the one used last is the last
	open  int     // idle and lent
	low   int     // the fewest that were idle since the last trim, so they were not needed
	timed bool    // a timer will call trim: from a put outside a bubble until trim finds no idle pipe
}

var pipes = pool{pause: trimPause}

// Get returns an empty pipe.
func Get() (*Pipe, error) { return pipes.get() }

// Put takes a pipe back. It closes a pipe that may not be empty, because the next owner would
// deliver the bytes in it as its own.
func Put(p *Pipe) { pipes.put(p) }

// Drain closes the pipes that are idle.
func Drain() { pipes.drain() }

// Count returns how many pipes are open, and how many of them are unused.
func Count() (open, idle int) { return pipes.count() }

func (pp *pool) count() (open, idle int) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	return pp.open, len(pp.idle)
}

func (pp *pool) get() (*Pipe, error) {
	pp.mu.Lock()
	if n := len(pp.idle); n > 0 {
		p := pp.idle[n-1]
		pp.idle = pp.idle[:n-1]
		pp.low = min(pp.low, n-1)
		pp.mu.Unlock()
		return p, nil
	}
	if pp.open == openMax {
		pp.mu.Unlock()
		return nil, errOpenMax
	}
	pp.open++
	pp.mu.Unlock()
	p, err := newPipe()
	if err != nil {
		pp.mu.Lock()
		pp.open--
		pp.mu.Unlock()
	}
	return p, err
}

func (pp *pool) put(p *Pipe) {
	p.mustBeAsEmptyAsItSays()
	pp.mu.Lock()
	if p.Buffered == 0 && len(pp.idle) < idleMax {
		pp.idle = append(pp.idle, p)
		if !pp.timed && !monotime.InBubble() { // in a bubble of testing/synctest the timer would follow its clock
			pp.timed = true
			time.AfterFunc(pp.pause, pp.trim)
		}
		pp.mu.Unlock()
		return
	}
	pp.open--
	pp.mu.Unlock()
	p.close()
}

// trim closes the pipes that were not needed since its last call.
func (pp *pool) trim() {
	pp.mu.Lock()
	unneeded := pp.takeLocked(pp.low)
	pp.low = len(pp.idle)
	if pp.timed = pp.low > 0; pp.timed {
		time.AfterFunc(pp.pause, pp.trim)
	}
	pp.mu.Unlock()
	closeAll(unneeded)
}

func (pp *pool) drain() {
	pp.mu.Lock()
	idle := pp.takeLocked(len(pp.idle))
	pp.low = 0
	pp.mu.Unlock()
	closeAll(idle)
}

// takeLocked takes n idle pipes out of the pool, the longest unused first.
func (pp *pool) takeLocked(n int) []*Pipe {
	taken := append([]*Pipe(nil), pp.idle[:n]...)
	rest := copy(pp.idle, pp.idle[n:])
	clear(pp.idle[rest:])
	pp.idle = pp.idle[:rest]
	pp.open -= n
	return taken
}

func closeAll(closing []*Pipe) {
	for _, p := range closing {
		p.close()
	}
}

func newPipe() (*Pipe, error) {
	r, w, errno := sys.Pipe2()
	if errno != 0 {
		return nil, errno
	}
	p := &Pipe{R: r, W: w}
	p.Capacity, errno = sys.SetPipeSize(r, capacityBytes)
	if errno == 0 && p.Capacity < capacityBytesMin {
		errno = syscall.EPERM // the kernel's answer to a request for more
	}
	if errno != 0 {
		p.close()
		return nil, errno
	}
	return p, nil
}

func (p *Pipe) close() {
	sys.Close(p.R)
	sys.Close(p.W)
}
