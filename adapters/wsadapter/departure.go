package wsadapter

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/handover"
)

// departure is a running HandOver of a Group. Conversations come to rest, are saved, sealed and given,
// in batches: moveState has the states of each.
type departure struct {
	// immutable
	group *Group
	ctx   context.Context
	takes func(net.Conn) bool
	give  func(batch []handover.CarriedConn, more bool) error

	more bool // used by HandOver only: the last call of give said that others follow

	mu sync.Mutex

	// guarded by mu
	resting []*movable
	over    bool
}

const (
	// quietTime is how long the first conversations wait for the others, so that idle ones go together.
	quietTime = 250 * time.Millisecond

	// lookPause is the time between two looks at all conversations, if there are few of them: those that
	// could not be saved or sealed are tried again as often.
	lookPause   = 10 * time.Millisecond
	lookPerConn = 2 * time.Microsecond
)

// saveTime is how long the Saves of a batch may take. The others of the batch wait for them. Tests
// change it.
var saveTime = 2 * time.Second

// run moves conversations until none is left that can move.
func (d *departure) run() error {
	d.look()
	for begin := time.Now(); d.left() > 0 && time.Since(begin) < quietTime && d.pause(); {
		d.look()
	}
	for {
		if err := d.giveResting(); err != nil {
			return err
		}
		if d.left() == 0 && !d.hasResting() {
			return nil
		}
		if !d.pause() {
			return d.ctx.Err()
		}
		d.look()
	}
}

// pause waits until it is worth another look. It reports false if ctx has ended.
func (d *departure) pause() bool {
	pause := time.NewTimer(lookPause + time.Duration(d.group.len())*lookPerConn)
	defer pause.Stop()
	select {
	case <-d.ctx.Done():
		return false
	case <-pause.C:
	}
	return true
}

// look makes conversations that wait for the peer come to rest.
func (d *departure) look() {
	for _, m := range d.group.members() {
		m.poke(d)
	}
}

// left returns how many conversations may come to rest yet.
func (d *departure) left() (n int) {
	for _, m := range d.group.members() {
		m.mu.Lock()
		waits := m.state == staying || m.state == saving
		m.mu.Unlock()
		if waits && m.why(d) == stays {
			n++
		}
	}
	return n
}

// take takes a conversation that rests from now on. It reports false if it must not.
func (d *departure) take(m *movable) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.over || !m.mayRestLocked() {
		return false
	}
	m.state = resting
	d.resting = append(d.resting, m)
	return true
}

// next takes up to a batch of conversations that rest out of the list, for their Saves.
func (d *departure) next() []*movable {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(d.resting), handover.CarriedMax)
	batch := d.resting[:n:n]
	if d.resting = d.resting[n:]; len(d.resting) == 0 {
		d.resting = nil
	}
	return batch
}

func (d *departure) hasResting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.resting) > 0
}

// giveResting gives all conversations that rest.
func (d *departure) giveResting() error {
	for batch := d.next(); len(batch) > 0; batch = d.next() {
		if err := d.ctx.Err(); err != nil {
			d.putBack(batch)
			return err
		}
		saved := d.save(batch)
		for len(saved) > 0 {
			n := d.fit(saved)
			if err := d.giveBatch(saved[:n], n < len(saved) || d.hasResting()); err != nil {
				for _, s := range saved[n:] {
					s.m.resume(0)
				}
				return err
			}
			saved = saved[n:]
		}
	}
	if !d.more {
		return nil
	}
	d.more = false // the last batch was empty in the end
	return d.give(nil, false)
}

// putBack returns conversations to the list, from which end resumes them.
func (d *departure) putBack(batch []*movable) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resting = append(d.resting, batch...)
}

// fit returns how many of the saved conversations a batch has room for.
func (d *departure) fit(saved []*saveCall) (n int) {
	bytes := 0
	for _, s := range saved {
		if bytes += len(s.packed); bytes > handover.CarriedBytesMax {
			break
		}
		n++
	}
	return n
}

