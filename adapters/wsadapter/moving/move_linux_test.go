//go:build !percore_net

package moving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// place is a server with a Group, as a process has it. Its sessions answer each message with its number
// in the conversation and its text.
type place struct {
	t     testing.TB
	conns handover.Conns
	group *Group
	ln    net.Listener

	// to be set before there are connections
	status   string // of the answer
	fields   string // of the answer
	restorer Restorer
	save     func(*chat) ([]byte, error)
	read     func(*chat) (string, error)
	session  func(*chat) wsadapter.Session[string]

	mu    sync.Mutex
	ended []error // guarded by mu
	begun []*chat // guarded by mu
}

// chat is a Session of a place.
type chat struct {
	place   *place
	conn    *wsadapter.Conn
	library *library
	room    string

	mu    sync.Mutex
	count int // guarded by mu, for the write as well
}

// library is a WebSocket library for short messages that reads ahead, and keeps the first error.
type library struct {
	br   *bufio.Reader
	err  error
	half atomic.Bool // it has read a part of a message
}

func (l *library) read() (string, error) {
	var message []byte
	for l.err == nil {
		var head [6]byte
		_, l.err = io.ReadFull(l.br, head[:])
		payload := make([]byte, head[1]&^link.Mask)
		if l.err == nil && len(payload) > 0 {
			l.half.Store(true)
			_, l.err = io.ReadFull(l.br, payload)
		}
		switch {
		case l.err != nil:
		case head[0]&0xf == link.Close:
			l.err = io.EOF
		default:
			message = append(message, payload...)
			if head[0]&link.Fin != 0 {
				l.half.Store(false)
				return string(message), nil
			}
		}
	}
	return "", l.err
}

// clientFrame returns a frame with a mask that changes nothing.
func clientFrame(first byte, payload string) []byte {
	return append([]byte{first, link.Mask | byte(len(payload)), 0, 0, 0, 0}, payload...)
}

func frame(text string) []byte { return clientFrame(link.Fin|0x1, text) }

func newPlace(t testing.TB) *place {
	p := &place{t: t, status: "101 Switching Protocols", save: (*chat).saveCount}
	p.restorer = p.restore
	p.read = func(c *chat) (string, error) { return c.library.read() }
	p.session = func(c *chat) wsadapter.Session[string] { return c }
	p.group = NewGroup(&p.conns, "chat", func(up *wsadapter.Upgrade, r *http.Request, state []byte) error {
		return p.restorer(up, r, state)
	})
	return p
}

// ServeHTTP begins a conversation with a new client.
func (p *place) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.begin(p.group.NewUpgrade(w, r), r, 0); err != nil {
		p.t.Errorf("the upgrade: %v", err)
	}
}

func (p *place) serve() *place {
	p.ln = testnet.Listen(p.t, percore.Listen, testnet.TCP4)
	p.t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.begun {
			c.conn.Close()
		}
	})
	testnet.ServeWeb(p.t, httpadapter.Wrap(&http.Server{Handler: p}), p.ln, false)
	return p
}

func (p *place) restore(up *wsadapter.Upgrade, r *http.Request, state []byte) error {
	count, err := strconv.Atoi(string(state))
	if err != nil {
		return err
	}
	return p.begin(up, r, count)
}

// begin begins a conversation with the miniature library.
func (p *place) begin(up *wsadapter.Upgrade, r *http.Request, count int) error {
	nc, _, err := up.Hijack()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(nc, "HTTP/1.1 %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n%s\r\n", p.status, p.fields); err != nil {
		nc.Close()
		return err
	}
	c := &chat{place: p, conn: up.Conn(), library: &library{br: bufio.NewReaderSize(nc, 512)}, room: r.URL.Query().Get("room"), count: count}
	p.mu.Lock()
	p.begun = append(p.begun, c)
	p.mu.Unlock()
	wsadapter.Start(up.Conn(), p.session(c))
	return nil
}

