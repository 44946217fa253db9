package main

import (
	"errors"
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

// A hub passes messages on to its members.
type hub struct {
	upgrader websocket.Upgrader // immutable
	conns    handover.Conns     // of the members, to tell them when the server stops

	mu      sync.Mutex
	members map[*member]struct{} // guarded by mu; nil after close
}

func newHub() *hub {
	return &hub{
		members: make(map[*member]struct{}),
		// Use a small buffer for reading, and a buffer for writing only while a message is written.
		upgrader: websocket.Upgrader{ReadBufferSize: 256, WriteBufferPool: new(sync.Pool)},
	}
}

// join serves a new member's request. It returns at once, and the connection continues on its own.
func (h *hub) join(w http.ResponseWriter, r *http.Request) {
	up := wsadapter.NewUpgrade(w)
	ws, err := h.upgrader.Upgrade(up, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	ws.SetReadLimit(messageMax)
	m := &member{hub: h, ws: ws}
	if !h.add(m) {
		ws.Close()
		return
	}
	m.remove = h.conns.Add(m.sendAway)
	wsadapter.Start(up.Conn(), m)
}

// add reports false if the hub is closed.
func (h *hub) add(m *member) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.members == nil {
		return false
	}
	h.members[m] = struct{}{}
	return true
}

func (h *hub) remove(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.members, m)
}

// send sends a message to all members, without waiting for them. The message is in memory once.
func (h *hub) send(message *websocket.PreparedMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.members {
		m.send(message)
	}
}

// close closes the connections of all members.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.members {
		m.ws.Close() // this calls End
	}
	h.members = nil
}

// A member is a connection of the hub. Read, Handle and End are its wsadapter.Session.
type member struct {
	hub    *hub
	ws     *websocket.Conn
	remove func() // from hub.conns

	mu      sync.Mutex
	queue   []*websocket.PreparedMessage // guarded by mu
	writing bool                         // guarded by mu: a goroutine writes the queue
}

// Read returns the next message. The adapter calls it when there is something to read.
func (m *member) Read() ([]byte, error) {
	_, text, err := m.ws.ReadMessage()
	return text, err
}

// Handle sends a message to all members.
func (m *member) Handle(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("not UTF-8") // browsers would close their connections
	}
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, text)
	if err == nil {
		m.hub.send(message)
	}
	return err
}

// End is called when the member has left, or when its connection was closed.
func (m *member) End(error) {
	m.hub.remove(m)
	m.remove()
}

// sendAway asks the member to connect again: the server is about to stop. The member's library
// answers, and Read fails.
func (m *member) sendAway() {
	text := websocket.FormatCloseMessage(websocket.CloseServiceRestart, "the server restarts")
	if m.ws.WriteControl(websocket.CloseMessage, text, time.Now().Add(writeTimeout)) != nil {
		m.ws.Close()
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