// giveBatch seals conversations and gives them.
func (d *departure) giveBatch(saved []*saveCall, more bool) (err error) {
	var batch []handover.CarriedConn
	var sealed []*movable
	given := false
	defer func() { // give may panic
		for _, m := range sealed {
			m.unseal(given)
		}
		if !given {
			d.putBack(sealed)
		}
	}()
	for _, s := range saved {
		if !s.m.seal(s.writes) {
			s.m.resume(lookPause)
			continue
		}
		sealed = append(sealed, s.m)
		batch = append(batch, handover.CarriedConn{Conn: s.m.plain, State: s.packed})
	}
	if len(batch) == 0 {
		return nil
	}
	err = d.give(batch, more)
	given = err == nil
	d.more = given && more
	return err
}

// end returns all conversations that were not given, and counts those that stay.
func (d *departure) end(err error) {
	d.group.leaving.Store(nil)
	d.mu.Lock()
	d.over = true
	left := d.resting
	d.resting = nil
	d.mu.Unlock()
	for _, m := range left {
		m.resume(0)
	}
	if err != nil && d.ctx.Err() == nil {
		return // the handover has failed: it is not about them
	}
	for _, m := range d.group.members() {
		m.count(m.why(d))
	}
}

// count counts a conversation that stays, once.
func (m *movable) count(why reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counted || m.state == moved || m.closed {
		return
	}
	m.counted = true
	if why == stays {
		why = busy
	}
	counters.stayed[why].Add(1)
}

// saveCall is a call of a Saver's Save.
type saveCall struct {
	m      *movable
	writes uint32 // when it began
	came   chan<- *saveCall

	settled atomic.Bool // it has returned, or was given up: the batch goes without it

	// immutable once it came
	state  []byte
	err    error
	packed []byte // what goes to the other process
}

// save calls Save for each conversation, and returns those that can be given. The others are resumed.
func (d *departure) save(batch []*movable) (saved []*saveCall) {
	came := make(chan *saveCall, len(batch))
	all := make([]*saveCall, len(batch))
	for i, m := range batch {
		m.mu.Lock()
		m.state = saving
		m.mu.Unlock()
		all[i] = &saveCall{m: m, writes: m.writes.Load(), came: came}
		sessionWorkers.Serve(all[i])
	}
	limit := time.After(saveTime)
	for left := len(batch); left > 0; {
		select {
		case s := <-came:
			left--
			if s.pack() {
				saved = append(saved, s)
			}
		case <-limit:
			for _, s := range all {
				if !s.settled.Swap(true) {
					left--
				}
			}
		}
	}
	return saved
}

// run calls Save.
func (s *saveCall) run() {
	s.state, s.err = s.m.member.saver().Save()
	s.finish()
}

// errPanicked is about a conversation that a panic has ended.
var errPanicked = errors.New("wsadapter: Save panicked")

// fail ends the conversation after a panic of its Save.
func (s *saveCall) fail(value any) {
	s.err = errPanicked
	defer s.finish()
	s.m.member.fail(value)
}

func (s *saveCall) finish() {
	switch {
	case !s.settled.Swap(true):
		s.came <- s
	case s.err != errPanicked:
		s.m.resume(lookPause)
	}
}

// pack makes what goes to the other process. It reports false if nothing does, and has resumed the
// conversation.
func (s *saveCall) pack() bool {
	switch {
	case s.err == errPanicked:
		return false
	case errors.Is(s.err, ErrNotNow):
		s.m.resume(lookPause)
		return false
	case s.err != nil:
		s.m.refuse(bySave)
		return false
	case len(s.state) > StateMax:
		s.m.refuse(byState)
		return false
	}
	s.packed = (&baggage{s.m.request, s.m.agreed, s.state}).encode()
	if len(s.packed) > handover.CarriedBytesMax {
		s.m.refuse(byState)
		return false
	}
	return true
}
