package sse

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestAppend: the bytes are those of the standard.
func TestAppend(t *testing.T) {
	for _, test := range []struct {
		e    Event
		want string
	}{
		{Event{}, "\n"},
		{Event{Data: "hello"}, "data: hello\n\n"},
		{Event{Type: "t", ID: "1", Data: "x", Retry: 1500 * time.Millisecond}, "retry: 1500\nid: 1\nevent: t\ndata: x\n\n"},
		{Event{Data: "a\nb\r\nc\rd"}, "data: a\ndata: b\ndata: c\ndata: d\n\n"},
		{Event{Data: "a\n\n b"}, "data: a\ndata: \ndata:  b\n\n"},
		{Event{Data: "\r\r\n"}, "data: \ndata: \ndata: \n\n"},
		{Event{Data: "\n"}, "data: \ndata: \n\n"},
		{Event{Data: "a\n\n"}, "data: a\ndata: \ndata: \n\n"},
		{Event{Retry: time.Microsecond}, "retry: 0\n\n"},
	} {
		got, err := test.e.Append(nil)
		if string(got) != test.want || err != nil {
			t.Errorf("%+v: got %q, %v, want %q", test.e, got, err, test.want)
		}
	}
	for _, e := range []Event{{Type: "a\nb"}, {ID: "a\r"}, {ID: "\x00"}} {
		if got, err := e.Append([]byte("x")); string(got) != "x" || err == nil {
			t.Errorf("%+v: got %q, %v, want an error", e, got, err)
		}
	}
}

// FuzzAppend: a client that follows the standard gets the events that were sent, with LF for each line
// end.
func FuzzAppend(f *testing.F) {
	for _, data := range []string{
		"", "a", "a\nb", "\n", "\r\n", "\r", "a\n\n", "a\r\r\n", "\n\r\r\n x", " a", "\x00", "\ufeffa", "data: x\n\nid: 1", ":\n", "\u2028",
	} {
		f.Add("", "", data, uint16(0))
		f.Add(" token:", " 7", data, uint16(1500))
	}
	f.Fuzz(func(t *testing.T, name, id, data string, retry uint16) {
		sent := Event{Type: name, ID: id, Data: data, Retry: time.Duration(retry) * time.Millisecond}
		b, err := sent.Append(nil)
		if invalid := strings.ContainsAny(name+id, "\r\n") || strings.Contains(id, "\x00"); invalid != (err != nil) {
			t.Fatalf("%+v: got %v", sent, err)
		} else if invalid || !utf8.ValidString(name+id+data) {
			return
		}
		want := received{id: id, retry: cmp.Or(int(retry), -1)}
		if data != "" {
			lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
			want.events = []message{{cmp.Or(name, "message"), lines, id}}
		}
		if got := receive(string(b)); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: got %+v from %q", sent, got, b)
		}
	})
}

// received is what a client makes of an event stream.
type received struct {
	events []message
	id     string
	retry  int // ms; -1: none
}

type message struct{ name, data, id string }

// receive interprets an event stream word for word as the standard says (WHATWG HTML, section 9.2.6).
func receive(stream string) received {
	got := received{retry: -1}
	stream = strings.TrimPrefix(stream, "\ufeff")
	var data, name, id string
	for {
		i := strings.IndexAny(stream, "\r\n")
		if i < 0 {
			return got // what is incomplete is discarded
		}
		line := stream[:i]
		stream = strings.TrimPrefix(strings.TrimPrefix(stream[i:], "\r"), "\n") // CRLF, LF or CR
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			got.id = id
			if data != "" {
				got.events = append(got.events, message{cmp.Or(name, "message"), strings.TrimSuffix(data, "\n"), id})
			}
			data, name = "", ""
		case strings.HasPrefix(line, ":"):
		case field == "event":
			name = value
		case field == "data":
			data += value + "\n"
		case field == "id" && !strings.Contains(value, "\x00"):
			id = value
		case field == "retry":
			if n, err := strconv.Atoi(value); err == nil && strings.Trim(value, "0123456789") == "" {
				got.retry = n
			}
		}
	}
}

// serveHub serves a hub on an engine's listener, and returns its URL.
func serveHub(t *testing.T, h *Hub, opts ...httpadapter.Option) (*httpadapter.Server, string) {
	t.Helper()
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	s := httpadapter.Wrap(&http.Server{Handler: h}, opts...)
	s.RegisterOnDrain(h.Close)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
	return s, "http://" + ln.Addr().String()
}

// A reader reads a client's events.
type reader struct {
	*testing.T
	body io.Closer
	br   *bufio.Reader
}

func newReader(t *testing.T, resp *http.Response) *reader {
	return &reader{t, resp.Body, bufio.NewReader(resp.Body)}
}

func open(t *testing.T, url, lastID string) *reader {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", lastID)
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" || resp.StatusCode != 200 {
		t.Fatalf("got %s, %q", resp.Status, got)
	}
	r := newReader(t, resp)
	if got := r.event(); !strings.HasPrefix(got, "retry: ") {
		t.Errorf("got %q at first, want when to come back", got)
	}
	return r
}

