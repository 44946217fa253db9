package main

import (
	"bytes"
	"sync"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/pool"
)

// chat is the rooms of all loops.
type chat struct {
	mu    sync.Mutex
	rooms []*room
}

// room is the connections of one loop. They are used on that loop only, so they need no lock.
type room struct {
	chat  *chat
	loop  *reactor.Loop // set with the first connection
	conns map[*reactor.Conn]bool
}

// room makes a loop's handler.
func (ch *chat) room(int) reactor.Handler {
	return &room{chat: ch, conns: make(map[*reactor.Conn]bool)}
}

// join makes a room known, whose first connection has come.
func (ch *chat) join(r *room) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.rooms = append(ch.rooms, r)
}

// say sends a text to all connections. Those of other loops get it when their loop comes to it: the
// lines of one sender stay in order, those of several may come in another order on another loop.
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

// tell sends a message to the room's connections, and gives its reference back.
func (r *room) tell(message *pool.Buffer) {
	defer message.Release()
	for c := range r.conns {
		c.WriteShared(message) // if it is refused the connection ends: the client doesn't read
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

// Data says all lines that are there whole at once.
func (r *room) Data(c *reactor.Conn, p []byte) (used int) {
	used = bytes.LastIndexByte(p, '\n') + 1
	if used > 0 {
		r.chat.say(p[:used])
	}
	return used
}
