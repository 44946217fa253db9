package main

import (
	"context"
	"encoding/json"
	"log"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/percore/percore/handover"
)

const (
	subjects  = "room."          // and the room's name
	recentMax = 512              // messages of a room in memory; members further behind get them from JetStream
	keepFor   = time.Hour        // a member may be away for so long and still get everything
	resendFor = 10 * time.Minute // a message that is sent again later comes twice
)

// A hub has the rooms of a process's members. A room is there while it has members.
type hub struct {
	nats     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	feed     jetstream.ConsumeContext
	upgrader websocket.Upgrader
	conns    handover.Conns // of the members
	patience time.Duration  // for a member to take a message

	mu       sync.Mutex
	rooms    map[string]*room
	position uint64 // the id of the stream's last message that has come here
}

// A room passes on the messages of one subject of the stream. It has the last of them in memory, and
// each member knows which one it was sent last: there are no queues. The fields are guarded by hub.mu.
//
//	... in JetStream only ... | base+1 ... recent ... hub.position
type room struct {
	members map[*member]bool
	recent  []message
	base    uint64
}

// message is one that the stream has. Its id is its sequence number there, so ids grow in a room, with
// gaps where other rooms' messages are.
type message struct {
	id       uint64
	prepared *websocket.PreparedMessage // in memory once for all members
}

// An event is what a member gets.
type event struct {
	ID   uint64          `json:"id"`             // of the message; without one, of the last before the member's first
	Data json.RawMessage `json:"data,omitempty"` // a message: see said
	Gap  bool            `json:"gap,omitempty"`  // messages are lost
}

// prepare makes an event the message that tells it.
func prepare(e event) message {
	text, err := json.Marshal(e)
	if err != nil {
		text = []byte("{}") // another program has published something else than JSON
	}
	prepared, _ := websocket.NewPreparedMessage(websocket.TextMessage, text) // which can't fail
	return message{e.ID, prepared}
}

// newHub makes the stream, or finds the one that another process has made, and begins to hear it.
func newHub(ctx context.Context, url string, replicas int) (h *hub, err error) {
	h = &hub{
		patience: writeTimeout,
		rooms:    make(map[string]*room),
		// Use a small buffer for reading, and a buffer for writing only while a message is written.
		upgrader: websocket.Upgrader{ReadBufferSize: 256, WriteBufferPool: new(sync.Pool)},
	}
	if h.nats, err = nats.Connect(url, nats.MaxReconnects(-1)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.nats.Close()
		}
	}()
	if h.js, err = jetstream.New(h.nats); err != nil {
		return nil, err
	}
	h.stream, err = h.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "HUB", Subjects: []string{subjects + "*"}, Replicas: replicas, MaxAge: keepFor, Duplicates: resendFor,
	})
	if err != nil {
		return nil, err
	}
	h.position = h.stream.CachedInfo().State.LastSeq
	// An ordered consumer notices what it has missed, and starts again there.
	consumer, err := h.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: h.position + 1,
	})
	if err != nil {
		return nil, err
	}
	h.feed, err = consumer.Consume(h.receive)
	return h, err
}

func (h *hub) close() {
	h.feed.Stop()
	h.nats.Close()
}

func (h *hub) receive(msg jetstream.Msg) {
	about, err := msg.Metadata()
	if err != nil {
		log.Print(err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.position = about.Sequence.Stream
	r := h.rooms[strings.TrimPrefix(msg.Subject(), subjects)]
	if r == nil {
		return
	}
	if len(r.recent) == recentMax {
		r.base = r.recent[0].id
		r.recent = r.recent[1:] // append moves the rest when the array is full
	}
	r.recent = append(r.recent, prepare(event{ID: h.position, Data: msg.Data()}))
	for m := range r.members {
		m.wakeLocked()
	}
}

// enter makes m a member of its room. If it is new it gets what is said from now on, and otherwise the
// messages behind its position, which may be ahead: another process may have sent it more.
func (h *hub) enter(m *member, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if isNew {
		m.position = h.position
	}
	r := h.rooms[m.room]
	if r == nil {
		r = &room{members: make(map[*member]bool), base: h.position}
		h.rooms[m.room] = r
	}
	r.members[m] = true
	m.wakeLocked()
}

func (h *hub) leave(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[m.room]
	if delete(r.members, m); len(r.members) == 0 {
		delete(h.rooms, m.room)
	}
}

// next returns the messages in memory that m has not been sent, or base if it lacks some that the room
// no longer has there. Without either m's writing has ended. At first m learns where it begins.
func (h *hub) next(m *member) (messages []message, base uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.rooms[m.room]; r != nil && r.members[m] {
		switch {
		case !m.greeted:
			m.greeted = true
			return []message{prepare(event{ID: m.position})}, 0
		case m.position < r.base:
			return nil, r.base
		}
		i := sort.Search(len(r.recent), func(i int) bool { return r.recent[i].id > m.position })
		messages = r.recent[i:len(r.recent):len(r.recent)]
	}
	m.writing = len(messages) > 0
	return messages, 0
}
