package loop

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/sys"
)

// epoll is an epoll instance that the Go runtime's poller, itself an epoll, watches: a goroutine can
// wait for it without holding a thread.
type epoll struct {
	fd   int
	file *os.File        // fd as the runtime knows it; owns it
	raw  syscall.RawConn // file's
}

func newEpoll() (epoll, error) {
	fd, errno := sys.EpollCreate1()
	if errno != 0 {
		return epoll{}, fmt.Errorf("loop: can't make an epoll instance: %w", os.NewSyscallError("epoll_create1", errno))
	}
	// os.NewFile hands a descriptor to the runtime's poller only if it is in non-blocking mode, which
	// has no other meaning for an epoll descriptor.
	if errno = sys.SetNonblock(fd, true); errno != 0 {
		sys.Close(fd)
		return epoll{}, fmt.Errorf("loop: can't set an epoll instance non-blocking: %w", os.NewSyscallError("fcntl", errno))
	}
	e := epoll{fd: fd, file: os.NewFile(uintptr(fd), "percore-epoll")}
	err := e.file.SetReadDeadline(time.Time{}) // fails if the runtime did not take it
	if err == nil {
		e.raw, err = e.file.SyscallConn()
	}
	if err != nil {
		e.file.Close()
		return epoll{}, fmt.Errorf("loop: the Go runtime's poller did not take an epoll descriptor: %w", err)
	}
	return e, nil
}

func (e *epoll) ctl(op, fd int, events uint32, t token) syscall.Errno {
	// The 64 bits of user data are a token, never a pointer: the garbage
	// collector doesn't see the kernel's memory.
	ev := unix.EpollEvent{Events: events, Fd: int32(t.slot), Pad: int32(t.gen)}
	return sys.EpollCtl(e.fd, op, fd, &ev)
}

// addLevel registers fd, level-triggered, for reading.
func (e *epoll) addLevel(fd int, t token) syscall.Errno {
	return e.ctl(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN, t)
}

// one takes a single event without waiting; the readiness is 0 if there is no event. Level-triggered
// descriptors that stay ready take turns.
func (e *epoll) one() (token, Readiness) {
	var ev [1]unix.EpollEvent
	for {
		n, errno := sys.EpollPwait(e.fd, ev[:], false)
		switch {
		case errno == syscall.EINTR:
			continue
		case n == 0:
			return token{}, 0
		}
		return tokenOf(&ev[0]), readiness(ev[0].Events)
	}
}

// tokenOf returns the token that ctl put into an event.
func tokenOf(ev *unix.EpollEvent) token {
	return token{slot: uint32(ev.Fd), gen: uint32(ev.Pad)}
}

// poller is a loop's epoll and the eventfd that interrupts it. Only the goroutine that polls the loop
// in its turn calls poll and the wait functions; other methods may be called from anywhere.
type poller struct {
	epoll
	wakefd int

	// owned by the goroutine that polls
	blocked bool // the next poll sleeps until there is an event

	slept [2]unix.PollFd // of sleep; owned by the worker that waits directly
}

// eventArray is where a poll puts its events.
type eventArray struct {
	events []unix.EpollEvent
	grow   bool // the last poll filled the array
}

// The event array starts small, since most wake-ups bring a few events, and
// doubles when it comes back full. 1024 events are 12 KiB and spread the cost
// of an epoll_pwait and of the table's lock over as many events as matters.
const (
	eventsMin = 32
	eventsMax = 1024
)

// interest is the set of events that every descriptor is registered for, once. Room to write is
// added when a write first has to wait for it: registered from the start, EPOLLOUT would be an
// event for every new connection, since it is ready at once, and one for each time that the
// peer on a unix socket reads.
//
// EPOLLRDHUP reports a peer's FIN, after which reads must not wait for another edge. EPOLLPRI
// reports TCP urgent data: a read stops short at the urgent mark, so that a short read no longer
// means that everything was read.
const interest = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET

// wakeToken is the eventfd's. No slot has it: a table of 2^32 slots is out of reach.
var wakeToken = token{slot: ^uint32(0), gen: ^uint32(0)}

