package main

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/pool"
)

// chat holds the rooms of all loops.
type chat struct {
	patience time.Duration // how long a client may take to read what waits for it

	mu    sync.Mutex
	rooms []*room // that have members; guarded by mu
}

// room holds the members on one loop. They are used only on that loop, so they need no lock.
type room struct {
	chat    *chat
	loop    *reactor.Loop
	members map[*member]bool
}

// member is a connection, and its context.
type member struct {
	conn  *reactor.Conn
	queue []*message     // messages that wait until it has read most of those before
	timer *reactor.Timer // runs while there are any
}

// message is the lines that came from a client together. It isn't read until each member has them, or
// they wait in its socket. So a client that writes faster than the others read is held up, and there is
// one message of each client in memory.
type message struct {
	text *pool.Buffer
	from *reactor.Conn
	rest atomic.Int64 // rooms and members that don't have it yet
}

// unsentMax is how many bytes may wait for a member before the next message does, in its queue.
const unsentMax = 64 << 10

func (ch *chat) room(int) reactor.Handler {
	return &room{chat: ch, members: make(map[*member]bool)}
}

func (r *room) Open(c *reactor.Conn) {
	m := &member{conn: c}
	c.SetUser(m)
	r.members[m] = true
	if len(r.members) == 1 {
		r.chat.join(r, c.Loop())
	}
}

func (r *room) Close(c *reactor.Conn, err error) {
	m := c.User().(*member)
	m.timer.Stop()
	for _, msg := range m.queue {
		msg.done()
	}
	delete(r.members, m)
	if len(r.members) == 0 {
		r.chat.leave(r)
	}
}

// Data sends all lines that have arrived completely, in one message.
func (r *room) Data(c *reactor.Conn, p []byte) (used int) {
	used = bytes.LastIndexByte(p, '\n') + 1
	if used > 0 {
		r.chat.say(c, p[:used])
	}
	return used
}

// Writable goes on with a member's queue: it has read most of what was sent.
func (r *room) Writable(c *reactor.Conn) {
	m := c.User().(*member)
	m.timer.Stop()
	for len(m.queue) > 0 && c.Unsent() <= unsentMax { // if it is more, Writable comes again
		c.WriteShared(m.queue[0].text)
		m.queue[0].done()
		m.queue = m.queue[1:]
	}
	if len(m.queue) > 0 {
		m.timer = c.AfterFunc(r.chat.patience, func() { c.Abort() })
	} else {
		m.queue = nil
	}
}

func (r *room) tell(msg *message) {
	for m := range r.members {
		if len(m.queue) == 0 {
			if m.conn.Unsent() <= unsentMax {
				m.conn.WriteShared(msg.text)
				continue
			}
			m.timer = m.conn.AfterFunc(r.chat.patience, func() { m.conn.Abort() })
		}
		msg.rest.Add(1)
		m.queue = append(m.queue, msg)
	}
	msg.done()
}

// say sends a text to all members. The lines of one client stay in order; lines of different clients
// may arrive in a different order on another loop.
func (ch *chat) say(from *reactor.Conn, text []byte) {
	msg := &message{from: from, text: pool.Get(len(text))}
	copy(msg.text.Bytes(), text)
	from.Pause()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	msg.rest.Store(int64(len(ch.rooms)))
	for _, r := range ch.rooms {
		if r.loop.Submit(func() { r.tell(msg) }) != nil {
			msg.done() // the last member has just left
		}
	}
}

// done is called for each room and member that has the message. After the last its client is read again.
func (msg *message) done() {
	if msg.rest.Add(-1) == 0 {
		msg.text.Release()
		msg.from.Resume()
	}
}

// join adds a room to the chat. Its first member has just come.
func (ch *chat) join(r *room, l *reactor.Loop) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	r.loop = l // which may have changed since the room was empty
	ch.rooms = append(ch.rooms, r)
}

func (ch *chat) leave(r *room) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.rooms = slices.DeleteFunc(ch.rooms, func(other *room) bool { return other == r })
}
