package wsadapter

import (
	"bufio"
	"errors"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

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
	held      []runner
}

// takeOver takes over conversations. It blocks while restoresMax others are being restored.
func (g *Group) takeOver(batch []handover.CarriedConn, more bool) {
	in := &g.arrivals
	in.mu.Lock()
	in.more = more
	in.restoring += len(batch)
	in.mu.Unlock()
	for _, c := range batch {
		in.slots <- struct{}{}
		a := &arrival{group: g, from: c}
		a.limit = time.AfterFunc(restoreTime, a.expire)
		sessionWorkers.Serve(a)
	}
	in.settle(0)
}

// settle notes that so many have been restored, and lets the held ones begin if all have.
func (in *arrivals) settle(restored int) {
	in.mu.Lock()
	in.restoring -= restored
	var begin []runner
	if !in.more && in.restoring == 0 {
		begin, in.held = in.held, nil
	}
	in.mu.Unlock()
	for _, v := range begin {
		sessionWorkers.Serve(v)
	}
}

// holdBack keeps a conversation that was restored until the others are. It reports false if they are.
func (in *arrivals) holdBack(v runner) bool {
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
	group *Group
	from  handover.CarriedConn
	limit *time.Timer
	conn  atomic.Pointer[Conn] // for expire
	over  atomic.Bool          // run, fail or expire has claimed the result
}

// run restores the conversation.
func (a *arrival) run() {
	c, err := a.restore()
	a.limit.Stop()
	if a.over.Swap(true) {
		return
	}
	defer a.done()
	switch {
	case errors.Is(err, errAnswer), errors.Is(err, errBaggage):
		a.refuse(c, &counters.lostAnswer, err)
	case err != nil:
		a.refuse(c, &counters.lostRestorer, err)
	case !c.isStarted():
		a.refuse(c, &counters.lostRestorer, errors.New("it has not called Start"))
	default:
		counters.restored.Add(1)
	}
}

// restore replays the upgrade to the user's library.
func (a *arrival) restore() (c *Conn, err error) {
	c = New(a.from.Conn)
	m := a.group.newMovable(c, nil, nil)
	m.arrived = true
	a.conn.Store(c)
	b, err := decodeBaggage(a.from.State)
	if err != nil {
		return c, err
	}
	r, err := parseRequest(b.request, c)
	if err != nil {
		return c, err
	}
	m.request = b.request
	shaking := &handshake{key: r.Header.Get("Sec-WebSocket-Key"), swallow: &b.agreed}
	m.shaking = shaking
	up := &Upgrade{ResponseWriter: &unheard{header: make(http.Header)}, group: a.group, shaking: shaking, arrived: c}
	err = a.group.restorer(up, r, b.state)
	if err == nil && up.answerErr != nil {
		err = up.answerErr
	}
	return c, err
}

// fail refuses the conversation after a panic of the Restorer.
func (a *arrival) fail(value any) {
	a.limit.Stop()
	c := a.conn.Load()
	logPanic(c, value)
	if a.over.Swap(true) {
		return
	}
	defer a.done()
	a.refuse(c, &counters.lostRestorer, panicError(value))
}

// expire refuses the conversation of a Restorer that takes too long. If the Restorer calls Start
// later, the Session finds a closed connection.
func (a *arrival) expire() {
	if a.over.Swap(true) {
		return
	}
	defer a.done()
	counters.lostTime.Add(1)
	log.Printf("wsadapter: %v: a connection from the other process was not restored within %v", a.from.Conn.RemoteAddr(), restoreTime)
	if c := a.conn.Load(); c != nil {
		c.move().accept()
		c.move().sendAway()
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		return
	}
	_ = a.from.Conn.Close() // no worker has begun
}

func (a *arrival) done() {
	<-a.group.arrivals.slots
	a.group.arrivals.settle(1)
}

// refuse makes the peer connect again.
func (a *arrival) refuse(c *Conn, counter *atomic.Uint64, err error) {
	counter.Add(1)
	log.Printf("wsadapter: %v: a connection from the other process is closed: %v", c.RemoteAddr(), err)
	c.move().accept()
	time.AfterFunc(rand.N(refusalSpread), func() {
		if !c.isStarted() {
			Start(c, &farewell{c})
		}
		c.move().sendAway()
	})
}

// farewell waits for the end of a connection whose peer was told to end it: a Session that reads below
// any library. If the connection was closed at once, with bytes unread, the kernel would reset it, and
// the peer might miss the message.
type farewell struct{ conn *Conn }

func (f *farewell) Read() (struct{}, error) {
	var buf [512]byte
	_, err := f.conn.Read(buf[:])
	return struct{}{}, err
}

func (f *farewell) Handle(struct{}) error { return nil }
func (f *farewell) End(error)             {}

// hijackArrived is Hijack for a connection that comes from another process.
func (u *Upgrade) hijackArrived() (net.Conn, *bufio.ReadWriter, error) {
	if u.answerErr != nil {
		return nil, nil, u.answerErr
	}
	c := u.arrived
	if u.answered {
		c.move().settled(u.shaking.agreed)
	}
	u.conn = c
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// unheard is an http.ResponseWriter whose client has had the answer already.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(int)             {}
