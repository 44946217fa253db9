package main

import (
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/adapters/wsadapter/moving"
	"github.com/percore/percore/handover"
)

const (
	webSocketMessageMax   = 1 << 20          // bytes of a client's message
	webSocketWriteTimeout = 10 * time.Second // for a client to take a message
)

// webSockets sends back the messages of WebSockets. While they wait they hold no goroutine. At a
// handover they move to the successor, except over TLS; those that are left when the server stops are
// told to connect again.
type webSockets struct {
	conns    handover.Conns
	group    *moving.Group
	upgrader websocket.Upgrader
}

func newWebSockets() *webSockets {
	s := &webSockets{upgrader: websocket.Upgrader{ReadBufferSize: 256, WriteBufferPool: new(sync.Pool)}}
	s.group = moving.NewGroup(&s.conns, "echo", s.begin)
	return s
}

// ServeHTTP upgrades a connection, and returns.
func (s *webSockets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = s.begin(s.group.NewUpgrade(w, r), r, nil) // the library has answered if it fails
}

func (s *webSockets) begin(up *wsadapter.Upgrade, r *http.Request, _ []byte) error {
	ws, err := s.upgrader.Upgrade(up, r, nil)
	if err != nil {
		return err
	}
	ws.SetReadLimit(webSocketMessageMax)
	wsadapter.Start(up.Conn(), &webSocket{ws})
	return nil
}

// webSocket is a conversation. It has no state that a successor would need.
type webSocket struct{ ws *websocket.Conn }

type webSocketMessage struct {
	kind int
	data []byte
}

func (s *webSocket) Read() (m webSocketMessage, err error) {
	m.kind, m.data, err = s.ws.ReadMessage()
	return m, err
}

// Handle sends a message back. After a write that has failed the conversation goes on until Read fails,
// too: a connection that is closed before may be reset, and the client not get the close message that
// tells it to connect again. Only a client that takes nothing would stay forever.
func (s *webSocket) Handle(m webSocketMessage) error {
	_ = s.ws.SetWriteDeadline(time.Now().Add(webSocketWriteTimeout))
	if err := s.ws.WriteMessage(m.kind, m.data); errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

func (s *webSocket) End(error) {}

// Save implements moving.Saver.
func (s *webSocket) Save() ([]byte, error) { return nil, nil }
