package h2

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// A model is a client that keeps the rules, and knows all windows, on a connection with a server
// whose handlers do everything that handlers do. It plays random operations in bursts and reads
// between them. Each frame must be one that the windows and the stream allow, and each body the one
// that belongs to the stream.
type model struct {
	t    testing.TB
	rnd  *rand.Rand
	p    *frames.Peer
	log  []string // what was done
	over string   // why the connection has ended; "" while it goes on

	initial int64   // the window that new streams have for the server's DATA
	pending []int64 // such windows in SETTINGS that are not acknowledged; -1: none in these
	conn    int64   // the connection's window for the server's DATA
	left    int64   // of the connection, for ours
	streams map[uint32]*modelStream
	last    uint32
	pings   int
	ponged  int
}

// A modelStream is a stream that the client has opened.
type modelStream struct {
	kind     string
	want     int   // bytes of the answer; -1: as many as are sent
	delta    int64 // of the window for the server's DATA from the initial one
	left     int64 // of the window for ours
	toSend   int   // bytes
	sent     int
	got      int
	answered bool
	sentEnd  bool
	gotEnd   bool // or a reset
}

// The windows of the server in the model.
const (
	modelStreamWindow = 5000
	modelConnWindow   = 65535
)

// pattern returns n bytes of a stream's body, from an offset.
func pattern(id uint32, at, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id) + byte((at+i)%251)
	}
	return b
}

// modelServer is the server's side of the models.
type modelServer struct {
	*fixture
	running atomic.Int64
	gates   chan bool // one handler goes on for each value
}

// serveModel starts the server.
func serveModel(start func(Handler, Config) *fixture) *modelServer {
	s := &modelServer{gates: make(chan bool, 1000)}
	s.fixture = start(s, Config{
		StreamWindow: modelStreamWindow, ConnWindow: modelConnWindow, Streams: 20, Log: slog.New(slog.DiscardHandler),
	})
	return s
}

// Accept makes the stream, which is moved at times.
func (s *modelServer) Accept(_ *Conn, r *Request) StreamHandler {
	return &modelHandler{funcStream{f: s.handle, request: *r}}
}

// modelHandler moves each third stream.
type modelHandler struct{ funcStream }

func (h *modelHandler) Serve() {
	if h.stream.ID()%3 > 0 {
		h.funcStream.Serve()
		return
	}
	next := &modelHandler{funcStream{f: h.f, request: h.request}}
	h.stream.Move(next)
	next.stream.Resume()
	if _, err := h.stream.Write([]byte("late")); err == nil {
		panic("a stream that was moved was written to")
	}
}

func (h *modelHandler) Resume() {
	h.funcStream.Serve()
	h.stream.Finish()
}

func (s *modelServer) handle(st *Stream, r *Request) {
	s.running.Add(1)
	defer s.running.Add(-1)
	kind, count, _ := strings.Cut(strings.TrimPrefix(r.Path, "/"), "/")
	n, _ := strconv.Atoi(count)
	switch kind {
	case "echo":
		echo(st, r)
	case "full":
		echoFull(st)
	case "late": // to read
		<-s.gates
		echo(st, r)
	case "early":
		hello(st, r)
	case "sink":
		m, err := io.Copy(io.Discard, st)
		if err == nil {
			_ = st.Send(Message{Status: 200, Body: pattern(st.ID(), 0, int(m)%1000), End: true})
		}
	case "get":
		_ = st.Send(Message{Status: 200, Body: pattern(st.ID(), 0, n), End: true, Hold: n%2 == 0})
	case "parts":
		err := st.Send(Message{Status: 200})
		for at := 0; at < n && err == nil; at += 1000 {
			_, err = st.Write(pattern(st.ID(), at, min(1000, n-at)))
			if at%3000 == 0 {
				_ = st.Flush()
			}
		}
		_ = st.Send(Message{Trailers: []Field{MakeField("x-end", "1")}})
	case "reset":
		_ = st.Send(Message{Status: 200, Body: pattern(st.ID(), 0, n)})
		st.Reset(Cancel)
	case "panic":
		_ = st.Send(Message{Status: 200, Body: pattern(st.ID(), 0, n)})
		panic("of the handler")
	case "exit":
		runtime.Goexit()
	}
}