func (c *chat) Read() (string, error) { return c.place.read(c) }
func (c *chat) Handle(m string) error { return c.say(m) }
func (c *chat) Save() ([]byte, error) { return c.place.save(c) }

// chatOf returns the conversation of a client that has had an answer.
func (p *place) chatOf(c *peer) *chat {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.begun, func(begun *chat) bool { return begun.room == c.room })
	if i < 0 {
		p.t.Fatalf("there is no conversation in room %s", c.room)
	}
	return p.begun[i]
}

// say writes a message with the next number.
func (c *chat) say(m string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Write(serverFrame(fmt.Sprint(c.count+1, " ", c.room, " ", m)))
	if err == nil {
		c.count++
	}
	return err
}

func (c *chat) saveCount() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strconv.AppendInt(nil, int64(c.count), 10), nil
}

func (c *chat) End(err error) {
	c.place.mu.Lock()
	defer c.place.mu.Unlock()
	c.place.ended = append(c.place.ended, err)
}

// ends returns the errors that End had.
func (p *place) ends() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]error(nil), p.ended...)
}

// setTime changes a time for the test.
func setTime(t *testing.T, time *time.Duration, to time.Duration) {
	old := *time
	t.Cleanup(func() { *time = old })
	*time = to
}

func serverFrame(text string) []byte {
	if len(text) > 125 {
		panic("too long")
	}
	return append([]byte{link.Fin | 0x1, byte(len(text))}, text...)
}

// peer is a client of a place.
type peer struct {
	net.Conn
	t     testing.TB
	br    *bufio.Reader
	room  string
	count int // answers
}

// join makes a conversation. The room tells it from others.
func (p *place) join(room string, fields ...string) *peer {
	p.t.Helper()
	nc := testnet.Dial(p.t, p.ln)
	c := &peer{Conn: nc, t: p.t, br: bufio.NewReader(nc), room: room}
	c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	fmt.Fprintf(c, "GET /chat?room=%s HTTP/1.1\r\nHost: example.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n", room, strings.Join(fields, ""))
	res, err := http.ReadResponse(c.br, nil)
	if err != nil || res.StatusCode > http.StatusOK {
		p.t.Fatalf("got %v, %v, want the connection upgraded", res, err)
	}
	return c
}

// frame returns the next frame that the server sends.
func (c *peer) frame() (opcode byte, payload []byte, err error) {
	c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	var head [2]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, head[1])
	_, err = io.ReadFull(c.br, payload)
	return head[0] & 0xf, payload, err
}

func (c *peer) send(p []byte) {
	c.t.Helper()
	if _, err := c.Write(p); err != nil {
		c.t.Errorf("room %s: sending: %v", c.room, err)
	}
}

// want wants an answer, whose number is the next.
func (c *peer) want(text string) (ok bool) {
	c.t.Helper()
	c.count++
	want := fmt.Sprint(c.count, " ", c.room, " ", text)
	if op, p, err := c.frame(); err != nil || op != 0x1 || string(p) != want {
		c.t.Errorf("room %s: got the frame %d %q, %v, want the text %q", c.room, op, p, err, want)
		return false
	}
	return true
}

func (c *peer) ask(text string) (ok bool) {
	c.t.Helper()
	c.send(frame(text))
	return c.want(text)
}

// wantAway wants a close message with code 1012, and closes.
func (c *peer) wantAway() {
	c.t.Helper()
	op, p, err := c.frame()
	if err != nil || op != link.Close || string(p) != "\x03\xf4" {
		c.t.Errorf("room %s: got the frame %d %q, %v, want a close message with code 1012", c.room, op, p, err)
	}
	c.send(clientFrame(link.Fin|link.Close, string(p)))
	c.Close()
}

func (c *peer) wantEOF() {
	c.t.Helper()
	if op, p, err := c.frame(); err != io.EOF {
		c.t.Errorf("room %s: got the frame %d %q, %v, want %v", c.room, op, p, err, io.EOF)
	}
}

