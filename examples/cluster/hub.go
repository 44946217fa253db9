package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/percore/percore/adapters/wsadapter"
)

const (
	messageMax = 4 << 10     // bytes of a member's message
	nameMax    = 40          // bytes of a member's name
	tick       = time.Second // between two reports of presence
)

// roomName is what a room may be called: one token of a NATS subject.
var roomName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// A hub has the rooms of a process' members. A room is there while it has members.
type hub struct {
	backbone *backbone          // immutable
	upgrader websocket.Upgrader // immutable
	process  string             // names this process among the others

	ctx     context.Context    // ends with close
	stop    context.CancelFunc // ends ctx
	running sync.WaitGroup     // the goroutines of newHub

	mu       sync.Mutex
	rooms    map[string]*room // guarded by mu
	position uint64           // guarded by mu: the last message of the stream that has come
	closed   bool             // guarded by mu
}

// newHub returns a hub that hears what is said from now on.
func newHub(b *backbone) (*hub, error) {
	h := &hub{
		backbone: b,
		process:  strconv.FormatUint(rand.Uint64(), 36),
		rooms:    make(map[string]*room),
		// Use a small buffer for reading, and a buffer for writing only while a message is written.
		upgrader: websocket.Upgrader{ReadBufferSize: 256, WriteBufferPool: new(sync.Pool)},
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	f, err := newFeed(h)
	if err != nil {
		return nil, err
	}
	h.running.Go(f.run)
	h.running.Go(h.reportPresence)
	return h, nil
}

// join serves a new member's request. It returns at once, and the connection continues on its own.
// The parameters are
//
//	room    the room's name
//	name    how the others see the member
//	member  a secret of the member's: it tells messages that come twice
//	after   the id of the last message that the member has; without it, the member gets what
//	        is said from now on
func (h *hub) join(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name, secret := query.Get("name"), query.Get("member")
	if !roomName.MatchString(query.Get("room")) || name == "" || len(name) > nameMax || len(secret) < 16 {
		http.Error(w, "room, name and member (at least 16 characters) are required", http.StatusBadRequest)
		return
	}
	after, err := strconv.ParseUint(query.Get("after"), 10, 64)
	if err != nil && query.Has("after") {
		http.Error(w, "after must be the id of a message", http.StatusBadRequest)
		return
	}
	in, err := h.enter(query.Get("room"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	up := wsadapter.NewUpgrade(w)
	ws, err := h.upgrader.Upgrade(up, r, nil)
	if err != nil {
		h.leave(in) // Upgrade has answered
		return
	}
	ws.SetReadLimit(messageMax)
	sum := sha256.Sum256([]byte(secret))
	m := &member{room: in, ws: ws, name: name, secret: hex.EncodeToString(sum[:16])}
	ws.SetPongHandler(m.alive)
	in.add(m, after, query.Has("after"))
	wsadapter.Start(up.Conn(), m)
}

// enter returns the room, and counts a member in it. Each call that succeeds needs a call of leave.
func (h *hub) enter(name string) (*room, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errClosed
	}
	r := h.rooms[name]
	if r == nil {
		r = newRoom(h, name, h.position)
		h.rooms[name] = r
	}
	r.users++
	return r, nil
}

// leave ends the room if this was its last member.
func (h *hub) leave(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.users--
	if r.users == 0 {
		delete(h.rooms, r.name)
	}
}

// receive passes on the stream's next message.
func (h *hub) receive(roomName string, m message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.position = m.id
	if r := h.rooms[roomName]; r != nil {
		r.receive(m)
	}
}

// close tells all members to go elsewhere, spread over d, and lets no others in.
func (h *hub) close(d time.Duration) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.closed = true
	var members []*member
	for _, r := range h.rooms {
		members = append(members, r.list()...)
	}
	h.mu.Unlock()
	for i, m := range members {
		h.running.Go(func() { m.close(websocket.CloseServiceRestart, "the server stops") })
		if i < len(members)-1 {
			time.Sleep(d / time.Duration(len(members)))
		}
	}
	h.stop()
	h.running.Wait()
}
