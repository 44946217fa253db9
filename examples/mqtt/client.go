package main

import (
	"log"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/pool"
)

// client is a connection. Its fields belong to its loop unless a note says otherwise.
type client struct {
	conn     *reactor.Conn
	id       string        // "" before CONNECT
	patience time.Duration // between two packets; 0 for any
	last     time.Time     // when a packet came
	timer    reactor.Timer
	filters  map[string]bool
	memory   int // that its filters take

	dropped atomic.Int64 // messages that it was too slow for

	mu       sync.Mutex
	unacked  map[uint16]bool // ids of messages that it has not acknowledged; guarded by mu
	previous uint16          // the id given last; guarded by mu
}

const (
	connectMax = 10 * time.Second // for CONNECT to come
	unackedMax = 1024             // messages of QoS 1 on their way to a client
	filtersMax = 1024
	memoryMax  = 1 << 20 // bytes that its filters take
	levelBytes = 300     // that a level of a filter takes: a node of the tree and its map
)

// filterMemory returns how many bytes a subscription takes, at most: levels that others have
// subscribed to as well are there already.
func filterMemory(filter string) int {
	return len(filter) + levelBytes*(strings.Count(filter, "/")+1)
}

// anonymous numbers the clients that don't name themselves.
var anonymous atomic.Uint64

func (b *broker) Open(conn *reactor.Conn) {
	c := &client{conn: conn, patience: connectMax, last: time.Now(), filters: make(map[string]bool)}
	conn.SetUser(c)
	c.watch()
}

func (b *broker) Close(conn *reactor.Conn, err error) {
	c := conn.User().(*client)
	c.timer.Stop()
	if c.id == "" {
		return
	}
	b.leave(c)
	if dropped := c.dropped.Load(); dropped > 0 {
		log.Printf("%s has missed %d messages (%v)", c.id, dropped, err)
	}
}

// watch closes the connection if no packet comes for too long. The timer isn't set again for each
// packet: when it fires it looks when the last one came.
func (c *client) watch() {
	if c.patience == 0 {
		return
	}
	c.timer = c.conn.After(c.patience-time.Since(c.last), func() {
		if time.Since(c.last) >= c.patience {
			c.conn.Abort()
		} else {
			c.watch()
		}
	})
}

// Data takes all packets that have arrived completely. Their answers are short.
func (b *broker) Data(conn *reactor.Conn, p []byte) (used int) {
	c := conn.User().(*client)
	for {
		pk, n, err := cutPacket(p[used:])
		if n == 0 && err == nil {
			return used
		}
		if err == nil {
			used += n
			c.last = time.Now()
			err = b.receive(c, pk)
		}
		if err != nil {
			conn.Close()
			return used
		}
	}
}

// receive does what a packet says. An error ends the connection.
func (b *broker) receive(c *client, pk packet) error {
	if (c.id == "") != (pk.kind == typeConnect) {
		return errMalformed // CONNECT comes first, and once (3.1)
	}
	switch pk.kind {
	case typeConnect:
		return b.connect(c, pk)
	case typePublish:
		m, err := parsePublish(pk)
		if err != nil {
			return err
		}
		b.publish(m)
		if m.qos == 1 {
			c.conn.Write([]byte{typePuback << 4, 2, byte(m.id >> 8), byte(m.id)})
		}
		return nil
	case typePuback:
		return c.acknowledge(pk)
	case typeSubscribe:
		return b.subscribeAll(c, pk)
	case typeUnsubscribe:
		return b.unsubscribeAll(c, pk)
	case typePingreq:
		c.conn.Write([]byte{typePingresp << 4, 0})
		return nil
	}
	return errMalformed // among them DISCONNECT, after which the client goes
}

// connect answers CONNECT (3.1).
func (b *broker) connect(c *client, pk packet) error {
	hello, err := parseConnect(pk.body)
	if err != nil || hello.protocol != "MQTT" {
		return errMalformed
	}
	answer := byte(accepted)
	switch {
	case hello.version != 4:
		answer = badVersion
	case hello.will():
		answer = notAvailable
	case hello.clientID == "" && !hello.clean():
		answer = badClientID
	}
	c.conn.Write([]byte{typeConnack << 4, 2, 0, answer})
	if answer != accepted {
		return errMalformed
	}
	c.id = hello.clientID
	if c.id == "" {
		c.id = "anonymous " + strconv.FormatUint(anonymous.Add(1), 10)
	}
	c.patience = time.Duration(hello.keepAlive) * time.Second * 3 / 2
	c.timer.Stop()
	c.watch()
	b.join(c)
	return nil
}

func (b *broker) subscribeAll(c *client, pk packet) error {
	id, filters, err := parseSubscribe(pk)
	if err != nil {
		return err
	}
	answer := appendHead(nil, typeSuback, 0, 2+len(filters))
	answer = append(answer, byte(id>>8), byte(id))
	for _, s := range filters {
		granted := byte(subscribeFailed)
		if isFilter(s.filter) && c.admit(s.filter) {
			granted = min(s.qos, 1)
			b.subscribe(c, s.filter, granted)
		}
		answer = append(answer, granted)
	}
	c.conn.Write(answer)
	return nil
}

// admit notes a filter, unless the client has too many.
func (c *client) admit(filter string) bool {
	if c.filters[filter] {
		return true
	}
	n := filterMemory(filter)
	if len(c.filters) >= filtersMax || c.memory+n > memoryMax {
		return false
	}
	c.filters[filter] = true
	c.memory += n
	return true
}

func (b *broker) unsubscribeAll(c *client, pk packet) error {
	id, filters, err := parseSubscribe(pk)
	if err != nil {
		return err
	}
	for _, s := range filters {
		if c.filters[s.filter] {
			delete(c.filters, s.filter)
			c.memory -= filterMemory(s.filter)
			b.unsubscribe(c, s.filter)
		}
	}
	c.conn.Write([]byte{typeUnsuback << 4, 2, byte(id >> 8), byte(id)})
	return nil
}

// offer sends a message of QoS 0, unless the client is behind. Any goroutine may call it.
func (c *client) offer(p *pool.Buffer) {
	if c.conn.Unsent() > behindMax || c.conn.WriteShared(p) != nil {
		c.dropped.Add(1)
	}
}

// deliver sends a message of QoS 1. A client that can't take it loses the connection, so it knows that
// it has missed something. Any goroutine may call it.
func (c *client) deliver(m publish) {
	c.mu.Lock()
	defer c.mu.Unlock() // until the message is written: ids go out in order
	if len(c.unacked) >= unackedMax {
		c.dropped.Add(1)
		c.conn.Abort()
		return
	}
	if c.unacked == nil {
		c.unacked = make(map[uint16]bool)
	}
	for c.previous++; c.previous == 0 || c.unacked[c.previous]; c.previous++ {
	}
	c.unacked[c.previous] = true
	c.conn.Write(appendPublish(nil, 1, c.previous, m.topic, m.message))
}

// acknowledge takes PUBACK, after which the id is free (3.4).
func (c *client) acknowledge(pk packet) error {
	b := body{rest: pk.body}
	id := b.number()
	if b.bad {
		return errMalformed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unacked, id)
	return nil
}
