package frameworks

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/percore/percore/internal/testnet"
)

// A socketServer is a handler that sends back each message, and reports how the conversation ended.
type socketServer struct {
	name   string
	handle func(w http.ResponseWriter, r *http.Request) error
}

var socketServers = []socketServer{{"coder", coderServer}, {"gorilla", gorillaServer}}

// goodbye is the reason that clients give when they close.
const goodbye = "goodbye"

func coderServer(w http.ResponseWriter, r *http.Request) error {
	c, err := coder.Accept(w, r, nil)
	if err != nil {
		return err
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	for {
		kind, data, err := c.Read(context.Background())
		var closed coder.CloseError
		if errors.As(err, &closed) {
			return fmt.Errorf("closed: %d %s", closed.Code, closed.Reason)
		}
		if err != nil {
			return err
		}
		if err := c.Write(context.Background(), kind, data); err != nil {
			return err
		}
	}
}

func gorillaServer(w http.ResponseWriter, r *http.Request) error {
	c, err := new(gorilla.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		kind, data, err := c.ReadMessage()
		var closed *gorilla.CloseError
		if errors.As(err, &closed) {
			return fmt.Errorf("closed: %d %s", closed.Code, closed.Text)
		}
		if err != nil {
			return err
		}
		c.SetWriteDeadline(time.Now().Add(testnet.HangTimeout))
		if err := c.WriteMessage(kind, data); err != nil {
			return err
		}
	}
}

// A socket is a client's connection, of package net: the library is not under test.
type socket struct {
	c    *gorilla.Conn
	pong chan string
}

func dialSocket(ctx context.Context, client *http.Client, url string) (*socket, error) {
	dialer := &gorilla.Dialer{NetDialContext: client.Transport.(*http.Transport).DialContext}
	c, resp, err := dialer.DialContext(ctx, strings.Replace(url, "http", "ws", 1), nil)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	s := &socket{c, make(chan string, 1)}
	c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	c.SetPongHandler(func(data string) error {
		s.pong <- data
		return nil
	})
	return s, nil
}

func (s *socket) send(text bool, data []byte) error {
	kind := gorilla.BinaryMessage
	if text {
		kind = gorilla.TextMessage
	}
	return s.c.WriteMessage(kind, data)
}

func (s *socket) receive() (bool, []byte, error) {
	kind, data, err := s.c.ReadMessage()
	return kind == gorilla.TextMessage, data, err
}

// ping sends a ping and waits for the pong, while another goroutine receives.
func (s *socket) ping() error {
	const data = "are you there?"
	if err := s.c.WriteControl(gorilla.PingMessage, []byte(data), time.Now().Add(testnet.HangTimeout)); err != nil {
		return err
	}
	select {
	case got := <-s.pong:
		if got != data {
			return fmt.Errorf("a pong with %q, want %q", got, data)
		}
		return nil
	case <-time.After(testnet.HangTimeout):
		return errors.New("no pong")
	}
}

// close sends a close message and waits for the answer.
func (s *socket) close() error {
	defer s.c.Close()
	bye := gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, goodbye)
	if err := s.c.WriteControl(gorilla.CloseMessage, bye, time.Now().Add(testnet.HangTimeout)); err != nil {
		return err
	}
	_, _, err := s.c.ReadMessage()
	if !gorilla.IsCloseError(err, gorilla.CloseNormalClosure) {
		return fmt.Errorf("waiting for the other side's close: %w", err)
	}
	return nil
}

// TestWebSocket talks to each library's server, directly and through a reverse proxy.
func TestWebSocket(t *testing.T) {
	for _, server := range socketServers {
		for _, proxied := range []bool{false, true} {
			t.Run(fmt.Sprintf("server=%s,proxied=%t", server.name, proxied), func(t *testing.T) {
				onEachWay(t, func(s *stage) { talkWebSocket(s, server, proxied) })
			})
		}
	}
}

func talkWebSocket(s *stage, server socketServer, proxied bool) {
	ended := make(chan error, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) { ended <- server.handle(w, r) })
	st := s.start(&http.Server{Handler: mux}, setup{})
	if proxied {
		st = s.start(&http.Server{Handler: proxyTo(s, st)}, setup{})
	}
	c, err := dialSocket(s.context(), st.client, st.url+"/socket")
	if err != nil {
		s.Fatalf("dialing: %v", err)
	}
	long := make([]byte, 4<<20)
	rand.Read(long)
	for _, text := range []bool{true, false} {
		for _, data := range [][]byte{[]byte("hello"), {}, bytes.Repeat([]byte("x"), 70_000), long} {
			if text && len(data) == len(long) {
				continue // not UTF-8
			}
			roundTrip(s, c, text, data)
		}
	}

	// This connection waits until another client's connection is parked. It must not be parked itself.
	s.want("another connection", st.get("/hello"), "hello")
	st.awaitParked(-1)
	roundTrip(s, c, true, []byte("still there"))

	// Only Read notices a pong, so one must be running.
	received := make(chan string, 1)
	go func() {
		_, data, err := c.receive()
		received <- fmt.Sprintf("%s %v", data, err)
	}()
	s.expect("<nil>", "%v", c.ping())
	s.expect("<nil>", "%v", c.send(true, []byte("after the ping")))
	s.expect("after the ping <nil>", "%v", testnet.Receive(s, "the last message", received))

	s.expect("<nil>", "%v", c.close())
	s.expect("closed: 1000 goodbye", "%v", testnet.Receive(s, "the handler ending", ended))
	if st.adapter != nil {
		if got := st.adapter.Stats().Hijacked; got != 1 {
			s.Errorf("%d connections were hijacked, want 1", got)
		}
	}
}

// roundTrip sends a message and expects it back.
func roundTrip(s *stage, c *socket, text bool, data []byte) {
	s.Helper()
	sent := make(chan error, 1)
	go func() { sent <- c.send(text, data) }()
	gotText, got, err := c.receive()
	if err != nil || gotText != text || !bytes.Equal(got, data) {
		s.Fatalf("a message of %d bytes: got %d bytes, text %t, error %v; want the same, text %t", len(data), len(got), gotText, err, text)
	}
	s.expect("<nil>", "%v", testnet.Receive(s, "sending", sent))
}

// proxyTo returns a reverse proxy. Its connections are closed when the test ends.
func proxyTo(s *stage, backend *site) http.Handler {
	target, err := url.Parse(backend.url)
	if err != nil {
		s.Fatal(err)
	}
	transport := new(http.Transport)
	s.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0),
	}
}
