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
//	restoring the Restorer returns: held; or it fails, or takes too long: dismissed
//	held      all that belong together have been restored, or dismissed: it begins
//	dismissed the peer is told to connect again
type arrivals struct {
	slots chan struct{} // has a token for each that is restored

	mu sync.Mutex

	// guarded by mu
	more      bool // others follow that belong together with these
	restoring int
	held      []link.Conversation
}

// TakeOver implements handover.Carrier. It blocks while restoresMax others are being restored.
func (c carrier) TakeOver(batch []handover.CarriedConn, more bool) {
	in := &c.group.arrivals
	in.mu.Lock()
	in.more = more
	in.restoring += len(batch)
	in.mu.Unlock()
	for _, from := range batch {
		in.slots <- struct{}{}
		a := &arrival{conn: &conn{Conn: from.Conn, group: c.group}}
		time.AfterFunc(restoreTime, func() { a.settle(errSlow) })
		go a.run(from.State)
	}
	in.settle(0)
}

// settle notes that some have been restored. When all have, those that are held begin.
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

// arrival is a conversation on its way from waiting to held or dismissed.
type arrival struct {
	conn    *conn
	settled atomic.Bool
}

// run restores the conversation.
func (a *arrival) run(packed []byte) {
	err := errPanicked
	defer func() {
		if err == errPanicked {
			err = link.Panicked(a.conn, recover())
		}
		a.settle(err)
	}()
	err = a.restore(packed)
}

// restore replays the upgrade to the user's library.
func (a *arrival) restore(packed []byte) error {
	b, err := decodeBaggage(packed)
	if err != nil {
		return err
	}
	r, err := parseRequest(b.Request, a.conn)
	if err != nil {
		return err
	}
	a.conn.request = b.Request
	a.conn.shaking = &handshake{had: &agreement{string(b.Accept), string(b.Protocol), string(b.Extensions)}}
	up := wsadapter.NewUpgrade(&unheard{make(http.Header), a.conn})
	if err := a.conn.group.restorer(up, r, b.State); err != nil {
		return err
	}
	return a.conn.wrongAnswer()
}

// errSlow is about a Restorer that takes too long. If it calls Start later, the Session is told to end,
// or finds a closed connection.
var errSlow = errors.New("the Restorer takes too long")

// settle ends the arrival, unless that was done before. If the conversation can't go on, its peer is
// told to connect again.
func (a *arrival) settle(err error) {
	if a.settled.Swap(true) {
		return
	}
	in := &a.conn.group.arrivals
	defer in.settle(1)
	defer func() { <-in.slots }()
	lost := &counters.lostRestorer
	switch {
	case errors.Is(err, errAnswer):
		lost = &counters.lostAnswer
	case err == errSlow:
		lost = &counters.lostTime
	case err == nil && !a.conn.isIn(arriving):
		counters.restored.Add(1)
		return
	case err == nil:
		err = errors.New("the Restorer has not called Start")
	}
	lost.Add(1)
	log.Printf("wsadapter: %v: a connection from the other process is closed: %v", a.conn.RemoteAddr(), err)
	time.AfterFunc(rand.N(refusalSpread), a.dismiss)
}

// dismiss tells the peer to connect again. If the connection was closed at once, with bytes unread, the
// kernel would reset it, and the peer might miss the message.
func (a *arrival) dismiss() {
	a.conn.accept()
	a.conn.sendAway()
	time.AfterFunc(time.Second, func() { _ = a.conn.Close() })
}
