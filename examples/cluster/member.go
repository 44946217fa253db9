package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/percore/percore/adapters/wsadapter"
)

const (
	messageMax   = 4 << 10          // bytes of a member's message
	nameMax      = 40               // bytes of a member's name
	writeTimeout = 10 * time.Second // for either side to take a message
)

// roomName is what a room may be called: one token of a NATS subject.
var roomName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// A member is a connection. Read, Handle and End are its wsadapter.Session.
type member struct {
	// immutable
	hub        *hub
	ws         *websocket.Conn // any goroutine may close it, one writes
	room, name string
	forget     func() // takes it out of hub.conns

	position uint64 // the last message that it was sent; owned by the goroutine that writes
	writing  bool   // there is one; this and greeted are guarded by hub.mu
	greeted  bool
}

// said is a message: what a member sends, and, with From, what is in the stream.
type said struct {
	Key  string `json:"key"` // of the member's choice, random: the same key again is the same message again
	Text string `json:"text"`
	From string `json:"from,omitempty"`
}

// join serves a new member's request. It returns at once, and the connection continues on its own.
// The parameters are
//
//	room   the room's name
//	name   how the others see the member
//	after  the id of the last message that the member has; without it, the member gets what is said from
//	       now on
func (h *hub) join(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	m := &member{hub: h, room: query.Get("room"), name: query.Get("name")}
	var err error
	m.position, err = strconv.ParseUint(cmp.Or(query.Get("after"), "0"), 10, 64)
	if err != nil || !roomName.MatchString(m.room) || m.name == "" || len(m.name) > nameMax {
		http.Error(w, "room and name are required, after must be the id of a message", http.StatusBadRequest)
		return
	}
	up := wsadapter.NewUpgrade(w)
	if m.ws, err = h.upgrader.Upgrade(up, r, nil); err != nil {
		return // Upgrade has answered
	}
	m.ws.SetReadLimit(messageMax)
	m.forget = h.conns.Add(func() { m.close(websocket.CloseServiceRestart, "the server stops") })
	h.enter(m, !query.Has("after"))
	wsadapter.Start(up.Conn(), m)
}

// Read returns the next message. The adapter calls it when there is something to read.
func (m *member) Read() ([]byte, error) {
	_, text, err := m.ws.ReadMessage()
	return text, err
}

// Handle adds a message to the stream, which drops it if it has it already, by this process or another
// one. It returns when the stream has it, so that a member's messages get there in their order. The
// member knows that when it hears the message; if it doesn't it sends it again, over another connection.
func (m *member) Handle(text []byte) error {
	var s said
	if err := json.Unmarshal(text, &s); err != nil || s.Key == "" || !utf8.Valid(text) {
		m.close(websocket.CloseUnsupportedData, "not a message")
		return errors.New("not a message")
	}
	s.From = m.name
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = m.hub.js.Publish(context.Background(), subjects+m.room, data, jetstream.WithMsgID(s.Key))
	if err != nil { // after 5 s at most
		m.close(websocket.CloseTryAgainLater, "the message could not be kept, send it again")
	}
	return err
}

// End is called when the member has left, or when its connection was closed.
func (m *member) End(error) {
	m.hub.leave(m)
	m.forget()
}

func (m *member) close(code int, reason string) {
	m.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
	m.ws.Close() // this calls End
}

// wakeLocked makes a goroutine write what there is to write. The caller holds hub.mu.
func (m *member) wakeLocked() {
	if !m.writing {
		m.writing = true
		go m.write()
	}
}

// write writes until there is nothing to write, or the connection fails: then it is not called again. A
// member that reads slowly delays no other member.
func (m *member) write() {
	for {
		messages, base := m.hub.next(m)
		var err error
		if base > 0 {
			err = m.replay(base)
		} else if len(messages) == 0 {
			return
		}
		for i := 0; i < len(messages) && err == nil; i++ {
			err = m.send(messages[i])
		}
		if err != nil {
			m.close(websocket.CloseTryAgainLater, "too slow, or no NATS")
			return
		}
	}
}

func (m *member) send(message message) error {
	m.ws.SetWriteDeadline(time.Now().Add(m.hub.patience))
	m.position = max(m.position, message.id)
	return m.ws.WritePreparedMessage(message.prepared)
}

// replay sends the room's messages up to last, which it doesn't have in memory any more. If the stream
// hasn't all of them either it says so at the end, so that what has expired meanwhile counts, too.
func (m *member) replay(last uint64) error {
	first := m.position + 1
	ctx := context.Background() // NATS has 5 s for each answer
	for m.position < last {
		raw, err := m.hub.stream.GetMsg(ctx, m.position+1, jetstream.WithGetMsgSubject(subjects+m.room))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Sequence > last {
			m.position = last
			break
		}
		if err == nil {
			err = m.send(prepare(event{ID: raw.Sequence, Data: raw.Data}))
		}
		if err != nil {
			return err
		}
	}
	info, err := m.hub.stream.Info(ctx)
	if err != nil || info.State.FirstSeq <= first {
		return err
	}
	return m.send(prepare(event{Gap: true}))
}
