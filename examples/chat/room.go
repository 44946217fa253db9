package main

import (
	"bytes"
	"sync"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/pool"
)

// chat holds the rooms of all loops.
type chat struct {
	mu    sync.Mutex
	rooms []*room
}

// room holds the connections of one loop. They are used only on that loop, so they need no lock.
type room struct {
	chat  *chat
	loop  *reactor.Loop // set with the first connection
	conns map[*reactor.Conn]bool
}

// room makes a loop's handler.
func (ch *chat) room(int) reactor.Handler {
	return &room{chat: ch, conns: make(map[*reactor.Conn]bool)}
}

// join adds a room to the chat. Its first connection has just come.
func (ch *chat) join(r *room) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.rooms = append(ch.rooms, r)
}

// say sends a text to all connections. Connections of other loops get it when their loop runs the
// call. The lines of one sender stay in order; lines of different senders may arrive in a different
// order on another loop.
func (ch *chat) say(text []byte) {
	message := pool.Get(len(text))
	defer message.Release()
	copy(message.Bytes(), text)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, r := range ch.rooms {
		message.Retain() // for the room
		r.loop.Submit(func() { r.tell(message) })
	}
}

// tell sends a message to the room's connections, and releases its reference.
func (r *room) tell(message *pool.Buffer) {
	defer message.Release()
	for c := range r.conns {
		c.WriteShared(message) // if this fails, the connection ends: the client doesn't read
	}
}

func (r *room) Open(c *reactor.Conn) {
	if r.loop == nil {
		r.loop = c.Loop()
		r.chat.join(r)
	}
	r.conns[c] = true
}

func (r *room) Close(c *reactor.Conn, err error) { delete(r.conns, c) }

// Data sends all lines that have arrived completely, in one message.
func (r *room) Data(c *reactor.Conn, p []byte) (used int) {
	used = bytes.LastIndexByte(p, '\n') + 1
	if used > 0 {
		r.chat.say(p[:used])
	}
	return used
}
