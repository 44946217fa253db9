package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// recentMax is how many messages of a room are in memory. A member that gets further behind than
// this loses its connection; it may come back, and gets the rest from JetStream.
const recentMax = 512

var errClosed = errors.New("the server stops")

// A message is one that the stream has. Its id is its sequence number in the stream, so ids grow
// in a room, with gaps where other rooms' messages are.
type message struct {
	id       uint64
	prepared *websocket.PreparedMessage // in memory once for all members
}

// A room passes on the messages of one subject of the stream. It has the last of them in
// memory, and each member knows which one it was sent last: there are no queues.
//
//	... in JetStream only ... | base+1 ... recent ... position
type room struct {
	hub   *hub
	name  string
	users int // guarded by hub.mu: members, and those about to be

	mu          sync.Mutex
	members     map[*member]struct{}       // guarded by mu
	recent      []message                  // guarded by mu: all those with base < id <= position
	base        uint64                     // guarded by mu
	position    uint64                     // guarded by mu
	reports     map[string]report          // guarded by mu: who is here, by process
	present     *websocket.PreparedMessage // guarded by mu: the same, as members get it; nil at first
	presentText string                     // guarded by mu: its text
}

// newRoom returns a room that gets the messages after position.
func newRoom(h *hub, name string, position uint64) *room {
	return &room{
		hub:      h,
		name:     name,
		members:  make(map[*member]struct{}),
		base:     position,
		position: position,
		reports:  make(map[string]report),
	}
}

// receive passes on the room's next message.
func (r *room) receive(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) == recentMax {
		r.base = r.recent[0].id
		r.recent = r.recent[1:] // append moves the rest when the array is full
	}
	r.recent = append(r.recent, m)
	r.position = m.id
	for m := range r.members {
		m.wake()
	}
}

// body is a message in the stream, and as members get it.
type body struct {
	ID   uint64 `json:"id,omitempty"`
	From string `json:"from"`
	Text string `json:"text"`
}

func newMessage(id uint64, data []byte) (message, error) {
	var b body
	if err := json.Unmarshal(data, &b); err != nil {
		return message{}, err
	}
	b.ID = id
	prepared, err := prepare(b)
	return message{id, prepared}, err
}

// prepare returns v as a WebSocket message.
func prepare(v any) (*websocket.PreparedMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return websocket.NewPreparedMessage(websocket.TextMessage, text)
}

// add makes m a member. It gets the messages after the one that it has, or from now on.
func (r *room) add(m *member, after uint64, resume bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.after, m.position = r.position, r.position
	if resume {
		// Another process may have sent it a message that has not come here yet.
		m.after, m.position = after, after
	}
	m.replays = m.position < r.base
	r.members[m] = struct{}{}
	m.start()
}

func (r *room) remove(m *member) {
	r.mu.Lock()
	delete(r.members, m)
	r.mu.Unlock()
	r.hub.leave(r)
}

func (r *room) list() []*member {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*member, 0, len(r.members))
	for m := range r.members {
		list = append(list, m)
	}
	return list
}

// since returns the messages after position, at most max; and base, if position lies before it:
// then the room has no longer all of them in memory.
func (r *room) since(position uint64, max int) (messages []message, base uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position < r.base {
		return nil, r.base
	}
	i := len(r.recent)
	for i > 0 && r.recent[i-1].id > position {
		i--
	}
	return r.recent[i:min(len(r.recent), i+max):len(r.recent)], 0
}

// ping has the members be pinged whose turn it is, some with each tick.
func (r *room) ping(now time.Time) {
	for _, m := range r.list() {
		if now.After(m.pingAt) {
			m.pingAt = now.Add(pingEvery + rand.N(tick))
			m.mu.Lock()
			m.ping = true
			m.mu.Unlock()
			m.wake()
		}
	}
}