// handOver gives everything that p has to a new place, as package handover does between two processes,
// and returns that.
func (p *place) handOver(to *place) *place {
	p.t.Helper()
	to.serve()
	ctx, cancel := context.WithTimeout(p.t.Context(), testnet.HangTimeout)
	defer cancel()
	for range 2 {
		if err := (carrier{p.group}).HandOver(ctx, seam.ListenerOf(p.ln).Has, to.adopt); err != nil {
			p.t.Fatal(err)
		}
	}
	return to
}

// adopt takes copies of another place's connections over.
func (p *place) adopt(batch []handover.CarriedConn, more bool) error {
	var copies []handover.CarriedConn
	for _, c := range batch {
		nc, err := adoptCopy(p.ln, c.Conn)
		if err != nil {
			return err
		}
		copies = append(copies, handover.CarriedConn{Conn: nc, State: c.State})
	}
	carrier{p.group}.TakeOver(copies, more)
	return nil
}

// adoptCopy returns a connection of ln's that is a copy of nc.
func adoptCopy(ln net.Listener, nc net.Conn) (net.Conn, error) {
	raw, err := nc.(*percore.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var errno syscall.Errno
	if err := raw.Control(func(own uintptr) { fd, errno = sys.Dup(int(own)) }); err != nil || errno != 0 {
		return nil, errors.Join(err, os.NewSyscallError("dup", errno))
	}
	return seam.ListenerOf(ln).AdoptAside(fd, seam.ConnInfoOf(nc))
}

// TestMove: conversations go on in another process, and in the next, while their clients send. Each
// message is answered once, in order, and Sessions end with ErrMoved.
func TestMove(t *testing.T) {
	testnet.NoLeaks(t)
	const idle, talking, moves = 70, 10, 3
	before := ReadStats()
	from := newPlace(t).serve()
	var silent []*peer
	for i := range idle {
		silent = append(silent, from.join(fmt.Sprint("silent", i)))
	}
	var stop atomic.Bool
	var talkers sync.WaitGroup
	for i := range talking {
		c := from.join(fmt.Sprint("talker", i))
		talkers.Go(func() {
			for n := 0; !stop.Load() && c.ask(fmt.Sprint("message", n)); n++ {
			}
			c.Close()
		})
	}
	for i := range moves {
		to := from.handOver(newPlace(t))
		for _, c := range silent {
			c.ask("hello")
		}
		testnet.Eventually(t, "the ends", func() bool { return len(from.ends()) == idle+talking })
		for _, err := range from.ends() {
			if err != ErrMoved {
				t.Errorf("move %d: got the end %v, want %v", i, err, ErrMoved)
			}
		}
		testnet.Eventually(t, "no connection is left", func() bool { return from.conns.Len() == 0 }) // after End
		from = to
	}
	stop.Store(true)
	talkers.Wait()
	for _, c := range silent {
		c.Close()
	}
	testnet.Eventually(t, "the sessions' end", func() bool { return wsadapter.ReadStats().Sessions == 0 })
	got := ReadStats()
	if n := got.Moved - before.Moved; n != moves*(idle+talking) || got.Restored-before.Restored != n {
		t.Errorf("got %d moved and %d restored, want %d", n, got.Restored-before.Restored, moves*(idle+talking))
	}
}

// TestStay: conversations that can't move stay, each for its reason, and are told to connect again when
// the server shuts down, while others move.
func TestStay(t *testing.T) {
	testnet.NoLeaks(t)
	refuse := func(*chat) ([]byte, error) { return nil, errors.New("no") }
	for _, test := range []struct {
		name   string
		why    reason
		field  string // of the request
		change func(p *place)
	}{
		{"a session without Save", noSave, "", func(p *place) {
			p.session = func(c *chat) wsadapter.Session[string] { return struct{ wsadapter.Session[string] }{c} }
		}},
		{"a long header", byRequest, "Cookie: " + strings.Repeat("x", requestMax) + "\r\n", func(*place) {}},
		{"an extension with state", byExtension, "", func(p *place) {
			p.fields = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n"
		}},
		{"an answer with another status", byAnswer, "", func(p *place) { p.status = "200 OK" }},
		{"an unknown extension", byExtension, "", func(p *place) { p.fields = "Sec-WebSocket-Extensions: bbf-usp-protocol\r\n" }},
		{"Save says no", bySave, "", func(p *place) { p.save = refuse }},
		{"a long answer and a long state", byState, "", func(p *place) {
			p.fields = "Sec-WebSocket-Protocol: " + strings.Repeat("x", handover.CarriedBytesMax-StateMax) + "\r\n"
			p.save = func(*chat) ([]byte, error) { return make([]byte, StateMax), nil }
		}},
		{"a library that reads on a goroutine of its own", byConn, "", func(p *place) {
			queue := make(chan string)
			p.session = func(c *chat) wsadapter.Session[string] {
				go func() {
					defer close(queue)
					for m, err := c.library.read(); err == nil; m, err = c.library.read() {
						queue <- m
					}
				}()
				return c
			}
			p.read = func(c *chat) (string, error) {
				if m, ok := <-queue; ok {
					return m, nil
				}
				return "", c.library.err
			}
		}},
		{"a long state", byState, "", func(p *place) { p.save = func(*chat) ([]byte, error) { return make([]byte, StateMax+1), nil } }},
	} {
		t.Run(test.name, func(t *testing.T) {
			from := newPlace(t).serve()
			test.change(from)
			before := counters.stayed[test.why].Load()
			c := from.join("stays", test.field)
			c.ask("one")
			to := from.handOver(newPlace(t))
			c.ask("two")
			c.ask("three")
			if n := counters.stayed[test.why].Load() - before; n != 1 {
				t.Errorf("got %d that stay for the reason, want 1", n)
			}
			if from.conns.Len() != 1 || to.conns.Len() != 0 {
				t.Errorf("got %d and %d connections, want 1 and none", from.conns.Len(), to.conns.Len())
			}
			down := make(chan error, 1)
			go func() { down <- from.conns.Shutdown(t.Context()) }()
			c.wantAway()
			if err := testnet.Receive(t, "Shutdown", down); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLost: a conversation that can't go on in the other process is told to connect again, and the
// others go on.
func TestLost(t *testing.T) {
	testnet.NoLeaks(t)
	setTime(t, &refusalSpread, time.Millisecond)
	var logged testnet.Log
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	from := newPlace(t).serve()
	to := newPlace(t)
	to.restorer = func(up *wsadapter.Upgrade, r *http.Request, state []byte) error {
		switch r.URL.Query().Get("room") {
		case "fails":
			return errors.New("no room")
		case "panics":
			panic("no room")
		case "forgets":
			return nil
		case "protocol":
			other := newPlace(t)
			other.fields = "Sec-WebSocket-Protocol: another\r\n"
			return other.restore(up, r, state)
		case "status":
			up.WriteHeader(http.StatusForbidden)
			return errors.New("forbidden")
		case "late":
			err := to.restore(up, r, state)
			return errors.Join(err, errors.New("after Start"))
		}
		return to.restore(up, r, state)
	}
	before := ReadStats()
	rooms := []string{"fails", "panics", "forgets", "protocol", "status", "late"}
	var clients []*peer
	for _, room := range append(rooms, "good") {
		c := from.join(room)
		c.ask("one")
		clients = append(clients, c)
	}
	from.handOver(to)
	for _, c := range clients[:len(rooms)] {
		c.wantAway()
	}
	clients[len(rooms)].ask("two")
	if got := ReadStats(); got.Lost-before.Lost != uint64(len(rooms)) || got.Restored-before.Restored != 1 {
		t.Errorf("got %d lost and %d restored, want %d and 1", got.Lost-before.Lost, got.Restored-before.Restored, len(rooms))
	}
	clients[len(rooms)].Close()
	testnet.Eventually(t, "the end of all", func() bool { return to.conns.Len() == 0 })
	if logged.Count("is closed: ") != len(rooms) {
		t.Errorf("got the log %q, want %d lines about connections", &logged, len(rooms))
	}
}
