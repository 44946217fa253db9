package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/testnet"
)

// dialers are the ways to make a client's connection.
var dialers = map[string]func(network, addr string) (net.Conn, error){
	"percore": percore.Dial,
	"net":     net.Dial,
}

// eachPair runs a test with clients on percore and on net, against each kind of server.
func eachPair(t *testing.T, test func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn)) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		for name, dial := range dialers {
			t.Run(name, func(t *testing.T) {
				test(t, start, func(f *fixture, config ClientConfig) *Conn { return f.attach(dial, config) })
			})
		}
	})
}

// attach makes a client with one connection to the server. Both end with the test.
func (f *fixture) attach(dial func(network, addr string) (net.Conn, error), config ClientConfig) *Conn {
	f.t.Helper()
	nc, err := dial("tcp", f.l.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	if f.tls != nil {
		to := f.tls.Clone()
		to.NextProtos = []string{"h2"}
		tc := tls.Client(nc, to)
		if err := tc.Handshake(); err != nil {
			f.t.Fatal(err)
		}
		nc = tc
	}
	client := NewClient(config)
	c, err := client.Attach(nc, client)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { client.Close() })
	return c
}

// clientOf returns the client of a connection of attach or pipeClient.
func clientOf(c *Conn) *Client { return c.User().(*Client) }

// post is a request with a body.
var post = &Request{Method: "POST", Scheme: "http", Authority: "example.com", Path: "/"}

// noContext is nil, in a way that linters don't see.
var noContext context.Context

// call makes a request whose answer is read whole.
func call(c *Conn, m Message) (answer Answer, body []byte, trailers []Field, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	return callWith(ctx, c, m)
}

func callWith(ctx context.Context, c *Conn, m Message) (answer Answer, body []byte, trailers []Field, err error) {
	var s Stream
	defer s.Close()
	long := len(m.Body) > 100<<10 // an echo is not read before its request is written
	first := m
	if long {
		first = Message{}
	}
	if err := c.Open(ctx, &s, post, first); err != nil {
		return Answer{}, nil, nil, err
	}
	if long {
		go func() { _ = s.Send(m) }()
	}
	if answer, err = s.Answer(); err != nil {
		return Answer{}, nil, nil, err
	}
	body, err = io.ReadAll(&s)
	return answer, body, s.Trailers(), err
}

// open opens a stream, which is closed when the test ends.
func open(t *testing.T, c *Conn, m Message) *Stream {
	t.Helper()
	s := new(Stream)
	if err := c.Open(t.Context(), s, post, m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestClientCalls makes calls with bodies of many lengths, and with trailers, one after the other and
// many at once.
func TestClientCalls(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		c := attach(start(HandlerFunc(echo), Config{}), ClientConfig{})
		check := func(size int) error {
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			answer, got, trailers, err := call(c, Message{Body: body, Trailers: []Field{MakeField("size", fmt.Sprint(size))}})
			if err != nil || answer.Status != 200 || !bytes.Equal(got, body) || len(trailers) != 1 || trailers[0].Value != fmt.Sprint(size) {
				return fmt.Errorf("%d bytes: got %v, %d bytes, trailers %v, %v", size, answer, len(got), trailers, err)
			}
			return nil
		}
		for _, size := range []int{0, 1, 1000, 1024, 5000, 16 << 10, 100 << 10, 3 << 20} {
			if err := check(size); err != nil {
				t.Error(err)
			}
		}
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				if err := check(i * 500); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		testnet.Eventually(t, "no stream is open", func() bool { return c.Streams() == 0 })
	})
}

// TestClientAwaitEnd waits for whole answers, and for those that are longer than it wants to wait for.
func TestClientAwaitEnd(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		c := attach(start(HandlerFunc(echo), Config{}), ClientConfig{})
		for _, size := range []int{0, 10, 1000, 100_000, 900_000} {
			s := open(t, c, Message{Body: make([]byte, size), End: true})
			s.AwaitEnd(50_000)
			if n := s.Buffered(); n < min(size, 50_000) {
				t.Errorf("got %d bytes of %d, want all, or 50,000", n, size)
			}
			if got, err := io.ReadAll(s); len(got) != size || err != nil {
				t.Errorf("got %d bytes and %v, want %d", len(got), err, size)
			}
			s.Close()
		}
	})
}