// echoFull is echo with ReadFull, of lengths that are shorter than a frame, and longer than the window.
func echoFull(st *Stream) {
	err := st.Send(Message{Status: 200})
	for i := 0; err == nil; i++ {
		p := make([]byte, []int{1, 100, 600, 3000, 2 * modelStreamWindow}[i%5])
		n, end := st.ReadFull(p)
		if end == nil && n < len(p) || end == io.EOF && n > 0 || end == io.ErrUnexpectedEOF && n == 0 {
			panic(fmt.Sprint("ReadFull of ", len(p), " bytes: got ", n, " and ", end))
		}
		_, err = st.Write(p[:n])
		if end != nil {
			err = end
		}
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		_ = st.Send(Message{End: true})
	}
}

// newModel connects a model.
func newModel(t testing.TB, s *modelServer, seed uint64) *model {
	return &model{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), p: s.peer(), initial: 65535, conn: 65535, left: modelConnWindow,
		streams: make(map[uint32]*modelStream), pending: []int64{-1}, // the preface's SETTINGS
	}
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// fail ends the test, and tells what was done at last.
func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s; behind\n\t%s", fmt.Sprintf(format, args...), strings.Join(m.log[max(0, len(m.log)-60):], "\n\t"))
}

// some returns an open stream for which ok holds, and its identifier; nil if there is none.
func (m *model) some(ok func(*modelStream) bool) (uint32, *modelStream) {
	n := m.rnd.IntN(20)
	for i := range uint32(40) {
		id := m.last - 2*((i+uint32(n))%20)
		if s := m.streams[id]; s != nil && ok(s) {
			return id, s
		}
	}
	return 0, nil
}

func (m *model) open() (n int) {
	for _, s := range m.streams {
		if !s.gotEnd || !s.sentEnd {
			n++
		}
	}
	return n
}

var modelKinds = []string{"echo", "full", "late", "early", "sink", "sink", "get", "get", "parts", "reset", "panic", "exit"}

// step does a random operation.
func (m *model) step(s *modelServer) {
	switch m.rnd.IntN(16) {
	case 0, 1, 2:
		if m.open() >= 15 { // streams that the server has reset may not have been forgotten
			return
		}
		m.last += 2
		if m.last == 2 {
			m.last = 1
		}
		kind := modelKinds[m.rnd.IntN(len(modelKinds))]
		st := &modelStream{kind: kind, want: -1, left: modelStreamWindow}
		switch kind {
		case "echo", "full", "late", "early", "sink":
			st.toSend = []int{0, 1, 100, 4000, 12000, 40000}[m.rnd.IntN(6)]
		case "get", "parts", "reset", "panic":
			st.want = []int{0, 1, 4000, 20000, 70000, 300000}[m.rnd.IntN(6)]
		}
		st.sentEnd = st.toSend == 0
		m.streams[m.last] = st
		m.note("open %d, %s, sends %d, wants %d", m.last, kind, st.toSend, st.want)
		m.p.Headers(m.last, st.sentEnd, ":method", "POST", ":scheme", "http", ":authority", "x", ":path", fmt.Sprintf("/%s/%d", kind, st.want))
	case 3, 4, 5, 6:
		id, st := m.some(func(s *modelStream) bool { return !s.sentEnd })
		if st != nil {
			m.send(id, st, 1+m.rnd.IntN(6000))
		}
	case 7:
		if id, st := m.some(func(s *modelStream) bool { return !s.gotEnd }); st != nil && m.rnd.IntN(3) == 0 {
			m.note("reset %d", id)
			m.p.Reset(id, Cancel)
			delete(m.streams, id)
		}
	case 8, 9:
		if id, st := m.some(func(s *modelStream) bool { return !s.gotEnd }); st != nil {
			n := 1 + m.rnd.IntN(50000)
			st.delta += int64(n)
			m.note("window %d %d", id, n)
			m.p.Window(id, uint32(n))
		}
	case 10, 11:
		n := 1 + m.rnd.IntN(100000)
		m.conn += int64(n)
		m.note("window 0 %d", n)
		m.p.Window(0, uint32(n))
	case 12:
		v := []int64{0, 1, 100, 65535, 100000}[m.rnd.IntN(5)]
		m.pending = append(m.pending, v)
		m.note("initial window %d", v)
		setting(m.p, initialWindow, uint32(v))
	case 13:
		for range m.rnd.IntN(30) {
			m.p.Frame(frames.Ping, 0, 0, []byte("anything"))
		}
		setting(m.p, tableSize, uint32(m.rnd.IntN(3)*500))
		m.pending = append(m.pending, -1)
	case 14:
		id, _ := m.some(func(s *modelStream) bool { return true })
		priority(m.p, id|1, 0)
	default:
		select {
		case s.gates <- true:
		default:
		}
	}
}

