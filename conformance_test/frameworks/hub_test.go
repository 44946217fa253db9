package frameworks

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	gorilla "github.com/gorilla/websocket"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/internal/testnet"
)

var hubConns = flag.Int("hub.conns", 200, "clients of the hub in TestHub; with 10000 their memory is checked, too")

// hubLibrary is the environment variable that names the hub's library.
const hubLibrary = "PERCORE_TEST_HUB"

// A hub passes messages that begin with "all:" on to all its members, and sends others back.
type hub struct {
	take func(w http.ResponseWriter, r *http.Request) (socketEnd, error)
	loop bool // a goroutine per member instead of the adapter

	mu      sync.Mutex
	members map[*member]struct{} // guarded by mu
}

// socketEnd is a library's connection. Writes may come from any goroutine.
type socketEnd interface {
	Read() ([]byte, error)
	write(message []byte) error
	Close() error
}

// A member is a connection of the hub: a wsadapter.Session.
type member struct {
	socketEnd // Read is the Session's
	hub       *hub
}

func (m *member) Handle(message []byte) error {
	if strings.HasPrefix(string(message), "all:") {
		m.hub.toAll(message)
		return nil
	}
	return m.write(message)
}

func (m *member) End(error) {
	m.hub.mu.Lock()
	delete(m.hub.members, m)
	m.hub.mu.Unlock()
	m.Close()
}

func (h *hub) all() (all []*member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m := range h.members {
		all = append(all, m)
	}
	return all
}

func (h *hub) toAll(message []byte) {
	for _, m := range h.all() {
		if err := m.write(message); err != nil {
			m.Close() // and End is called
		}
	}
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	up := wsadapter.NewUpgrade(w)
	end, err := h.take(up, r)
	if err != nil {
		return
	}
	m := &member{end, h}
	h.mu.Lock()
	h.members[m] = struct{}{}
	h.mu.Unlock()
	if !h.loop {
		wsadapter.Start(up.Conn(), m)
		return
	}
	for {
		message, err := m.Read()
		if err == nil {
			err = m.Handle(message)
		}
		if err != nil {
			m.End(err)
			return
		}
	}
}

// gorillaEnd is gorilla's. One goroutine at a time may write.
type gorillaEnd struct {
	*gorilla.Conn
	mu sync.Mutex // held for writes
}

func (e *gorillaEnd) Read() ([]byte, error) {
	_, message, err := e.ReadMessage()
	return message, err
}

func (e *gorillaEnd) write(message []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.WriteMessage(gorilla.TextMessage, message)
}

// gobwasEnd is gobwas', which needs no more than the net.Conn.
type gobwasEnd struct{ net.Conn }

func (e gobwasEnd) Read() ([]byte, error)      { return wsutil.ReadClientText(e.Conn) }
func (e gobwasEnd) write(message []byte) error { return wsutil.WriteServerText(e.Conn, message) }