// TestClientWhole: a stream that has ended well is read without its connection's lock, while another
// goroutine closes it: the reader gets all bytes, or an error behind the first ones.
func TestClientWhole(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		c := attach(start(HandlerFunc(echo), Config{}), ClientConfig{})
		sent := bytes.Repeat([]byte("0123456789abcdef"), 2<<10)
		for i := range 20 {
			s := open(t, c, Message{Body: sent, End: true})
			_ = s.SetReadDeadline(time.Now().Add(time.Hour))
			s.AwaitEnd(len(sent) + 1)
			if answer, err := s.Answer(); err != nil || answer.Status != 200 || s.Buffered() != len(sent) {
				t.Fatalf("got %v, %v, %d bytes", answer, err, s.Buffered())
			}
			if !s.whole.Load() {
				t.Fatal("the stream is not whole")
			}
			if d := s.extras.deadlines[readDeadline]; d != nil && d.Stop() {
				t.Error("a deadline is left")
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				if i%2 == 0 {
					s.Close()
				} else {
					s.CloseRead()
				}
			}()
			got, err := io.ReadAll(iotest.OneByteReader(s))
			if <-closed; err == nil && len(got) != len(sent) || err != nil && err != ErrEnded || !bytes.HasPrefix(sent, got) {
				t.Fatalf("got %d bytes of %d, %v", len(got), len(sent), err)
			}
			if err := s.SetReadDeadline(time.Now()); err != nil || s.Buffered() != 0 {
				t.Errorf("got %v from SetReadDeadline, and %d bytes", err, s.Buffered())
			}
			s.Close()
		}
	})
}

// TestClientRelease makes calls on two connections in turn with the memory of one stream, as long as
// Release allows it.
func TestClientRelease(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		f := start(HandlerFunc(echo), Config{})
		conns := []*Conn{attach(f, ClientConfig{}), attach(f, ClientConfig{})}
		s := new(Stream)
		for i := range 100 {
			body := []byte(fmt.Sprint("body ", i))
			trailers := []Field{MakeField("number", fmt.Sprint(i))}
			if err := conns[i%2].Open(t.Context(), s, post, Message{Body: body, Trailers: trailers}); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(s)
			if err != nil || !bytes.Equal(got, body) || len(s.Trailers()) != 1 || s.Trailers()[0].Value != trailers[0].Value {
				t.Fatalf("call %d: got %q, trailers %v, %v", i, got, s.Trailers(), err)
			}
			if i%10 == 0 {
				testnet.Eventually(t, "the turn has woken the stream", func() bool { return !s.cond.due.Load() })
				if !s.Release() {
					t.Fatal("a stream that has ended is not released")
				}
			} else if !s.Release() {
				s = new(Stream)
			}
			*s = Stream{}
		}
	})
}

// TestClientNotReleased: the memory of a stream is not used again if something may still touch it.
func TestClientNotReleased(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		c := attach(start(HandlerFunc(echo), Config{}), ClientConfig{})
		open := func(m Message) *Stream { return open(t, c, m) }
		await := func(s *Stream) {
			s.AwaitEnd(1)
			testnet.Eventually(t, "the stream has ended", func() bool { return s.whole.Load() && !s.cond.due.Load() })
		}
		if new(Stream).Release() {
			t.Error("a stream was released that was not opened")
		}
		if open(Message{Body: []byte("x")}).Release() {
			t.Error("a stream was released that had not ended")
		}
		s := open(Message{})
		_ = s.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := s.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if err := s.Send(Message{End: true}); err != nil {
			t.Error(err)
		}
		if await(s); s.Release() {
			t.Error("a stream was released that had a deadline")
		}
		s = open(Message{End: true})
		await(s)
		if s.cond.due.Store(true); s.Release() {
			t.Error("a stream was released that a turn was about to wake")
		}
		s.cond.due.Store(false)
		if !s.Release() {
			t.Error("a stream that has ended is not released")
		}
	})
}

// TestClientStreams lets both sides write in turns.
func TestClientStreams(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		c := attach(start(HandlerFunc(echo), Config{}), ClientConfig{})
		s := open(t, c, Message{})
		for i := range 100 {
			word, got := fmt.Sprintf("word %03d", i), make([]byte, 8)
			if _, err := s.Write([]byte(word)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.ReadFull(got); err != nil || string(got) != word {
				t.Fatalf("got %q and %v, want %q", got, err, word)
			}
		}
	})
}

// TestLimits: the limits of what a server may send are those of a client's core, and a client may reset
// as many streams as Config.Resets says, at once and again each second.
func TestLimits(t *testing.T) {
	got, want := NewClient(ClientConfig{}).conns.limits, http2.DefaultConfig()
	if want.ForClient(); got.Idle != want.Idle || got.ControlFrames != want.ControlFrames {
		t.Errorf("got %+v, want the budgets of %+v", got, want)
	}
	if got := New(HandlerFunc(hello), Config{Resets: 20}).limits.Resets; got != (http2.Budget{Burst: 20, PerSecond: 20}) {
		t.Errorf("got the budget %+v of resets, want 20 for both", got)
	}
}