func newPoller() (*poller, error) {
	e, err := newEpoll()
	if err != nil {
		return nil, err
	}
	p := &poller{epoll: e, wakefd: -1}
	if err := p.init(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) init() error {
	var errno syscall.Errno
	if p.wakefd, errno = sys.Eventfd(); errno != 0 {
		return fmt.Errorf("loop: can't make an eventfd: %w", os.NewSyscallError("eventfd2", errno))
	}
	// Level-triggered: a guest that finds it does not take it away. Tasks belong to the loop's
	// goroutine.
	if errno = p.addLevel(p.wakefd, wakeToken); errno != 0 {
		return fmt.Errorf("loop: can't watch the eventfd: %w", os.NewSyscallError("epoll_ctl", errno))
	}
	return nil
}

func (p *poller) close() {
	p.file.Close()
	if p.wakefd >= 0 {
		sys.Close(p.wakefd)
	}
}

// waitNested calls pass now and each time the runtime's poller reports events, until pass reports
// true. In between the caller is parked. pass is called before each wait, since the runtime forgets
// earlier events when a wait starts.
func (p *poller) waitNested(pass func(uintptr) (done bool)) {
	for {
		err := p.raw.Read(pass)
		if err == nil {
			return
		}
		if err != os.ErrDeadlineExceeded {
			// Only close closes the file, after this.
			panic("loop: the runtime's poller gave up on an epoll descriptor: " + err.Error())
		}
		// kick. Its cause happened before: pass finds it.
		_ = p.file.SetReadDeadline(time.Time{})
		if pass(0) {
			return
		}
	}
}

// kick makes waitNested call pass once more. It makes no system call.
func (p *poller) kick() { _ = p.file.SetReadDeadline(monotime.LongAgo) }

// waitBlocking calls pass, whose first poll sleeps in epoll_pwait.
func (p *poller) waitBlocking(pass func(uintptr) (done bool)) {
	p.blocked = true
	pass(0)
}

// poll takes as many events as there are and fit into the array. It returns how many, and whether the
// array was full: then there may be more, and the array is larger the next time.
func (p *poller) poll(a *eventArray) (n int, full bool) {
	n, full, ok := a.take(p.fd, p.blocked)
	if !ok {
		return 0, true // a signal: look again
	}
	p.blocked = false
	return n, full
}

// glance is poll for a guest.
func (p *poller) glance(a *eventArray) (n int) {
	n, _, _ = a.take(p.fd, false)
	return n
}

// linger is glance for a guest that waits for an event, for at most lingerTime, and keeps its
// processor while it waits. Any error counts as no event: a signal (such as the garbage collector's,
// which then need not wait for the guest), or a kernel before Linux 5.11, which doesn't have the call.
func (p *poller) linger(a *eventArray) (n int) {
	n, errno := sys.EpollPwait2(p.fd, a.room(), int(lingerTime))
	if errno != 0 {
		return 0
	}
	a.grow = n == len(a.events)
	return n
}

// take makes the system call of a poll. ok is false if a signal came first.
func (a *eventArray) take(epfd int, block bool) (n int, full, ok bool) {
	n, errno := sys.EpollPwait(epfd, a.room(), block)
	if errno == syscall.EINTR {
		return 0, false, false
	}
	if errno != 0 {
		// EBADF, EFAULT and EINVAL (epoll_wait(2)) would be our own mistakes.
		panic("loop: epoll_pwait: " + errno.Error())
	}
	full = n == len(a.events)
	a.grow = full
	return n, full, true
}

// room returns the array for the next poll. It is larger if the last one filled it.
func (a *eventArray) room() []unix.EpollEvent {
	switch {
	case a.events == nil:
		a.events = make([]unix.EpollEvent, eventsMin)
	case a.grow && len(a.events) < eventsMax:
		a.events = make([]unix.EpollEvent, 2*len(a.events))
	}
	a.grow = false
	return a.events
}

// event returns the i-th polled event: its token and its readiness.
func (a *eventArray) event(i int) (token, Readiness) {
	ev := &a.events[i]
	return tokenOf(ev), readiness(ev.Events)
}

// readiness translates epoll's bits. Reading and writing both find an error (EPOLLERR), whichever the
// connection does next. EPOLLHUP says that both directions are shut down.
func readiness(events uint32) (r Readiness) {
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR|unix.EPOLLPRI) != 0 {
		r |= Readable
	}
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		r |= Writable
	}
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 {
		r |= Hangup
	}
	if events&unix.EPOLLPRI != 0 {
		r |= Urgent
	}
	return r
}

// add registers fd, edge-triggered, for all events that concern reading.
func (p *poller) add(fd int, t token) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_ADD, fd, interest, t)
}

// change changes the events of fd to those that concern reading, or to others below. The kernel checks
// the descriptor again, so its present readiness counts as an edge.
func (p *poller) change(fd int, t token, to uint32) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_MOD, fd, to, t)
}

const (
	toReads  = interest
	toWrites = interest | unix.EPOLLOUT // and reads
	toMasked = unix.EPOLLET             // errors and hang-ups only
)

// sleep blocks its thread until fd has an event, which it returns, or the loop was woken by wake, or
// directTime has passed. again says that a signal came first.
func (p *poller) sleep(fd int) (r Readiness, again bool) {
	p.slept = [...]unix.PollFd{
		{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP | unix.POLLPRI},
		{Fd: int32(p.wakefd), Events: unix.POLLIN},
	}
	if errno := sys.Poll(p.slept[:], int(directTime)); errno != 0 {
		return 0, errno == syscall.EINTR
	}
	return readiness(uint32(p.slept[0].Revents)), false // the bits of poll are those of epoll
}

// closeIsExpensive says that close(2) of a registered descriptor takes a lock of the whole machine
// (fs/eventpoll.c, epmutex; not since Linux 6.4). Removing the descriptor first avoids that.
var closeIsExpensive = sys.KernelBefore(6, 4)

// del removes fd where closing it doesn't do that, or is expensive.
func (p *poller) del(fd int) { p.ctl(unix.EPOLL_CTL_DEL, fd, 0, token{}) }

// wake makes a waiting loop pass.
func (p *poller) wake() { sys.Notify(p.wakefd) }

// awake ends wake, for the loop's goroutine, which looks at its tasks next.
func (p *poller) awake() { sys.Unnotify(p.wakefd) }

// pinThread ties the calling thread to one of the processors that the process may run on: the
// index-th, going round. The loop runs even if that fails.
func pinThread(index int) {
	var may unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil || may.Count() == 0 {
		return
	}
	nth := index % may.Count()
	for cpu := 0; ; cpu++ {
		if !may.IsSet(cpu) {
			continue
		}
		if nth == 0 {
			var one unix.CPUSet
			one.Set(cpu)
			_ = unix.SchedSetaffinity(0, &one)
			return
		}
		nth--
	}
}
