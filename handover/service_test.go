package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// get makes a request on a connection of its own.
func get(address, path string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testnet.HangTimeout}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// A Service serves on after Leaving until its delay, or one of its servers, has ended.
func TestServiceDelay(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	ready, leaving, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s := Service{
		Parts:      []Part{{Name: "web", Listener: ln, Server: httpadapter.Wrap(&http.Server{Handler: hello})}},
		DrainDelay: time.Hour,
		Ready:      func([]net.Listener) { close(ready) },
		Leaving:    func() { close(leaving) },
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	testnet.Receive(t, "Ready", ready)
	stop()
	testnet.Receive(t, "Leaving", leaving)
	if got, err := get(ln.Addr().String(), "/"); got != "hello" || err != nil {
		t.Errorf("during the delay: got %q, %v", got, err)
	}
	ln.Close() // behind the server's back
	if err := testnet.Receive(t, "Run", ended); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Requests that take longer than Drain are cut off, and so are hijacked connections.
func TestServiceDrain(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	var conns Conns
	defer conns.Add(func() {})() // a connection that doesn't care
	begun := make(chan struct{})
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	s := Service{
		Parts: []Part{{Name: "web", Listener: ln, Server: httpadapter.Wrap(&http.Server{Handler: endless})}},
		Drain: 20 * time.Millisecond,
		Conns: &conns,
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	go func() {
		_, err := get(ln.Addr().String(), "/")
		answered <- err
	}()
	testnet.Receive(t, "the request", begun)
	stop()
	err := testnet.Receive(t, "Run", ended)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"web"`) || !strings.Contains(err.Error(), "1 hijacked") {
		t.Errorf("Run: got %v, want it to say what was cut off", err)
	}
	if err := testnet.Receive(t, "the answer", answered); err == nil {
		t.Error("the request was answered")
	}
}

// A Service that can't open all of its listeners leaves none open, and one whose server fails ends.
func TestServiceFails(t *testing.T) {
	testnet.NoLeaks(t)
	busy := testnet.Listen(t, net.Listen, testnet.TCP4)
	server := func() Lifecycle { return httpadapter.Wrap(&http.Server{}) }
	first, last := testnet.Listen(t, percore.Listen, testnet.TCP4), testnet.Listen(t, percore.Listen, testnet.TCP4)
	s := Service{Parts: []Part{
		{Name: "first", Listener: first, Server: server()},
		{Name: "busy", Address: busy.Addr().String(), Server: server()},
		{Name: "last", Listener: last, Server: server()},
	}}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"busy"`) {
		t.Errorf("got %v, want an error about the part", err)
	}
	for _, l := range []net.Listener{first, last} {
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: got %v, want a closed listener", err)
		}
	}

	failure := errors.New("a test's failure")
	s = Service{Parts: []Part{{
		Name: "web", Config: new(percore.ListenConfig), Address: "127.0.0.1:0", Server: server(),
		Serve: func(l net.Listener) error { return errors.Join(failure, l.Close()) },
	}}}
	if err := s.Run(t.Context()); !errors.Is(err, failure) {
		t.Errorf("got %v, want the server's error", err)
	}
}

var _ Drainer = (*httpadapter.Server)(nil)

// drainer notes the calls of a Service.
type drainer struct {
	mu      sync.Mutex
	calls   []string
	fails   bool // Serve does, when Drain is called
	stopped chan struct{}
}

func (s *drainer) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

func (s *drainer) Serve(l net.Listener) error {
	<-s.stopped
	return l.Close()
}

func (s *drainer) Drain(ctx context.Context) error {
	s.note("draining")
	if s.fails {
		close(s.stopped)
	}
	<-ctx.Done()
	s.note("drained")
	return ctx.Err()
}

func (s *drainer) Shutdown(context.Context) error {
	s.note("shutdown")
	if !s.fails {
		close(s.stopped)
	}
	return nil
}

func (s *drainer) Close() error { return nil }

// A Service drains at the end of its delay, until that ends or a server fails, and after a handover
// before it shuts down.
func TestServiceDrainer(t *testing.T) {
	const drained = "[draining drained shutdown]"
	for _, tt := range []struct {
		name  string
		delay time.Duration
		fails bool
		want  string
	}{
		{"no delay", 0, false, "[shutdown]"},
		{"delay", 20 * time.Millisecond, false, drained},
		{"delay that is over at once", time.Nanosecond, false, drained},
		{"failure", drainLimit, true, drained},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			for range 10 { // two things that are due may be done in either order
				srv := &drainer{stopped: make(chan struct{}), fails: tt.fails}
				s := Service{Parts: []Part{{Name: "web", Address: "127.0.0.1:0", Server: srv}}, DrainDelay: tt.delay}
				ctx, stop := context.WithCancel(t.Context())
				s.Ready = func([]net.Listener) { stop() }
				if err := s.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
				if got := fmt.Sprint(srv.calls); got != tt.want {
					t.Errorf("got calls %s, want %s", got, tt.want)
				}
			}
		})
	}
	t.Run("handed over", func(t *testing.T) {
		testnet.NoLeaks(t)
		srv := &drainer{stopped: make(chan struct{})}
		s := Service{Parts: []Part{{Name: "web", Server: srv}}, Drain: 20 * time.Millisecond}
		r := &run{Service: &s, failed: make(chan error, 1)}
		r.serve(&s.Parts[0], testnet.Listen(t, percore.Listen, testnet.TCP4))
		if err := r.shutdown(true); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if got := fmt.Sprint(srv.calls); got != drained {
			t.Errorf("got calls %s, want %s", got, drained)
		}
	})
}