// TestClientRoom lets calls wait for room, in their order, and gives them up with their contexts.
func TestClientRoom(t *testing.T) {
	release := make(chan struct{})
	f := serve(t, HandlerFunc(func(s *Stream, r *Request) {
		<-release
		hello(s, r)
	}), Config{Streams: 2})
	c := f.attach(percore.Dial, ClientConfig{})
	testnet.Eventually(t, "the server's limit is known", func() bool { return c.Quota() == 2 })
	streams := make([]Stream, 2)
	for i := range streams {
		if err := c.Open(noContext, &streams[i], post, Message{End: true}); err != nil {
			t.Fatal(err)
		}
		defer streams[i].Close()
	}
	if err := c.Open(noContext, new(Stream), post, Message{End: true}); err != ErrNoQuota {
		t.Fatalf("got %v, want ErrNoQuota", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { given <- c.Open(ctx, new(Stream), post, Message{End: true}) }()
	testnet.Eventually(t, "it waits", func() bool { return c.openers() == 1 })
	order := make(chan int, 10)
	var waiting sync.WaitGroup
	for i := range 10 {
		waiting.Go(func() {
			var s Stream
			defer s.Close()
			if err := c.Open(t.Context(), &s, post, Message{End: true}); err != nil {
				t.Error(err)
			}
			order <- i
			if _, err := s.Answer(); err != nil {
				t.Error(err)
			}
		})
		testnet.Eventually(t, "it waits", func() bool { return c.openers() == i+2 })
	}
	cancel()
	if err := testnet.Receive(t, "the error", given); err != context.Canceled {
		t.Errorf("got %v, want that the context is done", err)
	}
	close(release)
	waiting.Wait()
	seen := make([]bool, 10)
	for range 10 {
		seen[<-order] = true
	}
	for i, was := range seen {
		if !was {
			t.Errorf("call %d was not made", i)
		}
	}
	if c.Quota() != 2-c.Streams() {
		t.Errorf("there is room for %d, and %d streams are open", c.Quota(), c.Streams())
	}
}

// TestClientReserve: a reservation takes room, of which Roomy tells once there is some again, and keeps
// the connection from being idle.
func TestClientReserve(t *testing.T) {
	f := serve(t, HandlerFunc(hello), Config{Streams: 2})
	ready, roomy := make(chan struct{}), make(chan struct{}, 1)
	c := f.attach(percore.Dial, ClientConfig{Reserve: true, IdleTimeout: time.Nanosecond, State: func(c *Conn, s ConnState) {
		switch s {
		case Ready:
			close(ready)
		case Roomy:
			roomy <- struct{}{}
		}
	}})
	testnet.Receive(t, "the server's SETTINGS", ready)
	if !c.Reserve() || c.Reserve() || c.Reserved() != 2 || c.Quota() != 0 {
		t.Fatalf("%d are reserved, and there is room for %d", c.Reserved(), c.Quota())
	}
	if c.GoAwayIfIdle() {
		t.Error("a connection with a reservation was drained")
	}
	c.Unreserve()
	testnet.Receive(t, "room", roomy)
	if _, got, _, err := callWith(noContext, c, Message{End: true}); string(got) != "Hello, World!" || err != nil {
		t.Fatalf("got %q and %v", got, err)
	}
	if n := c.Reserved(); n != 0 {
		t.Errorf("%d are reserved after the stream", n)
	}
	testnet.Eventually(t, "the idle connection ends", func() bool { return !c.TakesStreams() })
	if c.Reserve() {
		t.Error("a connection that leaves has room")
	}
}

func (c *Conn) openers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting.openers)
}

// TestClientCancel closes streams while their calls wait, and while bodies are under way.
func TestClientCancel(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		cancelled := make(chan struct{}, 3)
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			_ = s.Send(Message{Status: 200, Body: make([]byte, 5000)})
			_, _ = s.Read(make([]byte, 1))
			_ = s.Send(Message{End: true})
			cancelled <- struct{}{}
		}), Config{})
		c := attach(f, ClientConfig{})
		for range 3 {
			s := open(t, c, Message{})
			if _, err := s.Answer(); err != nil {
				t.Fatal(err)
			}
			read := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, s)
				read <- err
			}()
			s.Close()
			if err := testnet.Receive(t, "Read's error", read); err == nil {
				t.Error("Read has come to an end")
			}
			testnet.Receive(t, "the handler's end", cancelled)
		}
		testnet.Eventually(t, "no stream is open", func() bool { return c.Streams() == 0 && f.server.Stats().Streams == 0 })
		if _, _, _, err := call(c, Message{Body: []byte("x")}); err != nil {
			t.Errorf("the connection is of no more use: %v", err)
		}
		testnet.Receive(t, "the handler's end", cancelled)
	})
}