// event returns the next event, or the error.
func (r *reader) event() string {
	var lines []string
	for {
		line, err := r.br.ReadString('\n')
		switch {
		case err != nil:
			return err.Error()
		case line == "\n":
			return strings.Join(lines, "|")
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

// TestBroadcast: all clients get all events, in order. Those that come back get what they have missed.
func TestBroadcast(t *testing.T) {
	h := NewHub(Config{Keep: 40})
	_, url := serveHub(t, h)
	const clients, events = 20, 50
	var all []*reader
	for range clients {
		all = append(all, open(t, url, ""))
	}
	testnet.Eventually(t, "all clients are there", func() bool { return h.Len() == clients })
	for i := range events {
		e := Event{ID: fmt.Sprint(i), Type: "n", Data: fmt.Sprintf("first %d\nsecond", i)}
		if err := h.Broadcast(e); err != nil {
			t.Fatal(err)
		}
	}
	want := func(r *reader, from int) {
		for i := from; i < events; i++ {
			if got, want := r.event(), fmt.Sprintf("id: %d|event: n|data: first %d|data: second", i, i); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	for _, r := range all {
		want(r, 0)
		r.body.Close()
	}
	testnet.Eventually(t, "all have left", func() bool { return h.Len() == 0 })
	for lastID, from := range map[string]int{"29": 30, "49": 50, "5": 10, "unknown": 10, "": 50} {
		again := open(t, url, lastID)
		testnet.Eventually(t, "it is back", func() bool { return h.Len() == 1 })
		want(again, from)
		_ = h.Broadcast(Event{Data: "behind"})
		if got := again.event(); got != "data: behind" {
			t.Errorf("got %q behind the events since %q", got, lastID)
		}
		again.body.Close()
		testnet.Eventually(t, "it has left", func() bool { return h.Len() == 0 })
	}
	if err := h.Broadcast(Event{ID: "\n"}); err == nil {
		t.Error("no error for an ID of two lines")
	}
}

// TestKeptMemory: an event that is kept no more takes no memory.
func TestKeptMemory(t *testing.T) {
	h := NewHub(Config{Keep: 4})
	var all []weak.Pointer[byte]
	for i := range 20 {
		if err := h.Broadcast(Event{ID: fmt.Sprint(i), Data: strings.Repeat("x", 1000)}); err != nil {
			t.Fatal(err)
		}
		all = append(all, weak.Make(&h.kept[len(h.kept)-1].bytes[0]))
		runtime.GC()
		for n, p := range all {
			if is, want := p.Value() != nil, n > i-4; is != want {
				t.Errorf("event %d after event %d: in memory %t, want %t", n, i, is, want)
			}
		}
	}
	runtime.KeepAlive(h)
}

// TestSlowClient: a client that takes nothing is cut, or told how much it has missed, and the others get
// everything.
func TestSlowClient(t *testing.T) {
	for name, missed := range map[string]func(int) Event{
		"cut":          nil,
		"told":         func(n int) Event { return Event{Type: "missed", Data: fmt.Sprint(n)} },
		"told wrongly": func(n int) Event { return Event{Type: "missed\n", Data: fmt.Sprint(n)} },
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHub(Config{Limit: 1000, Missed: missed})
			_, url := serveHub(t, h)
			slow := open(t, url, "")
			testnet.Eventually(t, "a client is there", func() bool { return h.Len() == 1 })
			quick := open(t, url, "")
			testnet.Eventually(t, "both clients are there", func() bool { return h.Len() == 2 })
			slowClient, quickClient := h.clients[0], h.clients[1]
			testnet.Eventually(t, "nothing waits for them", func() bool { // else a long event is too much
				return slowClient.stream.Unsent() == 0 && quickClient.stream.Unsent() == 0
			})
			long := "data: " + strings.Repeat("x", 100<<10)
			sent := 0
			for ; h.Len() == 2 && h.missedBy(slowClient) == 0; sent++ {
				if err := h.Broadcast(Event{Data: long[len("data: "):]}); err != nil {
					t.Fatal(err)
				}
				if got := quick.event(); got != long {
					t.Fatalf("got %.30q of event %d", got, sent)
				}
				testnet.Eventually(t, "the quick client has it", func() bool { return quickClient.stream.Unsent() == 0 })
			}
			if missed == nil {
				return // the slow one has left
			}
			for range sent - 1 {
				if got := slow.event(); got != long {
					t.Fatalf("got %.30q", got)
				}
			}
			testnet.Eventually(t, "there is room", func() bool { return slowClient.stream.Unsent() == 0 })
			wants := []string{"event: missed|data: 1", "data: last", "data: next"}
			var wantErr error
			if name == "told wrongly" {
				wants, wantErr = wants[1:], errLine
			}
			if err := h.Broadcast(Event{Data: "last"}); err != wantErr {
				t.Errorf("Broadcast returned %v, want %v", err, wantErr)
			}
			if got := quick.event(); got != "data: last" {
				t.Errorf("the quick client got %.40q", got)
			}
			testnet.Eventually(t, "there is room", func() bool { return slowClient.stream.Unsent() == 0 })
			if err := h.Broadcast(Event{Data: "next"}); err != nil {
				t.Errorf("the next Broadcast returned %v", err)
			}
			for _, want := range wants {
				if got := slow.event(); got != want {
					t.Errorf("got %.40q, want %q", got, want)
				}
			}
			if got := quick.event(); got != "data: next" {
				t.Errorf("the quick client got %.40q", got)
			}
		})
	}
}

func (h *Hub) missedBy(c *client) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return c.missed
}

// TestNegativeConfig: a number that would silently be another is refused, as by the other packages.
func TestNegativeConfig(t *testing.T) {
	for _, c := range []Config{{Retry: -1}, {Keep: -1}, {Limit: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: got no panic", c)
				}
			}()
			NewHub(c)
		}()
	}
	NewHub(Config{Heartbeat: -1}) // never
}

