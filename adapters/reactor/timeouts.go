package reactor

import (
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sys"
)

// Timeout is a time after which a connection is closed. A field of [Config] sets it for all
// connections of a server, [Conn.SetTimeout] for one. 0, the default, means never.
type Timeout struct {
	kind timeoutKind
	d    time.Duration
}

type timeoutKind uint8

const (
	onIdle timeoutKind = iota
	onReadIdle
	onWriteIdle
	onMessage
	onUnsent

	timeoutKinds = iota
	noTimeout    = timeoutKind(timeoutKinds)
)

// IdleTimeout closes connections on which no byte was read or written for that long. A byte is written
// when the socket takes it. While bytes wait for a slow peer, the socket may be tried only once in
// that time, so a peer that has taken some is closed after at most twice the time. Then each KiB that
// the peer's kernel has acknowledged, which it does before the program reads it, gives the peer a
// second more, up to four times the time: a peer that reads 1 KiB/s is not closed after a minute. The
// timeout doesn't count while functions of Go wait or run, during [Conn.Hold], and, unless bytes wait
// for the peer, during [Conn.Pause].
func IdleTimeout(d time.Duration) Timeout { return Timeout{onIdle, d} }

// ReadIdleTimeout closes connections on which no byte was read for that long, whatever is written. It
// doesn't count while functions of Go wait or run, during [Conn.Hold], and while the connection isn't
// read.
func ReadIdleTimeout(d time.Duration) Timeout { return Timeout{onReadIdle, d} }

// WriteIdleTimeout closes connections on which the socket has taken no byte for that long, whatever is
// read; as with IdleTimeout, later if the peer or its kernel has taken some. It doesn't count while
// functions of Go wait or run, and during [Conn.Hold].
func WriteIdleTimeout(d time.Duration) Timeout { return Timeout{onWriteIdle, d} }

// ReadTimeout closes connections on which Data has left bytes unused for that long: once a message has
// begun, it must be complete in that time.
func ReadTimeout(d time.Duration) Timeout { return Timeout{onMessage, d} }

// WriteTimeout closes connections on which a written byte waits in memory for longer, or at most twice
// as long, because the peer takes nothing or too little. It bounds how long a peer may hold the memory
// that WriteHardLimit allows: with 1 MiB waiting and a minute, a peer must take 17 KiB a second.
func WriteTimeout(d time.Duration) Timeout { return Timeout{onUnsent, d} }

// SetTimeout sets a timeout for this connection, in place of the server's. Its time begins with the
// call. It is for a keep-alive time that the client has chosen, or for the phases of a protocol. After
// the first call it allocates nothing, so it may be called for each message.
func (c *Conn) SetTimeout(t Timeout) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return
	}
	d := min(t.d, longestTimeout)
	if d <= 0 {
		d = longestTimeout // start and limitEnding leave it alone then
	}
	c.extrasLocked().times.limits[t.kind].Store(int64(d))
	c.asked.Or(askTimed | askRetime) // after extras are there: see touchRead
	c.loop.remind(c, false)
}

// longestTimeout never passes, and may be added to any time.
const longestTimeout time.Duration = math.MaxInt64 / 2

// timeouts are a connection's timeouts, if it has any. There is one timer, set for the timeout that
// comes first. When it fires it checks whether that has passed, so bytes that come and go need not move
// it. Times are those of monotime.
type timeouts struct {
	limits  [timeoutKinds]atomic.Int64 // durations; 0 for none
	readAt  atomic.Int64               // when a byte was last read
	wroteAt atomic.Int64               // when the socket last took one

	// guarded by the connection's mu
	markAt   int64 // when the mark was set, at the end of the backlog
	markLeft int   // bytes up to the mark that wait yet; 0 if there is none

	// owned by the loop
	heldAt     int64 // until when IdleTimeout and WriteIdleTimeout didn't, or don't, count
	readHeldAt int64 // the same for ReadIdleTimeout
	keptSince  int64 // when Data last used some of the bytes that are kept; 0 if none are kept
	partSince  int64 // when the part of a record came that the layer has; 0 if it has none
	timer      timer
	due        int64    // when the timer fires; 0 if it isn't set
	paid       sys.Sent // what the peer had acknowledged when payAcknowledged was last called
}

// clock is a Conn as what has timeouts.
type clock Conn

// start begins the server's timeouts, and those that SetTimeout has already set.
func (k *clock) start() {
	if limits := k.loop.server.config.timeouts(); limits != [timeoutKinds]time.Duration{} {
		k.mu.Lock()
		t := &(*Conn)(k).extrasLocked().times
		for kind, d := range limits {
			t.limits[kind].CompareAndSwap(0, int64(min(d, longestTimeout)))
		}
		k.asked.Or(askTimed)
		k.mu.Unlock()
	}
	if k.asked.Load()&askTimed != 0 {
		k.retime()
	}
}

