package wsadapter_test

import (
	"log"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/wsadapter"
)

// A wsConn is the library's connection, such as gorilla's *websocket.Conn.
type wsConn interface {
	ReadMessage() (kind int, data []byte, err error)
	WriteMessage(kind int, data []byte) error
}

// upgrade stands for the library's call, such as the method Upgrade of gorilla's websocket.Upgrader.
var upgrade func(w http.ResponseWriter, r *http.Request, header http.Header) (wsConn, error)

type message struct {
	kind int
	data []byte
}

// An echo is a conversation. Between two messages it holds no goroutine.
type echo struct{ ws wsConn }

// Read only reads. It also returns the adapter's own empty messages, which Handle doesn't get.
func (e echo) Read() (m message, err error) {
	m.kind, m.data, err = e.ws.ReadMessage()
	return m, err
}

// Handle was the body of the loop around ReadMessage.
func (e echo) Handle(m message) error { return e.ws.WriteMessage(m.kind, m.data) }

// End was behind that loop. The adapter closes the connection.
func (e echo) End(err error) { log.Print("a conversation has ended: ", err) }

// A handler passes the library an Upgrade, starts the conversation, and returns.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /echo", func(w http.ResponseWriter, r *http.Request) {
		up := wsadapter.NewUpgrade(w)
		ws, err := upgrade(up, r, nil)
		if err != nil {
			return // the library has answered
		}
		wsadapter.Start(up.Conn(), echo{ws})
	})
	server := httpadapter.Wrap(&http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 10 * time.Second})
	log.Fatal(server.ListenAndServe())
}
