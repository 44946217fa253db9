package moving

import (
	"errors"
	"log"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
	"github.com/percore/percore/handover"
)

// restoresMax is how many Restorers run at a time, each on a goroutine, besides those that have taken
// too long.
const restoresMax = 64

// restoreTime is how long a Restorer may take. A batch that comes while restoresMax of them are slow
// waits that long, and the predecessor waits too. It gives up the whole handover after 10 seconds, so
// this must be well below that. Tests change it.
var restoreTime = 5 * time.Second

// refusalSpread is the time over which clients are told to connect again if their conversations could
// not go on: a new version of the program may refuse all at once. Tests change it.
var refusalSpread = 5 * time.Second

// arrivals are the conversations of a Group that come from another process:
//
//	step      ends by
//	waiting   fewer than restoresMax are in the next step
//	restoring the Restorer returns: held; or it fails, or takes too long: refused
//	held      all that belong together have been restored, or refused: it begins
//	refused   the peer was told to connect again
type arrivals struct {
	slots chan struct{} // has a token for each that is restored

	mu sync.Mutex

	// guarded by mu
	more      bool // others follow that belong together with these
	restoring int
	held      []link.Conversation
}

// takeOver takes over conversations. It blocks while restoresMax others are being restored.
func (g *Group) takeOver(batch []handover.CarriedConn, more bool) {
	in := &g.arrivals
	in.mu.Lock()
	in.more = more
	in.restoring += len(batch)
	in.mu.Unlock()
	for _, from := range batch {
		in.slots <- struct{}{}
		c := &conn{Conn: from.Conn, group: g}
		a := &arrival{conn: c, up: upgradeOf(&unheard{make(http.Header), from.Conn}, c)}
		a.limit = time.AfterFunc(restoreTime, a.expire)
		go a.run(from.State)
	}
	in.settle(0)
}

// settle notes that so many have been restored, and lets the held ones begin if all have.
func (in *arrivals) settle(restored int) {
	in.mu.Lock()
	in.restoring -= restored
	var begin []link.Conversation
	if !in.more && in.restoring == 0 {
		begin, in.held = in.held, nil
	}
	in.mu.Unlock()
	for _, v := range begin {
		v.Resume()
	}
}

// holdBack keeps a conversation that was restored until the others are. It reports false if they are.
func (in *arrivals) holdBack(v link.Conversation) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.more && in.restoring == 0 {
		return false
	}
	in.held = append(in.held, v)
	return true
}

// arrival is a conversation that is restored.
type arrival struct {
	conn  *conn
	up    *wsadapter.Upgrade // for the Restorer
	limit *time.Timer
	over  atomic.Bool // run or expire has claimed the result
}

// run restores the conversation.
func (a *arrival) run(packed []byte) {
	var err error
	returned := false
	defer func() {
		if !returned {
			err = link.Panicked(a.conn, recover())
		}
		a.limit.Stop()
		if !a.over.Swap(true) {
			a.settle(err)
		}
	}()
	err = a.restore(packed)
	returned = true
}

// restore replays the upgrade to the user's library.
func (a *arrival) restore(packed []byte) error {
	b, err := decodeBaggage(packed)
	if err != nil {
		return err
	}
	r, err := parseRequest(b.request, a.conn)
	if err != nil {
		return err
	}
	a.conn.request = b.request
	a.conn.shaking = handshakeOf(r)
	a.conn.shaking.had = &b.agreed
	if err := a.conn.group.restorer(a.up, r, b.state); err != nil {
		return err
	}
	return a.conn.wrongAnswer()
}

// settle ends the arrival.
func (a *arrival) settle(err error) {
	defer a.done()
	switch {
	case errors.Is(err, errAnswer), errors.Is(err, errBaggage):
		a.refuse(&counters.lostAnswer, err)
	case err != nil:
		a.refuse(&counters.lostRestorer, err)
	case !a.conn.isStarted():
		a.refuse(&counters.lostRestorer, errors.New("it has not called Start"))
	default:
		counters.restored.Add(1)
	}
}

// expire refuses the conversation of a Restorer that takes too long. If the Restorer calls Start
// later, the Session finds a closed connection.
func (a *arrival) expire() {
	if a.over.Swap(true) {
		return
	}
	defer a.done()
	counters.lostTime.Add(1)
	log.Printf("wsadapter: %v: a connection from the other process was not restored within %v", a.conn.RemoteAddr(), restoreTime)
	a.conn.accept()
	a.conn.sendAway()
	time.AfterFunc(time.Second, func() { _ = a.conn.Close() })
}

func (a *arrival) done() {
	in := &a.conn.group.arrivals
	<-in.slots
	in.settle(1)
}

// refuse makes the peer connect again.
func (a *arrival) refuse(counter *atomic.Uint64, err error) {
	counter.Add(1)
	log.Printf("wsadapter: %v: a connection from the other process is closed: %v", a.conn.RemoteAddr(), err)
	a.conn.accept()
	time.AfterFunc(rand.N(refusalSpread), func() {
		if !a.conn.isStarted() {
			c := a.up.Conn()
			if c == nil {
				c = wsadapter.New(a.conn)
			}
			wsadapter.Start(c, &farewell{c})
		}
		a.conn.sendAway()
	})
}

// farewell waits for the end of a connection whose peer was told to end it: a Session that reads below
// any library. If the connection was closed at once, with bytes unread, the kernel would reset it, and
// the peer might miss the message.
type farewell struct{ conn *wsadapter.Conn }

func (f *farewell) Read() (struct{}, error) {
	var buf [512]byte
	_, err := f.conn.Read(buf[:])
	return struct{}{}, err
}

func (f *farewell) Handle(struct{}) error { return nil }
func (f *farewell) End(error)             {}