// keepAlives is an http.Server that calls a function when its keep-alives are off.
type keepAlives struct {
	*http.Server
	off func()
}

func (s keepAlives) SetKeepAlivesEnabled(on bool) {
	s.Server.SetKeepAlivesEnabled(on)
	s.off()
}

// After a handover an http.Server answers the first request of a connection that it has accepted before.
func TestServiceLateRequest(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	accepted := make(chan struct{}, 1)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answer") }),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				accepted <- struct{}{}
			}
		},
	}
	late := make(chan string, 1)
	request := func(c net.Conn) {
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		b, err := io.ReadAll(c)
		late <- fmt.Sprintf("%s %v", b, err)
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		testnet.Receive(t, "the server's connection", accepted)
		return c
	}
	check := func() {
		t.Helper()
		got := testnet.Receive(t, "the client", late)
		if !strings.Contains(got, "\r\nConnection: close\r\n") || !strings.HasSuffix(got, "answer <nil>") {
			t.Errorf("got %q, want the answer and the connection's end", got)
		}
	}
	server := &keepAlives{Server: srv}
	s := Service{Parts: []Part{{Name: "web", Server: server}}, Drain: testnet.HangTimeout}
	r := &run{Service: &s, failed: make(chan error, 1)}
	r.serve(&s.Parts[0], ln)

	// However late it comes, if there is time.
	c := dial()
	server.off = func() { go request(c) }
	s.Parts[0].drainMoved(t.Context(), ln)
	if _, ok := ln.(*percore.Listener); ok && openConns(ln) != 0 {
		t.Error("a connection was left")
	}
	check()

	c = dial()
	server.off = func() { request(c) }
	if err := r.shutdown(true); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	check()
}

// upgrading is a server with a handler that upgrades its connection during Shutdown.
type upgrading struct {
	*drainer
	upgrade func()
}

func (s *upgrading) Shutdown(ctx context.Context) error {
	s.upgrade()
	return s.drainer.Shutdown(ctx)
}

// A Service waits for connections that are hijacked while it shuts down, too.
func TestServiceUpgradedLate(t *testing.T) {
	testnet.NoLeaks(t)
	var conns Conns
	// add adds a connection that is told to end, and then does so.
	add := func(ended func()) {
		remove := make(chan func(), 1)
		remove <- conns.Add(func() {
			ended()
			(<-remove)()
		})
	}
	firstEnded := make(chan struct{})
	lateEnds := false
	srv := &upgrading{&drainer{stopped: make(chan struct{})}, func() {
		<-firstEnded // so those that were there before the shutdown have been waited for
		add(func() { lateEnds = true })
	}}
	s := Service{Parts: []Part{{Name: "web", Address: "127.0.0.1:0", Server: srv}}, Conns: &conns, Drain: testnet.HangTimeout}
	ctx, stop := context.WithCancel(t.Context())
	s.Ready = func([]net.Listener) {
		add(func() { close(firstEnded) })
		stop()
	}
	if err := s.Run(ctx); err != nil || !lateEnds {
		t.Errorf("got %v, and the late connection ended: %t, want true", err, lateEnds)
	}
}
