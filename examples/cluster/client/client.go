// Package client is a member of the hub that stays one: it joins again, at another process if need
// be, goes on after the last message it has, and sends again what was not acknowledged.
package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	firstPause   = 100 * time.Millisecond // before it joins again, at most; it doubles
	longestPause = 5 * time.Second
	silence      = time.Minute // after which a server is taken for dead
	dialTimeout  = 15 * time.Second
	writeTimeout = 10 * time.Second
)

// ErrOrder ends a connection on which a message came twice, or out of order.
var ErrOrder = errors.New("messages are out of order")

// A Message is what a member hears.
type Message struct {
	ID   uint64 `json:"id"` // grows in a room
	From string `json:"from"`
	Text string `json:"text"`
}

// A Member is in a room. Its methods are safe for concurrent use.
type Member struct {
	config Config // immutable
	secret string // immutable

	mu      sync.Mutex
	ws      *websocket.Conn // guarded by mu; nil while there is none
	unacked []said          // guarded by mu: in order
	sent    int             // guarded by mu: how many of them ws was given
	last    uint64          // guarded by mu: numbers the messages
	sending sync.Mutex      // held while ws is written to
	after   *uint64         // owned by Run: the last message, nil before the first join
}

// Config says what a member is and does. The functions are called by Run, one at a time.
type Config struct {
	Servers []string // host:port of the processes; a member starts at one of them by chance
	Room    string
	Name    string
	Joined  func()             // may be nil
	Hear    func(Message)      // may be nil
	Acked   func(n, id uint64) // may be nil: the stream has what Send numbered n
	Gap     func()             // may be nil: messages are lost that were said while it was away
	Left    func(error)        // may be nil: the connection has ended; Run joins again
}

type said struct {
	N    uint64 `json:"n"`
	Text string `json:"text"`
}

// New returns a member that is not in its room yet.
func New(config Config) *Member { return &Member{config: config, secret: rand.Text()} }

// Send sends a message and returns its number. It doesn't wait for the acknowledgement, and
// without a connection it sends later.
func (m *Member) Send(text string) (n uint64) {
	m.mu.Lock()
	m.last++
	n = m.last
	m.unacked = append(m.unacked, said{n, text})
	m.mu.Unlock()
	m.flush()
	return n
}

// flush writes what was not given to the connection yet. The next connection gets what fails.
func (m *Member) flush() {
	m.sending.Lock()
	defer m.sending.Unlock()
	for {
		m.mu.Lock()
		ws := m.ws
		if ws == nil || m.sent == len(m.unacked) {
			m.mu.Unlock()
			return
		}
		next := m.unacked[m.sent]
		m.sent++
		m.mu.Unlock()
		ws.SetWriteDeadline(time.Now().Add(writeTimeout))
		if ws.WriteJSON(next) != nil {
			ws.Close()
			return
		}
	}
}

// Run is the member until ctx ends.
func (m *Member) Run(ctx context.Context) {
	server := mathrand.IntN(len(m.config.Servers))
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := m.stay(ctx, m.config.Servers[server])
		if m.config.Left != nil {
			m.config.Left(err)
		}
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		// A chance moment: else all members of a process that has died come at once.
		select {
		case <-time.After(mathrand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
		server = (server + 1) % len(m.config.Servers)
	}
}

// stay joins at a server, and returns when the connection has ended.
func (m *Member) stay(ctx context.Context, server string) error {
	query := url.Values{"room": {m.config.Room}, "name": {m.config.Name}, "member": {m.secret}}
	if m.after != nil {
		query.Set("after", strconv.FormatUint(*m.after, 10))
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := websocket.Dialer{ReadBufferSize: 1024, WriteBufferPool: new(sync.Pool)}
	ws, _, err := dialer.DialContext(dial, "ws://"+server+"/hub?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer ws.Close()
	defer context.AfterFunc(ctx, func() { ws.Close() })()
	alive := func(string) error { return ws.SetReadDeadline(time.Now().Add(silence)) }
	pong := ws.PingHandler()
	ws.SetPingHandler(func(text string) error { return errors.Join(alive(text), pong(text)) })
	for {
		var message struct {
			Message
			Ack   uint64  `json:"ack"`
			IDOf  uint64  `json:"id_of"`
			Start *uint64 `json:"start"`
			Gap   bool    `json:"gap"`
		}
		if err := errors.Join(alive(""), ws.ReadJSON(&message)); err != nil {
			return err
		}
		switch {
		case message.Start != nil:
			m.after = message.Start
			m.use(ws)
			defer m.use(nil)
			if m.config.Joined != nil {
				m.config.Joined()
			}
		case message.Ack != 0:
			m.acked(message.Ack, message.IDOf)
		case message.Gap && m.config.Gap != nil:
			m.config.Gap()
		case message.ID != 0:
			if m.after == nil {
				return errors.New("the server has not said where it starts")
			}
			if message.ID <= *m.after {
				return fmt.Errorf("%w: %d after %d", ErrOrder, message.ID, *m.after)
			}
			*m.after = message.ID
			if m.config.Hear != nil {
				m.config.Hear(message.Message)
			}
		}
	}
}

// use makes ws the connection for what is sent, beginning with all that was not acknowledged.
func (m *Member) use(ws *websocket.Conn) {
	m.mu.Lock()
	m.ws, m.sent = ws, 0
	m.mu.Unlock()
	m.flush()
}

// acked forgets a message that the stream has.
func (m *Member) acked(n, id uint64) {
	m.mu.Lock()
	known := len(m.unacked) > 0 && m.unacked[0].N == n
	if known {
		m.unacked = m.unacked[1:]
		m.sent--
	}
	m.mu.Unlock()
	if known && m.config.Acked != nil {
		m.config.Acked(n, id)
	}
}