// send adds DATA, as far as the windows allow.
func (m *model) send(id uint32, st *modelStream, most int) {
	n := min(most, st.toSend-st.sent, int(st.left), int(m.left), 16384)
	if n <= 0 {
		return
	}
	st.sentEnd = st.sent+n == st.toSend
	m.p.Data(id, string(pattern(id, st.sent, n)), st.sentEnd)
	m.note("data %d %d bytes, end %t", id, n, st.sentEnd)
	st.sent += n
	st.left -= int64(n)
	m.left -= int64(n)
}

// flush sends what was added.
func (m *model) flush() {
	if _, err := m.p.Conn.Write(m.p.Out); err != nil && m.over == "" {
		m.over = err.Error()
	}
	m.p.Out = m.p.Out[:0]
}

// sync sends what was added, and reads until the server has seen it.
func (m *model) sync() {
	m.pings++
	m.p.Frame(frames.Ping, 0, 0, fmt.Appendf(nil, "%08d", m.pings))
	m.flush()
	for m.over == "" && m.ponged < m.pings {
		m.read()
	}
}

// read reads a frame, and checks it.
func (m *model) read() {
	line := m.p.Next()
	word, rest, _ := strings.Cut(line, " ")
	var id uint32
	_, _ = fmt.Sscan(rest, &id)
	switch word {
	case "end", "error:":
		if strings.Contains(line, "timeout") {
			m.fail("the server hangs")
		}
		m.over = line
	case "pong":
		if strings.HasPrefix(rest, "3") { // the digits of sync
			m.ponged++
		}
	case "settings":
		if rest == "ack" {
			if m.pending[0] >= 0 {
				m.initial = m.pending[0]
			}
			m.pending = m.pending[1:]
		}
	case "window":
		m.credit(rest)
	case "headers":
		st := m.streams[id]
		if st == nil {
			return // it was reset
		}
		if st.gotEnd {
			m.fail("got %q behind the end", line)
		}
		st.answered = true
		m.ended(id, st, strings.HasSuffix(line, " end"))
	case "data":
		m.data(rest)
	case "reset":
		if st := m.streams[id]; st != nil {
			if st.kind == "echo" || st.kind == "full" || st.kind == "sink" || st.kind == "get" || st.kind == "parts" || st.kind == "late" {
				m.fail("got %q of a stream that does %s", line, st.kind)
			}
			delete(m.streams, id)
		}
	case "goaway":
		if !strings.HasSuffix(line, "NO_ERROR") {
			m.fail("got %q", line)
		}
	default:
		m.fail("got %q", line)
	}
	if m.over == "" {
		m.note("got %.60s", line)
	}
}

// credit takes a WINDOW_UPDATE.
func (m *model) credit(rest string) {
	var id uint32
	var n int64
	_, _ = fmt.Sscan(rest, &id, &n)
	if id == 0 {
		if m.left += n; m.left > modelConnWindow {
			m.fail("got credit for the connection of %d bytes, beyond its window of %d", m.left, modelConnWindow)
		}
	} else if st := m.streams[id]; st != nil {
		if st.left += n; st.left > modelStreamWindow {
			m.fail("got credit for stream %d of %d bytes, beyond its window", id, st.left)
		}
	}
}

// data takes a DATA frame.
func (m *model) data(rest string) {
	number, quoted, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(number)
	id := uint32(n)
	prefix, _ := strconv.QuotedPrefix(quoted)
	body, err := strconv.Unquote(prefix)
	if err != nil {
		m.fail("got DATA %.100q", quoted)
	}
	m.conn -= int64(len(body))
	if m.conn < 0 {
		m.fail("got %d bytes on stream %d, %d beyond the connection's window", len(body), id, -m.conn)
	}
	st := m.streams[id]
	if st == nil {
		return // it was reset
	}
	st.delta -= int64(len(body))
	if len(body) > 0 && m.initial+st.delta < 0 {
		m.fail("got %d bytes on stream %d, %d beyond its window", len(body), id, -m.initial-st.delta)
	}
	if !st.answered || st.gotEnd {
		m.fail("got DATA of stream %d out of order", id)
	}
	if st.kind != "early" && body != string(pattern(id, st.got, len(body))) {
		m.fail("got other bytes than those of stream %d, from %d on", id, st.got)
	}
	st.got += len(body)
	m.ended(id, st, strings.HasSuffix(quoted, " end"))
}