func (k *clock) retime() {
	k.asked.And(^askRetime)
	t := &k.more.times
	t.heldAt = monotime.Now()
	t.readHeldAt = t.heldAt
	if k.unused != nil { // from before Attach, or ReadTimeout is new
		t.keptSince = t.heldAt
	}
	k.check()
}

// endingTime is how long a connection that is ending waits for a peer that takes nothing, if it has no
// timeout for that: about as long as the kernel does after close(2) (tcp(7), tcp_orphan_retries). It is
// a variable for tests.
var endingTime = time.Minute

// limitEnding gives a connection that is ending a timeout, if bytes wait for the peer: the handler has
// no say any more.
func (k *clock) limitEnding() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unsent == nil {
		return
	}
	t := &(*Conn)(k).extrasLocked().times
	if t.limits[onWriteIdle].Load() != 0 || t.limits[onUnsent].Load() != 0 {
		return
	}
	t.limits[onWriteIdle].Store(int64(endingTime))
	k.asked.Or(askTimed | askRetime)
	k.loop.remind((*Conn)(k), false)
}

func (k *clock) stop() {
	if k.asked.Load()&askTimed != 0 && k.more.times.timer != nil {
		k.more.times.timer.Stop()
	}
}

// touchRead notes that bytes were read, touchWritten that the socket has taken some, and tookLocked that
// n of these were of the backlog.
func (k *clock) touchRead() {
	if k.asked.Load()&askTimed != 0 {
		k.more.times.readAt.Store(monotime.Now())
	}
}

func (k *clock) touchWritten() {
	if k.asked.Load()&askTimed != 0 {
		k.more.times.wroteAt.Store(monotime.Now())
	}
}

func (k *clock) tookLocked(n int) {
	if k.asked.Load()&askTimed != 0 {
		t := &k.more.times
		t.markLeft = max(0, t.markLeft-n)
	}
}

// unsentSince returns since when a byte of the backlog has waited at least, or 0 if none waits. The
// bytes that it finds are the mark; later ones count once these are sent.
func (k *clock) unsentSince(now int64) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := &k.more.times
	switch {
	case k.unsent == nil:
		t.markLeft = 0
		return 0
	case t.markLeft == 0:
		t.markLeft, t.markAt = k.unsent.bytes, now
	}
	return t.markAt
}

// markKept notes that Data has used some bytes and left others, or that none are left.
func (k *clock) markKept() {
	if k.asked.Load()&askTimed == 0 || k.phase != open {
		return
	}
	t := &k.more.times
	if k.unused == nil {
		t.keptSince = 0
		return
	}
	t.keptSince = k.messageBegins()
}

// markPartial notes, after a read of the layer, whether that has a part of a record: ReadTimeout counts
// for the rest. got says that the read returned bytes.
func (k *clock) markPartial(got bool) {
	if k.asked.Load()&askTimed == 0 {
		return
	}
	t := &k.more.times
	switch {
	case k.more.layered.lower.in.isBetween():
		t.partSince = 0
	case got || t.partSince == 0:
		t.partSince = k.messageBegins()
	}
}

// messageBegins begins ReadTimeout's time, and returns the present one.
func (k *clock) messageBegins() (now int64) {
	now = monotime.Now()
	if d := k.more.times.limits[onMessage].Load(); d > 0 {
		k.set(now, now+d)
	}
	return now
}

// set makes the timer fire at a time, unless it is set for an earlier one.
func (k *clock) set(now, at int64) {
	t := &k.more.times
	if t.due != 0 && t.due <= at {
		return
	}
	t.due = at
	if d := time.Duration(max(0, at-now)); t.timer == nil {
		t.timer = k.loop.engine.AfterFunc(d, k.fired)
	} else {
		t.timer.Reset(d)
	}
}

func (k *clock) fired() {
	k.more.times.due = 0
	k.check()
}

// check ends the connection if a time has passed, and sets the timer again otherwise.
func (k *clock) check() {
	if k.hungUp || k.lingering || k.phase == closed || k.phase == hijacked {
		return
	}
	t := &k.more.times
	now := monotime.Now()
	k.hold(now)
	passed, next := k.passed(now)
	if passed.countsWrites() && k.pushUnsent() {
		now = monotime.Now()
		passed, next = k.passed(now)
		if passed == onIdle || passed == onWriteIdle {
			k.payAcknowledged(now, time.Duration(t.limits[passed].Load()))
			passed, next = k.passed(now)
		}
	}
	switch {
	case passed != noTimeout:
		op := "read"
		if passed == onWriteIdle || passed == onUnsent {
			op = "write"
		}
		(*Conn)(k).end(askClose, k.sock.opError(op, os.ErrDeadlineExceeded))
	case next < math.MaxInt64:
		k.set(now, next)
	}
}

