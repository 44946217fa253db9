package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	acksMax      = 64               // acknowledgements that wait for a member; the next one ends its connection
	batchMax     = 32               // messages that are taken from the room at a time
	writeTimeout = 10 * time.Second // for a member to take a message
	pingEvery    = 20 * time.Second
	silence      = time.Minute      // of a member, after which it is taken for dead
	sayTimeout   = 20 * time.Second // for the stream to take a message, while it may have no leader
	sayTry       = 2 * time.Second  // for one of the tries
	sayPause     = 100 * time.Millisecond
)

// A member is a connection. Read, Handle and End are its wsadapter.Session.
type member struct {
	room   *room           // immutable
	ws     *websocket.Conn // any goroutine may close it, one writes
	name   string          // immutable
	secret string          // immutable: a hash of the member's secret

	// owned by the goroutine that writes
	after    uint64 // what the member had when it came
	position uint64 // the last message that it was sent
	replays  bool   // it gets messages from JetStream that the room doesn't have in memory

	pingAt time.Time // owned by the hub's goroutine for presence

	mu      sync.Mutex
	acks    []ack // guarded by mu
	present bool  // guarded by mu: who is in the room has changed
	ping    bool  // guarded by mu: it is time for a ping
	again   bool  // guarded by mu: something is to be written since the writer has looked
	writing bool  // guarded by mu: a goroutine writes
}

// ack tells a member that its message with number N has become the message ID.
type ack struct {
	N  uint64 `json:"ack"`
	ID uint64 `json:"id_of"`
}

// said is what a member sends.
type said struct {
	N    uint64 `json:"n"` // counts up; the same number again is the same message again
	Text string `json:"text"`
}

// Read returns the next message. The adapter calls it when there is something to read.
func (m *member) Read() ([]byte, error) {
	m.alive("")
	_, text, err := m.ws.ReadMessage()
	return text, err
}

// alive is called when a pong has come, too: the connection ends when there is none for a while.
func (m *member) alive(string) error { return m.ws.SetReadDeadline(time.Now().Add(silence)) }

// Handle adds a message to the stream. It returns when the stream has it on most of its servers,
// so that a member's messages get there in their order, and no member gets ahead of the stream.
func (m *member) Handle(text []byte) error {
	var s said
	if err := json.Unmarshal(text, &s); err != nil || !utf8.Valid(text) {
		m.close(websocket.CloseUnsupportedData, "not a message")
		return errors.New("not a message")
	}
	id, err := m.say(s)
	if err != nil {
		m.close(websocket.CloseTryAgainLater, "the message could not be kept, send it again")
		return err
	}
	m.mu.Lock()
	m.acks = append(m.acks, ack{s.N, id})
	slow := len(m.acks) > acksMax
	m.mu.Unlock()
	if slow {
		m.close(websocket.CloseTryAgainLater, "too slow")
		return errors.New("acknowledgements are not read")
	}
	m.wake()
	return nil
}

// say publishes a message until the stream has it. The stream drops it if it has it already, by
// this process or another one, and answers with the id that it has.
func (m *member) say(s said) (id uint64, err error) {
	data, err := json.Marshal(body{From: m.name, Text: s.Text})
	if err != nil {
		return 0, err
	}
	msg := &nats.Msg{Subject: "room." + m.room.name, Data: data}
	msgID := m.secret + ":" + strconv.FormatUint(s.N, 10)
	ctx, cancel := context.WithTimeout(context.Background(), sayTimeout)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, sayTry)
		ack, err := m.room.hub.backbone.js.PublishMsg(try, msg, jetstream.WithMsgID(msgID))
		cancel()
		if err == nil {
			return ack.Sequence, nil
		}
		select {
		case <-time.After(sayPause):
		case <-ctx.Done():
			return 0, fmt.Errorf("publish: %w", err)
		}
	}
}

// End is called when the member has left, or when its connection was closed.
func (m *member) End(error) { m.room.remove(m) }

// close closes the connection with a reason.
func (m *member) close(code int, reason string) {
	m.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Now().Add(time.Second))
	m.ws.Close() // this calls End
}

// wake has a goroutine write what there is to write. It does not block.
func (m *member) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.again = true
	if !m.writing {
		m.writing = true
		go m.write(false)
	}
}

// start is wake for a new member, which is told where it starts.
func (m *member) start() {
	m.writing, m.present = true, true
	go m.write(true)
}

// write writes until there is nothing to write, or the connection fails. A member that reads slowly
// delays no other member.
func (m *member) write(first bool) {
	err := m.writeAll(first)
	if err != nil {
		m.close(websocket.CloseTryAgainLater, err.Error())
	}
	m.mu.Lock()
	m.writing = err != nil // never again
	again := m.again && err == nil
	m.mu.Unlock()
	if again {
		m.wake()
	}
}

func (m *member) writeAll(first bool) error {
	if first {
		if err := m.writeJSON(map[string]uint64{"start": m.position}); err != nil {
			return err
		}
	}
	for {
		m.mu.Lock()
		acks, present, ping := m.acks, m.present, m.ping
		m.acks, m.present, m.ping, m.again = nil, false, false, false
		m.mu.Unlock()
		if ping {
			if err := m.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)); err != nil {
				return err
			}
		}
		for _, a := range acks {
			if err := m.writeJSON(a); err != nil {
				return err
			}
		}
		if message := m.room.presence(); present && message != nil {
			if err := m.writePrepared(message); err != nil {
				return err
			}
		}
		more, err := m.writeMessages()
		if err != nil {
			return err
		}
		if !more && len(acks) == 0 && !present {
			return nil
		}
	}
}

// writeMessages writes the next of the room's messages. It reports whether there were any.
func (m *member) writeMessages() (more bool, err error) {
	messages, base := m.room.since(m.position, batchMax)
	if base > 0 {
		return true, m.writeReplay(base)
	}
	if m.replays {
		m.replays = false
		if err := m.writeGap(); err != nil {
			return false, err
		}
	}
	for _, message := range messages {
		if err := m.writePrepared(message.prepared); err != nil {
			return false, err
		}
		m.position = message.id
	}
	return len(messages) > 0, nil
}

// writeReplay writes a message that the room no longer has in memory. last is the last of those.
func (m *member) writeReplay(last uint64) error {
	if !m.replays {
		return errors.New("too slow")
	}
	ctx, cancel := context.WithTimeout(context.Background(), sayTimeout)
	defer cancel()
	message, ok, err := m.room.hub.backbone.first(ctx, m.room.name, m.position, last)
	if err != nil {
		return errors.New("messages can't be read, come back later")
	}
	if !ok {
		m.position = last
		return nil
	}
	m.position = message.id
	return m.writePrepared(message.prepared)
}

// writeGap tells the member if the stream doesn't have everything that was said while it was
// away. It is asked after the replay: what has expired meanwhile counts, too.
func (m *member) writeGap() error {
	ctx, cancel := context.WithTimeout(context.Background(), sayTimeout)
	defer cancel()
	kept, err := m.room.hub.backbone.kept(ctx, m.after)
	if err != nil || kept {
		return err
	}
	return m.writeJSON(map[string]bool{"gap": true})
}

func (m *member) writeJSON(v any) error {
	m.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
	return m.ws.WriteJSON(v)
}

func (m *member) writePrepared(message *websocket.PreparedMessage) error {
	m.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
	return m.ws.WritePreparedMessage(message)
}
