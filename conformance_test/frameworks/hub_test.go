package frameworks

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	gorilla "github.com/gorilla/websocket"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/internal/testnet"
)

var hubConns = flag.Int("hub.conns", 200, "clients of the hub in TestHub; with 10000 their memory is checked, too")

// hubSetup is the environment variable that names the hub's library and, after commas, how to run it:
//
//	tls         over TLS, with the certificate in hubIdentity
//	goroutines  with a goroutine per member, on percore, instead of the adapter
//	net         the same on package net
const hubSetup = "PERCORE_TEST_HUB"

// hubIdentity is the environment variable that has a hub's certificate and its key, in PEM.
const hubIdentity = "PERCORE_TEST_HUB_IDENTITY"

// A hub sends messages that begin with "all:" to all its members, and sends other messages back.
type hub struct {
	take func(w http.ResponseWriter, r *http.Request) (socketEnd, error)
	loop bool // a goroutine per member instead of the adapter

	mu      sync.Mutex
	members map[*member]struct{} // guarded by mu
}

// socketEnd is a library's connection. Any goroutine may write.
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
			m.Close() // this calls End
		}
	}
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.loop {
		up := wsadapter.NewUpgrade(w)
		if m := h.join(up, r); m != nil {
			wsadapter.Start(up.Conn(), m)
		}
		return
	}
	m := h.join(w, r)
	for m != nil {
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

// join makes a request's client a member. It returns the member, or nil.
func (h *hub) join(w http.ResponseWriter, r *http.Request) *member {
	end, err := h.take(w, r)
	if err != nil {
		return nil
	}
	m := &member{end, h}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.members[m] = struct{}{}
	return m
}

// gorillaEnd uses gorilla. Only one goroutine at a time may write.
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

// gobwasEnd uses gobwas, which needs only the net.Conn.
type gobwasEnd struct{ net.Conn }

func (e gobwasEnd) Read() ([]byte, error) { return wsutil.ReadClientText(e.Conn) }

// write writes the frame at once. Several goroutines write, including Read, which answers pings.
// The bytes of one Write of a net.Conn stay together. wsutil.WriteServerText would need a lock,
// because it writes twice, and Read would have to send its answers under the same lock.
func (e gobwasEnd) write(message []byte) error {
	frame, err := gobwas.CompileFrame(gobwas.NewTextFrame(message))
	if err == nil {
		_, err = e.Conn.Write(frame)
	}
	return err
}

// coderEnd uses coder.
type coderEnd struct{ c *coder.Conn }

func (e coderEnd) Read() ([]byte, error) {
	_, message, err := e.c.Read(context.Background())
	return message, err
}

func (e coderEnd) write(message []byte) error {
	return e.c.Write(context.Background(), coder.MessageText, message)
}

func (e coderEnd) Close() error { return e.c.CloseNow() }

// runHub runs a hub in its own process. It prints its address. For each line that it reads, it prints
// its memory in bytes, its goroutines and its connections. It exits at the end of its standard input.
func runHub() {
	setup := strings.Split(os.Getenv(hubSetup), ",")
	onNet := slices.Contains(setup, "net")
	h := &hub{members: make(map[*member]struct{}), loop: onNet || slices.Contains(setup, "goroutines")}
	// Use a small buffer for reading, and a buffer for writing only while a message is written.
	upgrader := gorilla.Upgrader{ReadBufferSize: 256, WriteBufferSize: 1024, WriteBufferPool: new(sync.Pool)}
	switch setup[0] {
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
	case "coder":
		h.take = func(w http.ResponseWriter, r *http.Request) (socketEnd, error) {
			c, err := coder.Accept(w, r, nil)
			return coderEnd{c}, err
		}
	}
	listen := percore.Listen
	if onNet {
		listen = net.Listen
	}
	ln, err := listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := &http.Server{Handler: h}
	if slices.Contains(setup, "tls") {
		identity := []byte(os.Getenv(hubIdentity))
		cert, err := tls.X509KeyPair(identity, identity)
		if err != nil {
			fmt.Println(err)
			return
		}
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	// Shutdown leaves hijacked connections alone.
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

// resident returns the process's resident memory in bytes, or 0 where it is unknown.
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

// TestHub connects many clients to a hub. Their messages are answered, even two that come together,
// and a broadcast reaches all clients. Connections that wait take little memory.
func TestHub(t *testing.T) {
	for _, hub := range []struct {
		setup  string
		most   int  // bytes per connection; 0 for hubs that are only compared
		always bool // also with few clients
	}{
		{"gobwas", 1024, true}, {"gorilla", 2355, true}, {"coder", 12_800, false},
		{"gobwas,tls", 9300, false}, {"gorilla,tls", 10_900, false}, {"coder,tls", 22_200, true},
		{"gobwas,goroutines", 0, false}, {"gorilla,goroutines", 0, false}, {"coder,goroutines", 0, false},
		{"gobwas,tls,goroutines", 0, false}, {"gorilla,tls,goroutines", 0, false}, {"coder,tls,goroutines", 0, false},
		{"gobwas,net", 0, false}, {"gorilla,net", 0, false}, {"coder,net", 0, false},
		{"gobwas,tls,net", 0, false}, {"gorilla,tls,net", 0, false}, {"coder,tls,net", 0, false},
	} {
		t.Run(hub.setup, func(t *testing.T) {
			conns := *hubConns
			if !hub.always && conns < 10_000 {
				t.Skip("is about memory: run it with -hub.conns 10000")
			}
			child, out, dial := startHub(t, hub.setup)
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
			first := dial() // the server makes its one-time allocations
			first.roundTrip("hello")
			armed := 0
			testnet.Eventually(t, "the first client's connection", func() bool { return state().members == 1 })
			time.Sleep(50 * time.Millisecond) // lets the worker finish
			before := state()
			if before.waiting == 1 {
				armed = 1
			}
			clients := []*hubClient{first}
			for range conns {
				clients = append(clients, dial())
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

// startHub starts a hub. It returns the hub's output after the address, and a function that makes a
// client.
func startHub(t testing.TB, setup string) (child *testnet.ChildProcess, out *bufio.Reader, dial func() *hubClient) {
	t.Helper()
	identity, client := pemIdentity(t)
	child = testnet.StartChild(t, "hub", hubSetup+"="+setup, hubIdentity+"="+identity)
	out = bufio.NewReader(child.Stdout)
	address, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("the hub's address: %v", err)
	}
	if !strings.Contains(setup, "tls") {
		client = nil
	}
	return child, out, func() *hubClient { return dialHub(t, strings.TrimSpace(address), client) }
}

// pemIdentity returns a certificate with its key for another process, and a configuration that
// trusts it.
func pemIdentity(t testing.TB) (identity string, client *tls.Config) {
	t.Helper()
	server, client := testnet.TLS(t)
	key, err := x509.MarshalPKCS8PrivateKey(server.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificates[0].Certificate[0]})
	return string(b) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})), client
}

// A hubClient is a client of the hub.
type hubClient struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

// dialHub connects to a hub, over TLS if config isn't nil.
func dialHub(t testing.TB, address string, config *tls.Config) *hubClient {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		c = tls.Client(c, config)
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