// runHub is a hub in a process of its own. It prints its address, and, for each line that it reads, its
// memory in bytes, its goroutines and its connections. It ends with its standard input.
func runHub() {
	library, way, _ := strings.Cut(os.Getenv(hubLibrary), ",")
	h := &hub{members: make(map[*member]struct{}), loop: way == "goroutines"}
	// A small buffer for reading, and one for writing only while a message is written.
	upgrader := gorilla.Upgrader{ReadBufferSize: 256, WriteBufferSize: 1024, WriteBufferPool: new(sync.Pool)}
	switch library {
	case "gorilla":
		h.take = func(w http.ResponseWriter, r *http.Request) (socketEnd, error) {
			c, err := upgrader.Upgrade(w, r, nil)
			return &gorillaEnd{Conn: c}, err
		}
	case "gobwas":
		h.take = func(w http.ResponseWriter, r *http.Request) (socketEnd, error) {
			c, _, _, err := gobwas.UpgradeHTTP(r, w)
			return gobwasEnd{c}, err
		}
	}
	ln, err := percore.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := &http.Server{Handler: h}
	// Hijacked connections are none of Shutdown's.
	srv.RegisterOnShutdown(func() {
		for _, m := range h.all() {
			m.Close()
		}
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	fmt.Println(ln.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		debug.FreeOSMemory()
		fmt.Println(resident(), runtime.NumGoroutine(), len(h.all()), wsadapter.ReadStats().Waiting)
	}
	_ = srv.Shutdown(context.Background())
	<-served
	for len(h.all()) > 0 || wsadapter.ReadStats().Sessions > 0 {
		time.Sleep(time.Millisecond) // the members' End
	}
}

// resident returns the process's resident memory in bytes, or 0 where it isn't known.
func resident() int {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int
	fmt.Sscan(string(statm), &size, &pages)
	return pages * os.Getpagesize()
}

// hubState is a line that the hub has printed.
type hubState struct{ bytes, goroutines, members, waiting int }

// TestHub has many clients on a hub: their messages are answered, also two that come together, and a
// broadcast reaches all, while connections that wait take little memory.
func TestHub(t *testing.T) {
	for _, hub := range []struct {
		library string
		most    int // bytes per connection
	}{{"gobwas", 1024}, {"gorilla", 2355}, {"gobwas,goroutines", 0}, {"gorilla,goroutines", 0}} {
		t.Run(hub.library, func(t *testing.T) {
			conns := *hubConns
			if hub.most == 0 && conns < 10_000 {
				t.Skip("is only compared in memory, with -hub.conns 10000")
			}
			child := testnet.StartChild(t, "hub", hubLibrary+"="+hub.library)
			out := bufio.NewReader(child.Stdout)
			address, err := out.ReadString('\n')
			if err != nil {
				t.Fatalf("the hub's address: %v", err)
			}
			state := func() (s hubState) {
				fmt.Fprintln(child.Stdin)
				if _, err := fmt.Fscanln(out, &s.bytes, &s.goroutines, &s.members, &s.waiting); err != nil {
					t.Fatalf("the hub's state: %v", err)
				}
				return s
			}
			await := func(what string, condition func(s hubState) bool) (s hubState) {
				testnet.Eventually(t, what, func() bool { s = state(); return condition(s) })
				return s
			}
			first := dialHub(t, strings.TrimSpace(address)) // which has the server make all that it makes once
			first.roundTrip("hello")
			armed := 0
			testnet.Eventually(t, "the first client's connection", func() bool { return state().members == 1 })
			time.Sleep(50 * time.Millisecond) // for the worker to rest
			before := state()
			if before.waiting == 1 {
				armed = 1
			}
			clients := []*hubClient{first}
			for range conns {
				clients = append(clients, dialHub(t, strings.TrimSpace(address)))
			}
			for i, c := range clients {
				c.roundTrip(fmt.Sprint("one ", i), fmt.Sprint("two ", i)) // in one packet
			}
			after := await("the clients' connections waiting", func(s hubState) bool {
				return s.members == conns+1 && (armed == 0 || s.waiting == conns+1 && s.goroutines < 30)
			})
			per := (after.bytes - before.bytes) / conns
			t.Logf("%d connections: %d bytes each, %d goroutines, %d wait without one", conns, per, after.goroutines, after.waiting)
			if armed == 1 && conns >= 10_000 && per > hub.most {
				t.Errorf("got %d bytes per connection, want %d at most", per, hub.most)
			}

			clients[0].send("all:hello")
			for _, c := range clients {
				c.want("all:hello")
			}
			for _, c := range clients[:conns/2] {
				c.Close()
			}
			await("half of the clients leaving", func(s hubState) bool { return s.members == conns+1-conns/2 })
			clients[conns].roundTrip("still there")
			if err := child.Wait(); err != nil {
				t.Error(err)
			}
			if _, err := clients[conns].br.ReadByte(); err == nil {
				t.Error("the connection is open after the hub's end")
			}
			for _, c := range clients {
				c.Close()
			}
		})
	}
}

// A hubClient is a client of the hub.
type hubClient struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func dialHub(t *testing.T, address string) *hubClient {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	hc := &hubClient{c, t, bufio.NewReaderSize(c, 256)}
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	c.SetDeadline(time.Now().Add(10 * testnet.HangTimeout))
	for line := ""; line != "\r\n"; {
		if line, err = hc.br.ReadString('\n'); err != nil {
			t.Fatalf("the handshake: %v", err)
		}
	}
	return hc
}

// send sends messages in one write.
func (c *hubClient) send(messages ...string) {
	c.t.Helper()
	var all []byte
	for i, m := range messages {
		all = appendClientFrame(all, 0x81, []byte(m), uint32(i))
	}
	if _, err := c.Write(all); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// want reads a short message.
func (c *hubClient) want(message string) {
	c.t.Helper()
	frame := make([]byte, 2+len(message))
	if _, err := io.ReadFull(c.br, frame); err != nil || string(frame[2:]) != message {
		c.t.Fatalf("got %q, %v, want %q", frame, err, message)
	}
}

func (c *hubClient) roundTrip(messages ...string) {
	c.t.Helper()
	c.send(messages...)
	for _, m := range messages {
		c.want(m)
	}
}