// TestLongestRetry: clients are told to wait, however long that is.
func TestLongestRetry(t *testing.T) {
	h := NewHub(Config{Retry: math.MaxInt64})
	for range 10 {
		if got := string(h.retryEvent()); !strings.HasPrefix(got, "retry: ") {
			t.Fatalf("got %q, want a time", got)
		}
	}
}

// TestLongestLimit: a Limit that is never reached is none, whatever waits when a client comes.
func TestLongestLimit(t *testing.T) {
	h := NewHub(Config{Limit: math.MaxInt})
	_, url := serveHub(t, h)
	r := open(t, url, "")
	testnet.Eventually(t, "the client is there", func() bool { return h.Len() == 1 })
	if err := h.Broadcast(Event{Data: "x"}); err != nil {
		t.Fatal(err)
	}
	if got := r.event(); got != "data: x" {
		t.Errorf("got %q, want the event", got)
	}
}

// TestMaxAge: a client whose connection has reached its age is told to come back, on another connection.
func TestMaxAge(t *testing.T) {
	h := NewHub(Config{})
	_, url := serveHub(t, h, httpadapter.MaxAge(20*time.Millisecond, 0))
	addrs := make(map[string]bool)
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	for range 3 {
		trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { addrs[info.Conn.LocalAddr().String()] = true },
		})
		req, err := http.NewRequestWithContext(trace, "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || !strings.HasPrefix(string(b), "retry: ") {
			t.Errorf("got %q, %v", b, err)
		}
		resp.Body.Close()
	}
	if len(addrs) != 3 {
		t.Errorf("the client has come back on %d connections in all, want 3", len(addrs))
	}
	testnet.Eventually(t, "no client is left", func() bool { return h.Len() == 0 })
}

// TestHeartbeat: a client that hears nothing gets comments, and the timer ends with the last client. The
// server is net/http's, over connections in memory, so the times are a bubble's.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(Config{Heartbeat: 20 * time.Second})
		ours, theirs := net.Pipe()
		l := &oneConn{conn: theirs, closed: make(chan struct{})}
		srv := &http.Server{Handler: h}
		go srv.Serve(l)
		go io.WriteString(ours, "GET / HTTP/1.1\r\nHost: test\r\n\r\n")
		br := bufio.NewReader(ours)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, resp)
		r.event()
		begin := time.Now()
		for _, want := range []struct {
			event string
			after time.Duration
		}{{":", 20 * time.Second}, {":", 40 * time.Second}, {"data: x", 45 * time.Second}, {":", 60 * time.Second}} {
			if want.event != ":" {
				time.AfterFunc(want.after-time.Since(begin), func() { _ = h.Broadcast(Event{Data: "x"}) })
			}
			if got := r.event(); got != want.event || time.Since(begin) != want.after {
				t.Errorf("got %q after %v, want %q after %v", got, time.Since(begin), want.event, want.after)
			}
		}
		ours.Close()
		synctest.Wait()
		if n := h.Len(); n != 0 {
			t.Errorf("got %d clients behind the end", n)
		}
		srv.Close()
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	mu     sync.Mutex
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	l.mu.Lock()
	c := l.conn
	l.conn = nil
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// noFlusher can't be flushed.
type noFlusher struct{ http.ResponseWriter }

// TestErrors: an http.ResponseWriter that can't be flushed is refused, and so are nils.
func TestErrors(t *testing.T) {
	h := NewHub(Config{})
	rec := httptest.NewRecorder()
	h.ServeHTTP(noFlusher{rec}, httptest.NewRequest("GET", "/", nil))
	if rec.Code != http.StatusInternalServerError {
		t.Errorf("got %d", rec.Code)
	}
	if err := h.Serve(noFlusher{rec}, httptest.NewRequest("GET", "/", nil)); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("got %v", err)
	}
	if h.Serve(nil, nil) == nil {
		t.Error("no error for nils")
	}
}