// ended notes the end of an answer, and checks its length.
func (m *model) ended(id uint32, st *modelStream, end bool) {
	if !end {
		return
	}
	st.gotEnd = true
	want := map[string]int{"echo": st.toSend, "full": st.toSend, "late": st.toSend, "sink": st.toSend % 1000, "get": st.want, "parts": st.want, "early": len("Hello, World!")}[st.kind]
	if st.got != want {
		m.fail("got %d bytes of stream %d, want %d", st.got, id, want)
	}
}

// finish completes all streams, with windows that are wide.
func (m *model) finish(s *modelServer) {
	m.p.Window(0, 1<<29)
	m.conn += 1 << 29
	setting(m.p, initialWindow, 1<<20)
	m.pending = append(m.pending, 1<<20)
	for m.over == "" {
		select {
		case s.gates <- true:
		default:
		}
		done := true
		for id, st := range m.streams {
			if st.initialTooSmall() {
				st.delta += 1 << 21
				m.p.Window(id, 1<<21)
			}
			if st.gotEnd && st.kind == "early" {
				continue // a reset comes, or has come
			}
			m.send(id, st, 16384)
			done = done && st.gotEnd && st.sentEnd
		}
		if m.sync(); done {
			return
		}
	}
}

// initialTooSmall reports whether the initial window may not do for what is left of an answer.
func (st *modelStream) initialTooSmall() bool { return st.delta < 0 }

// checkRest compares the connection of a model that has finished with one that has never had a
// stream: all credit is back, and nothing is left.
func (s *modelServer) checkRest(t testing.TB) {
	for _, c := range s.server.conns() {
		testnet.Eventually(t, "the rest of the connection", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.core.Streams() == 0 && c.core.Handlers() == 0 && c.open == 0 && c.queued == 0 && !c.flushing &&
				c.core.Senders() == 0 && c.waiting == &nothingWaits && c.core.Unread() == 0
		})
	}
}

// modelSeed is the seed of the models: PERCORE_SEED, or one of its own for each run.
func modelSeed(t *testing.T) uint64 {
	if v, err := strconv.ParseUint(os.Getenv("PERCORE_SEED"), 10, 64); err == nil {
		return v
	}
	seed := rand.Uint64()
	t.Logf("PERCORE_SEED=%d plays the same operations", seed)
	return seed
}

// TestModel plays models on each kind of connection and with several numbers of processors. Some of
// them are ended in the middle, by the server's Shutdown or Close, or by the client.
//
//	PERCORE_STEPS=20000 go test -race -run TestModel ./adapters/h2    plays for longer
func TestModel(t *testing.T) {
	seed := modelSeed(t)
	steps := 300
	if n, err := strconv.Atoi(os.Getenv("PERCORE_STEPS")); err == nil {
		steps = n
	}
	endings := []string{"finish", "Shutdown", "Close", "reset"}
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
				seed++
				s := serveModel(start)
				playModel(t, s, newModel(t, s, seed), steps, endings[seed%4])
			})
		})
	}
}

// playModel plays a model to its end.
func playModel(t *testing.T, s *modelServer, m *model, steps int, ending string) {
	shut := make(chan bool)
	for i := 0; i < steps && m.over == ""; i++ {
		m.step(s)
		if m.rnd.IntN(10) == 0 {
			m.flush()
		}
		if m.rnd.IntN(25) == 0 {
			m.sync()
		}
		if i == steps*3/4 {
			switch ending {
			case "Shutdown":
				go func() { s.shutdown(); close(shut) }()
				i = steps // open no more
			case "Close":
				s.server.Close()
			case "reset":
				if tc, ok := m.p.Conn.(*net.TCPConn); ok {
					_ = tc.SetLinger(0)
				}
				m.p.Conn.Close()
			}
		}
	}
	if m.over == "" && (ending == "finish" || ending == "Shutdown" || ending == "faults") {
		m.finish(s)
	}
	if ending == "finish" {
		if m.over != "" {
			m.fail("the connection has ended: %s", m.over)
		}
		testnet.Eventually(t, "the handlers' end", func() bool { return s.released() })
		s.checkRest(t)
	}
	if ending == "Shutdown" {
		for m.over == "" {
			m.read()
		}
		m.p.Conn.Close()
		testnet.Receive(t, "Shutdown's return", shut)
	}
	s.server.Close()
	testnet.Eventually(t, "the handlers' end", func() bool { return s.released() })
}

// released lets all handlers go on, and reports whether none is left.
func (s *modelServer) released() bool {
	for range cap(s.gates) {
		select {
		case s.gates <- true:
		default:
		}
	}
	return s.running.Load() == 0
}