// TestClientEarlyAnswer: an answer that is complete before the request has ended is read as a whole.
func TestClientEarlyAnswer(t *testing.T) {
	f := serve(t, HandlerFunc(hello), Config{})
	c := f.attach(percore.Dial, ClientConfig{})
	for range 20 {
		s := open(t, c, Message{Body: []byte("part")})
		testnet.Eventually(t, "the server resets the stream", func() bool { return s.Err() != nil })
		var reset *StreamError
		if err := s.Err(); !errors.As(err, &reset) || !reset.Remote || reset.Code != NoError {
			t.Fatalf("got %v", err)
		}
		if got, err := io.ReadAll(s); string(got) != "Hello, World!" || err != nil {
			t.Fatalf("got %q and %v", got, err)
		}
		s.Close()
	}
}

// TestClientDrain: a server that goes away serves what it has, and nothing else is opened there.
func TestClientDrain(t *testing.T) {
	eachPair(t, func(t *testing.T, start func(Handler, Config) *fixture, attach func(*fixture, ClientConfig) *Conn) {
		release := make(chan struct{})
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			<-release
			hello(s, r)
		}), Config{})
		states := make(chan ConnState, 20)
		c := attach(f, ClientConfig{State: func(_ *Conn, s ConnState) { states <- s }})
		s := open(t, c, Message{End: true})
		testnet.Eventually(t, "the stream is there", func() bool { return f.server.Stats().Streams == 1 })
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.server.Drain(over); err != context.Canceled {
			t.Errorf("with a context that is over: got %v from Drain", err)
		}
		drained := make(chan error, 1)
		go func() { drained <- f.server.Drain(t.Context()) }()
		testnet.Eventually(t, "the client knows", func() bool { return !c.TakesStreams() })
		if err := c.Open(t.Context(), new(Stream), post, Message{End: true}); err != ErrLeaving {
			t.Errorf("got %v, want ErrLeaving", err)
		}
		select {
		case err := <-drained:
			t.Errorf("Drain returned %v before the stream has ended", err)
		default:
		}
		close(release)
		if got, err := io.ReadAll(s); string(got) != "Hello, World!" || err != nil {
			t.Fatalf("got %q and %v", got, err)
		}
		var got []ConnState
		for len(got) == 0 || got[len(got)-1] != Closed {
			got = append(got, testnet.Receive(t, "a state", states))
		}
		left := false
		for _, s := range got {
			left = left || s == Leaving
		}
		if !left {
			t.Errorf("got the states %v, without Leaving", got)
		}
		if err := testnet.Receive(t, "Drain's return", drained); err != nil {
			t.Errorf("got %v from Drain", err)
		}
	})
}

// TestClientStats: what happens to streams and connections is counted, and ends up in the metrics of the
// process.
func TestClientStats(t *testing.T) {
	f := serve(t, HandlerFunc(func(s *Stream, r *Request) {
		if r.Method == "DELETE" {
			s.Reset(InternalError)
			return
		}
		hello(s, r)
	}), Config{})
	c := f.attach(percore.Dial, ClientConfig{})
	client := clientOf(c)
	want := client.Stats()
	if want.Conns != 1 || want.Opened != 1 || want.Requests != 0 {
		t.Fatalf("got %+v with one connection", want)
	}
	before := sumMetrics(readClientMetrics())
	if _, _, _, err := call(c, Message{End: true}); err != nil {
		t.Fatal(err)
	}
	var s Stream
	defer s.Close()
	if err := c.Open(t.Context(), &s, &Request{Method: "DELETE", Scheme: "http", Authority: "x", Path: "/"}, Message{End: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Answer(); err == nil {
		t.Fatal("a stream that was reset has an answer")
	}
	want.Requests, want.Ended, want.Failed, want.ResetsByServer = 2, 2, 1, 1
	testnet.Eventually(t, "the metrics of the calls", func() bool { return reflect.DeepEqual(client.Stats(), want) })
	if got := sumMetrics(readClientMetrics()) - before; got != 2+1+1 { // streams, failed, resets
		t.Errorf("the metrics of the process have grown by %v, want 4", got)
	}
}

func sumMetrics(all []percore.Metric) (sum float64) {
	for _, m := range all {
		sum += m.Value
	}
	return sum
}
