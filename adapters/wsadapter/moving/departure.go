package moving

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/wsadapter/internal/link"
	"github.com/percore/percore/handover"
)

// departure is a running HandOver of a Group. Conversations come to rest, are saved, sealed and given,
// in batches: moveState has the states of each. One goroutine uses it.
type departure struct {
	// immutable
	group *Group
	ctx   context.Context
	takes func(net.Conn) bool
	give  func(batch []handover.CarriedConn, more bool) error

	more bool // the last call of give said that others follow
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

// HandOver implements handover.Carrier.
func (c carrier) HandOver(ctx context.Context, takes func(net.Conn) bool, give func([]handover.CarriedConn, bool) error) error {
	d := &departure{group: c.group, ctx: ctx, takes: takes, give: give}
	c.group.leaving.Store(d)
	err := d.run()
	d.end(err)
	return err
}

// run moves conversations until none is left that can move.
func (d *departure) run() error {
	for begin := time.Now(); ; {
		all := d.group.members()
		for _, c := range all {
			c.poke(d)
		}
		if !d.waits() || time.Since(begin) >= quietTime {
			if err := d.giveResting(); err != nil {
				return err
			}
			if !d.waits() && len(d.resting()) == 0 {
				return nil
			}
		}
		select {
		case <-d.ctx.Done():
			return d.ctx.Err()
		case <-time.After(lookPause + time.Duration(len(all))*lookPerConn):
		}
	}
}

// waits reports whether a conversation may still come to rest.
func (d *departure) waits() bool {
	return slices.ContainsFunc(d.group.members(), func(c *conn) bool { return c.isIn(staying, saving) && c.why(d) == stays })
}

// resting returns the conversations that rest.
func (d *departure) resting() []*conn {
	return slices.DeleteFunc(d.group.members(), func(c *conn) bool { return !c.isIn(resting) })
}

// giveResting gives all conversations that rest.
func (d *departure) giveResting() error {
	for left := d.resting(); len(left) > 0; {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		n := min(len(left), handover.CarriedMax)
		saved := d.save(left[:n])
		left = left[n:]
		for len(saved) > 0 {
			var err error
			if saved, err = d.giveBatch(saved, len(left) > 0); err != nil {
				return err
			}
		}
		if len(left) == 0 {
			left = d.resting()
		}
	}
	if !d.more {
		return nil
	}
	d.more = false // the last batch was empty in the end
	return d.give(nil, false)
}

// giveBatch seals and gives as many of the saved conversations as a batch has room for, and returns the
// rest. others says that more are about to be saved.
func (d *departure) giveBatch(saved []*saveCall, others bool) (rest []*saveCall, err error) {
	var batch []handover.CarriedConn
	var sealed []*conn
	for bytes := 0; len(saved) > 0; saved = saved[1:] {
		s := saved[0]
		if bytes += len(s.packed); bytes > handover.CarriedBytesMax {
			break
		}
		if !s.conn.seal() {
			s.conn.resume(lookPause)
			continue
		}
		sealed = append(sealed, s.conn)
		batch = append(batch, handover.CarriedConn{Conn: s.conn.plain, State: s.packed})
	}
	if len(batch) == 0 {
		return saved, nil
	}
	more := others || len(d.resting()) > 0
	err = d.give(batch, more)
	for _, c := range sealed {
		c.unseal(err == nil)
	}
	d.more = err == nil && more
	return saved, err
}

// end resumes all conversations that rest, and counts those that stay.
func (d *departure) end(err error) {
	d.group.leaving.Store(nil)
	for _, c := range d.resting() {
		c.resume(0)
	}
	if err != nil && d.ctx.Err() == nil {
		return // the handover has failed: it is not about them
	}
	for _, c := range d.group.members() {
		c.count(c.why(d))
	}
}

// saveCall is a call of a Saver's Save.
type saveCall struct {
	conn    *conn
	settled atomic.Bool // it has returned, or was given up: the batch goes without it
	packed  []byte      // what goes to the other process; nil: nothing
}

// save calls Save for each conversation, and returns those that can be given. The others are resumed.
func (d *departure) save(batch []*conn) (saved []*saveCall) {
	came := make(chan *saveCall, len(batch))
	all := make([]*saveCall, len(batch))
	for i, c := range batch {
		c.setState(saving)
		c.wrote.Store(false)
		all[i] = &saveCall{conn: c}
		go all[i].run(came)
	}
	limit := time.After(saveTime)
	for left := len(batch); left > 0; {
		select {
		case s := <-came:
			left--
			if s.packed != nil {
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

// errPanicked is the result of a Save or a Restorer that doesn't return.
var errPanicked = errors.New("wsadapter: a panic")

// run calls Save.
func (s *saveCall) run(came chan<- *saveCall) {
	var state []byte
	err := errPanicked
	defer func() {
		if err == errPanicked {
			reason := link.Panicked(s.conn, recover())
			_ = s.conn.Close() // first: End may wait for a lock that Save has not unlocked
			s.conn.Leave()     // so that neither the move nor a shutdown waits for it
			s.conn.conversation.End(reason)
		}
		late := s.settled.Swap(true)
		s.pack(state, err, late)
		if !late {
			came <- s
		}
	}()
	state, err = s.conn.conversation.Session().(Saver).Save()
}

// pack makes what goes to the other process, or resumes the conversation.
func (s *saveCall) pack(state []byte, err error, late bool) {
	switch {
	case err == errPanicked:
		return
	case late, errors.Is(err, ErrNotNow):
		s.conn.resume(lookPause)
		return
	case err != nil:
		s.conn.refuse(bySave)
	case len(state) > StateMax:
		s.conn.refuse(byState)
	default:
		packed := encodeBaggage(s.conn.request, s.conn.agreed, state)
		if len(packed) <= handover.CarriedBytesMax {
			s.packed = packed
			s.conn.setState(resting)
			return
		}
		s.conn.refuse(byState)
	}
	s.conn.resume(0)
}
