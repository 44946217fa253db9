package main

import (
	"errors"
	"log"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/adapters/wsadapter/moving"
	"github.com/percore/percore/handover"
)

const (
	messageMax   = 4 << 10          // bytes of a member's message
	queueMax     = 256              // messages that wait for a member; the next one ends its membership
	writeTimeout = 10 * time.Second // for a member to take a message
)

// upgrader has a small buffer for reading, and one for writing only while a message is written.
var upgrader = websocket.Upgrader{ReadBufferSize: 256, WriteBufferPool: new(sync.Pool)}

// A hub passes messages on to the members of a room.
type hub struct {
	conns handover.Conns // of the members
	group *moving.Group  // of the same: to move them, or to tell them that the server stops

	mu    sync.Mutex
	rooms map[string]map[*member]struct{} // guarded by mu
}

func newHub() *hub {
	h := &hub{rooms: make(map[string]map[*member]struct{})}
	h.group = moving.NewGroup(&h.conns, "hub", h.enter)
	return h
}

// join serves a new member's request. It returns at once, and the connection continues on its own.
func (h *hub) join(w http.ResponseWriter, r *http.Request) {
	r.Header.Del("Cookie") // which enter doesn't need in the next process
	if err := h.enter(h.group.NewUpgrade(w, r), r, []byte(r.FormValue("room"))); err != nil {
		log.Print(err) // Upgrade has answered
	}
}

// enter makes a member of a new connection, or of one that this process's predecessor had, whose Save
// has returned the room.
func (h *hub) enter(up *wsadapter.Upgrade, r *http.Request, room []byte) error {
	ws, err := upgrader.Upgrade(up, r, nil)
	if err != nil {
		return err
	}
	ws.SetReadLimit(messageMax)
	m := &member{hub: h, ws: ws, room: string(room)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rooms[m.room] == nil {
		h.rooms[m.room] = make(map[*member]struct{})
	}
	h.rooms[m.room][m] = struct{}{}
	wsadapter.Start(up.Conn(), m)
	return nil
}

// A member is a connection of the hub. Read, Handle and End are its wsadapter.Session. With Save it
// moves to the next process when the server restarts.
type member struct {
	hub  *hub
	ws   *websocket.Conn
	room string

	mu    sync.Mutex
	queue []*websocket.PreparedMessage // guarded by mu; unless it is nil, a goroutine writes it
}

// Read returns the next message. The adapter calls it when there is something to read.
func (m *member) Read() ([]byte, error) {
	_, text, err := m.ws.ReadMessage()
	return text, err
}

// Handle sends a message to all members of the room, without waiting for them. It is in memory once.
func (m *member) Handle(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("not UTF-8") // browsers would close their connections
	}
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, text)
	if err != nil {
		return err
	}
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	for other := range m.hub.rooms[m.room] {
		other.send(message)
	}
	return nil
}

// Save returns what enter needs in the next process. Messages that wait for the member go first.
func (m *member) Save() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queue != nil {
		return nil, moving.ErrNotNow
	}
	return []byte(m.room), nil
}

// End is called when the member has left or moved, or when its connection was closed.
func (m *member) End(error) {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	delete(m.hub.rooms[m.room], m)
	if len(m.hub.rooms[m.room]) == 0 {
		delete(m.hub.rooms, m.room)
	}
}

// send queues a message. A goroutine writes it, which runs while messages wait. So a member that
// reads slowly delays no other member.
func (m *member) send(message *websocket.PreparedMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == queueMax {
		m.ws.Close()
		return
	}
	if m.queue == nil {
		go m.write()
	}
	m.queue = append(m.queue, message)
}

// write writes messages until the queue is empty or the connection fails.
func (m *member) write() {
	for {
		m.mu.Lock()
		if len(m.queue) == 0 {
			m.queue = nil
			m.mu.Unlock()
			return
		}
		message := m.queue[0]
		m.queue = m.queue[1:]
		m.mu.Unlock()
		m.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err := m.ws.WritePreparedMessage(message); err != nil {
			m.ws.Close()
			return
		}
	}
}