// passed returns a timeout that has passed, or noTimeout and when the next one will have.
func (k *clock) passed(now int64) (passed timeoutKind, next int64) {
	t := &k.more.times
	read, wrote := t.readAt.Load(), t.wroteAt.Load()
	since := [timeoutKinds]int64{
		onIdle:      max(read, wrote, t.heldAt),
		onReadIdle:  max(read, t.readHeldAt),
		onWriteIdle: max(wrote, t.heldAt),
		onMessage:   t.keptSince,
	}
	if t.partSince != 0 && (t.keptSince == 0 || t.partSince < t.keptSince) {
		since[onMessage] = t.partSince
	}
	if t.limits[onUnsent].Load() > 0 {
		since[onUnsent] = k.unsentSince(now)
	}
	next = int64(math.MaxInt64)
	for kind := range since {
		d := t.limits[kind].Load()
		switch {
		case d == 0:
		case since[kind] == 0 && timeoutKind(kind) == onUnsent:
			next = min(next, now+d) // bytes may wait by then
		case since[kind] == 0:
		case now-since[kind] >= d:
			return timeoutKind(kind), 0
		default:
			next = min(next, since[kind]+d)
		}
	}
	return noTimeout, next
}

func (k timeoutKind) countsWrites() bool { return k == onIdle || k == onWriteIdle || k == onUnsent }

// payAcknowledged gives a peer that has taken nothing for a timeout more time, for what its kernel has
// acknowledged.
func (k *clock) payAcknowledged(now int64, timeout time.Duration) {
	t := &k.more.times
	sent := seam.Sent(k.sock.conn)
	begun := now - int64(timeout)
	t.heldAt = sent.Paid(t.paid, begun, begun, timeout)
	t.paid = sent
}

// pushUnsent tries the socket before a timeout counts, and reports whether bytes wait. The event that a
// full socket has room comes once a third of its buffer is free, megabytes often: a slow peer may have
// taken less in the time, and yet read all the while.
func (k *clock) pushUnsent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unsent == nil || k.sending {
		return false
	}
	k.blocked = false
	(*output)(k).flushLocked()
	return true
}

// hold restarts the timeouts that don't count now.
func (k *clock) hold(now int64) {
	t := &k.more.times
	asked := k.asked.Load()
	if asked&stopsReading != 0 { // the peer's bytes wait for us
		t.readHeldAt = now
		if t.keptSince != 0 {
			t.keptSince = now
		}
		if t.partSince != 0 {
			t.partSince = now
		}
		if asked&(askPause|askWalks) != 0 && (*output)(k).allSent() {
			t.heldAt = now
		}
	} else if t.keptSince != 0 && !k.offered {
		t.keptSince = now
	}
	if k.inputEnded {
		t.readHeldAt = now
	}
	if (*Conn)(k).isBusy() {
		t.heldAt, t.readHeldAt = now, now
	}
}

// Timer is a call of AfterFunc that is to come.
type Timer struct {
	// The first to set settled decides, the call or Stop. The engine's timer alone can't tell: between its
	// end and the call the function waits in the loop's queue.
	settled atomic.Bool
	timer   timer
}

// Stop prevents the call, and reports whether it did: false means that the function has been called,
// or was stopped before. It is safe for concurrent use. On a nil Timer it does nothing.
func (t *Timer) Stop() bool {
	if t == nil || t.settled.Swap(true) {
		return false
	}
	t.timer.Stop()
	return true
}

// AfterFunc runs f on the connection's loop once d has passed, a few milliseconds late at most,
// unless the connection is closed or hijacked by then. It does not wait. Until then c stays in memory,
// even when it has ended: stop a timer that is far off in Close, and before Hijack.
func (c *Conn) AfterFunc(d time.Duration, f func()) *Timer {
	if f == nil {
		panic("reactor: AfterFunc was called with a nil function")
	}
	t := new(Timer)
	t.timer = c.loop.engine.AfterFunc(d, func() {
		if c.hungUp || c.lingering || c.phase != open && c.phase != ending || t.settled.Swap(true) {
			return
		}
		c.loop.begin()
		c.enter()
		c.call("AfterFunc", f)
		c.leave()
	})
	return t
}
