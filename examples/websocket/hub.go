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
	"github.com/percore/percore/handover"
)

const (
	messageMax   = 4 << 10          // bytes of a member's message
	queueMax     = 256              // messages that wait for a member; the next one ends its membership
	writeTimeout = 10 * time.Second // for a member to take a message
)

// A hub passes messages on to the members of a room.
type hub struct {
	upgrader websocket.Upgrader // immutable
	conns    handover.Conns     // of the members
	group    *wsadapter.Group   // of the same: to move them, or to tell them that the server stops

	mu    sync.Mutex
	rooms map[string]map[*member]struct{} // guarded by mu; nil after close
}

func newHub() *hub {
	h := &hub{
		rooms: make(map[string]map[*member]struct{}),
		// Use a small buffer for reading, and a buffer for writing only while a message is written.
		upgrader: websocket.Upgrader{ReadBufferSize: 256, WriteBufferPool: new(sync.Pool)},
	}
	h.group = wsadapter.NewGroup(&h.conns, "hub", h.restore)
	return h
}

// join serves a new member's request. It returns at once, and the connection continues on its own.
func (h *hub) join(w http.ResponseWriter, r *http.Request) {
	room := r.FormValue("room")
	r.Header.Del("Cookie") // which restore doesn't need
	if err := h.enter(h.group.NewUpgrade(w, r), r, room); err != nil {
		log.Print(err) // Upgrade has answered
	}
}

// restore makes a member of the connection that this process's predecessor had.
func (h *hub) restore(up *wsadapter.Upgrade, r *http.Request, state []byte) error {
	return h.enter(up, r, string(state))
}

func (h *hub) enter(up *wsadapter.Upgrade, r *http.Request, room string) error {
	ws, err := h.upgrader.Upgrade(up, r, nil)
	if err != nil {
		return err
	}
	ws.SetReadLimit(messageMax)
	m := &member{hub: h, ws: ws, room: room}
	if !h.add(m) {
		ws.Close()
		return errors.New("the hub is closed")
	}
	wsadapter.Start(up.Conn(), m)
	return nil
}

// add reports false if the hub is closed.
func (h *hub) add(m *member) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rooms == nil {
		return false
	}
	if h.rooms[m.room] == nil {
		h.rooms[m.room] = make(map[*member]struct{})
	}
	h.rooms[m.room][m] = struct{}{}
	return true
}

func (h *hub) remove(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.rooms[m.room], m)
	if len(h.rooms[m.room]) == 0 {
		delete(h.rooms, m.room)
	}
}

// send sends a message to all members of a room, without waiting for them. The message is in memory
// once.
func (h *hub) send(room string, message *websocket.PreparedMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.rooms[room] {
		m.send(message)
	}
}

// close closes the connections of all members.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, members := range h.rooms {
		for m := range members {
			m.ws.Close() // this calls End
		}
	}
	h.rooms = nil
}

// A member is a connection of the hub. Read, Handle and End are its wsadapter.Session. With Save it
// moves to the next process when the server restarts.
type member struct {
	hub  *hub
	ws   *websocket.Conn
	room string

	mu      sync.Mutex
	queue   []*websocket.PreparedMessage // guarded by mu
	writing bool                         // guarded by mu: a goroutine writes the queue
}

// Read returns the next message. The adapter calls it when there is something to read.
func (m *member) Read() ([]byte, error) {
	_, text, err := m.ws.ReadMessage()
	return text, err
}

// Handle sends a message to all members of the room.
func (m *member) Handle(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("not UTF-8") // browsers would close their connections
	}
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, text)
	if err == nil {
		m.hub.send(m.room, message)
	}
	return err
}

// Save returns what restore needs in the next process. Messages that wait for the member go first.
func (m *member) Save() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writing {
		return nil, wsadapter.ErrNotNow
	}
	return []byte(m.room), nil
}

// End is called when the member has left or moved, or when its connection was closed.
func (m *member) End(error) { m.hub.remove(m) }

// send queues a message. A goroutine writes it, which runs while messages wait. So a member that
// reads slowly delays no other member.
func (m *member) send(message *websocket.PreparedMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == queueMax {
		m.ws.Close()
		return
	}
	m.queue = append(m.queue, message)
	if !m.writing {
		m.writing = true
		go m.write()
	}
}

// write writes messages until the queue is empty or the connection fails.
func (m *member) write() {
	for message := m.next(); message != nil; message = m.next() {
		m.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
		if err := m.ws.WritePreparedMessage(message); err != nil {
			m.ws.Close()
			return
		}
	}
}

// next takes a message out of the queue. If the queue is empty, it returns nil and ends the
// writing.
func (m *member) next() *websocket.PreparedMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		m.queue, m.writing = nil, false
		return nil
	}
	message := m.queue[0]
	m.queue = m.queue[1:]
	return message
}
