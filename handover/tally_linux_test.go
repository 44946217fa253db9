//go:build !percore_net

package handover

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/testnet"
)

func init() { children = append(children, testnet.WithChild("holder", runHolder)) }

// runHolder gives its listener to the process that connects to a named socket, and keeps its
// connections, which echo, until its input ends.
func runHolder() {
	ln, err := percore.Listen("unix", os.Getenv("LISTEN"))
	if err != nil {
		fail(err)
	}
	defer newEchoServer(ln).close()
	named, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: os.Getenv("NAMED")})
	if err != nil {
		fail(err)
	}
	fmt.Println("listening")
	c, err := named.AcceptUnix()
	if err != nil {
		fail(err)
	}
	named.Close()
	fmt.Println("gave:", Give(context.Background(), c, Server{Name: "web", Listener: ln}))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// holder is the process, with clients of connections that it keeps.
type holder struct {
	*testnet.ChildProcess
	out     *bufio.Reader
	address string // of the listener
	named   string
	clients []net.Conn
}

func startHolder(t *testing.T, clients int) *holder {
	t.Helper()
	dir := testnet.ShortTempDir(t)
	h := &holder{address: filepath.Join(dir, "s"), named: filepath.Join(dir, "n")}
	h.ChildProcess = testnet.StartChild(t, "holder", "LISTEN="+h.address, "NAMED="+h.named)
	h.out = bufio.NewReader(h.Stdout)
	if line, err := h.out.ReadString('\n'); line != "listening\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	for range clients {
		c := h.dial(t)
		mustEcho(t, c)
		h.clients = append(h.clients, c)
	}
	return h
}

func (h *holder) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", h.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// takeLimited takes over from the process at the other end of the wire, with a limit, and echoes.
func takeLimited(t *testing.T, wire *net.UnixConn, limit int) (net.Listener, *accepting.Limits) {
	t.Helper()
	a, err := Take(t.Context(), wire)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := a.Listener("web", &percore.ListenConfig{MaxConns: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(newEchoServer(ln).close)
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return ln, seam.LimitsOf(ln)
}

// take is takeLimited from the process.
func (h *holder) take(t *testing.T, limit int) (net.Listener, *accepting.Limits) {
	t.Helper()
	wire, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: h.named})
	if err != nil {
		t.Fatal(err)
	}
	ln, limits := takeLimited(t, wire, limit)
	if line, _ := h.out.ReadString('\n'); line != "gave: <nil>\n" {
		t.Fatalf("got %q from the predecessor", line)
	}
	return ln, limits
}

// wantElsewhere waits until that many connections are counted elsewhere.
func wantElsewhere(t *testing.T, l *accepting.Limits, n int) {
	t.Helper()
	testnet.Eventually(t, fmt.Sprint(n, " connections elsewhere"), func() bool { return l.Elsewhere() == n })
}

// TestCountOnce: connections that stay with the predecessor count towards the successor's MaxConns
// until they end, or the predecessor is killed.
func TestCountOnce(t *testing.T) {
	testnet.NoLeaks(t)
	const limit, held = 5, 3
	h := startHolder(t, held)
	ln, limits := h.take(t, limit)
	wantElsewhere(t, limits, held)
	for range limit - held {
		mustEcho(t, h.dial(t))
	}
	if got := ln.(*percore.Listener).Stats().Elsewhere; got != held {
		t.Errorf("Stats: got %d elsewhere, want %d", got, held)
	}
	testnet.Eventually(t, "a full listener", func() bool { return ln.(*percore.Listener).Stats().Full })
	if limits.HasRoom() {
		t.Errorf("got room for more than %d connections, %d of them here", limit, limits.Open())
	}
	waiting := []net.Conn{h.dial(t), h.dial(t), h.dial(t)}
	h.clients[0].Close()
	mustEcho(t, waiting[0])
	wantElsewhere(t, limits, held-1)
	if n := limits.Open(); n != limit-held+1 {
		t.Errorf("got %d connections here, want %d", n, limit-held+1)
	}
	h.Kill()
	_ = h.Wait()
	for _, c := range waiting[1:] {
		mustEcho(t, c)
	}
	wantElsewhere(t, limits, 0)
	if n := ln.(*percore.Listener).Stats().Conns; n != limit {
		t.Errorf("got %d connections, want %d", n, limit)
	}
}

// TestCountChain: a third process also counts the connections of the first, which the second reports
// with its own.
func TestCountChain(t *testing.T) {
	testnet.NoLeaks(t)
	const limit = 10
	h := startHolder(t, 2)
	second, secondLimits := h.take(t, limit)
	wantElsewhere(t, secondLimits, 2)
	own := h.dial(t)
	mustEcho(t, own)

	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, Server{Name: "web", Listener: second})
	_, limits := takeLimited(t, taking, limit)
	if err := testnet.Receive(t, "Give", gave); err != nil {
		t.Fatal(err)
	}
	wantElsewhere(t, limits, 3)
	h.clients[1].Close()
	wantElsewhere(t, limits, 2)
	h.Kill()
	_ = h.Wait()
	wantElsewhere(t, limits, 1)
	own.Close()
	wantElsewhere(t, limits, 0)
}

// TestCountMoving: connections that move are not counted twice, though the predecessor's next message
// comes later, and none is left out: the successor has them all, and at any time as many as before seem
// to be open.
func TestCountMoving(t *testing.T) {
	testnet.NoLeaks(t)
	const n = 40
	p := newRealPredecessor(t, testnet.TCP4, n)
	p.source.batch = 7
	var shared atomic.Pointer[accepting.Limits] // of the successor, before Ready
	p.source.before = func(left int) {          // the successor has all others, or is about to
		limits := shared.Load()
		before := limits.Elsewhere() // connections go from there to here
		here := limits.Open()
		after := limits.Elsewhere()
		if here+after > n+1 { // one is counted twice, at its moment
			t.Errorf("got %d connections while %d are left, want at most %d", here+after, left, n+1)
		}
		if before+here < n {
			t.Errorf("got %d connections while %d are left, want at least %d", before+here, left, n)
		}
	}
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := a.Listener("web", &percore.ListenConfig{MaxConns: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(newEchoServer(ln).close)
	limits := seam.LimitsOf(ln)
	shared.Store(limits)
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Give", gave); err != nil {
		t.Fatal(err)
	}
	for _, client := range p.clients {
		mustEcho(t, client)
	}
	wantElsewhere(t, limits, 0)
}

// tallyOf returns a tally of one listener with so many connections, and the successor's end.
func tallyOf(t *testing.T, n *atomic.Int64) (*tally, *net.UnixConn) {
	giving, taking := pair(t)
	return &tally{conn: giving, taken: []func() int{func() int { return int(n.Load()) }}, stop: make(chan struct{})}, taking
}

// TestFirstCount: the first message has the count from before anything moves, however late the tally's
// goroutine begins.
func TestFirstCount(t *testing.T) {
	testnet.NoLeaks(t)
	for range 100 { // the goroutine is late in some
		var n atomic.Int64
		n.Store(40)
		tally, conn := tallyOf(t, &n)
		tally.start()
		n.Store(33)
		buf := make([]byte, countsBytesMax)
		read, err := conn.Read(buf)
		if got, want := string(buf[:read]), `{"open":[40],"moving":true}`; got != want || err != nil {
			t.Fatalf("got %s, %v, want %s", got, err, want)
		}
		tally.end(false)
	}
}

// TestCountHeld: connections on their way count, also when the predecessor has closed its copies and has
// said so.
func TestCountHeld(t *testing.T) {
	testnet.NoLeaks(t)
	theirs, ours := pair(t)
	limits := (&accepting.Config{MaxConns: 10}).Limits(new(accepting.Counts), func() {})
	e := newElsewhere(ours, []*offered{{limits: limits, offeredListener: offeredListener{Taken: 4}}})
	say := func(text string) {
		if _, err := theirs.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	say(`{"open":[5],"moving":true}`)
	wantElsewhere(t, limits, 5)
	e.holds(0)
	e.holds(0)
	if n := limits.Elsewhere(); n != 5 { // held, and counted by the predecessor
		t.Errorf("got %d connections elsewhere, want 5", n)
	}
	say(`{"open":[2],"moving":true}`) // without the held ones, and one has ended
	wantElsewhere(t, limits, 4)
	e.came(0)
	e.came(0)
	if n := limits.Elsewhere(); n != 2 {
		t.Errorf("got %d connections elsewhere, want 2", n)
	}
	theirs.Close()
	wantElsewhere(t, limits, 0)
}

// TestLateTally: a predecessor that finds, when it wakes up, that the successor was ready and has gone
// on without it, reports its connections, too.
func TestLateTally(t *testing.T) {
	testnet.NoLeaks(t)
	p := newRealPredecessor(t, testnet.TCP4, 2)
	giving, taking := pair(t)
	w, err := newWire(giving)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	s := newStranger(t, taking)
	w.session = strings.Repeat("x", 2*nonceBytes)
	s.session = w.session
	ours, theirs := pair(t)
	s.say(&message{Kind: ready}, s.copyOf(theirs))
	s.say(&message{Kind: over})
	g := &giver{wire: w, servers: []Server{p.server("web")}}
	if !g.isOver() || g.tally == nil {
		t.Fatalf("got the tally %v, want one, and that the successor has gone on", g.tally)
	}
	g.tally.start()
	g.tally.end(true)
	buf := make([]byte, countsBytesMax)
	for _, want := range []string{`{"open":[2],"moving":true}`, `{"open":[2]}`} {
		n, err := ours.Read(buf)
		if got := string(buf[:n]); got != want || err != nil {
			t.Fatalf("got %s, %v, want %s", got, err, want)
		}
	}
	ours.Close()
	for _, c := range p.source.conns {
		c.Conn.Close()
	}
}

// TestCountFails: after a handover that failed the predecessor's connections don't count.
func TestCountFails(t *testing.T) {
	testnet.NoLeaks(t)
	p := newRealPredecessor(t, testnet.TCP4, 2)
	p.source.batch, p.source.busy = 1, make(chan struct{})
	kept := testnet.Dial(t, p.ln)
	defer kept.Close()
	mustEcho(t, kept)
	other := testnet.Listen(t, percore.Listen, testnet.TCP4)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"), Server{Name: "other", Listener: other})
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := a.Listener("web", &percore.ListenConfig{MaxConns: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer newEchoServer(ln).close()
	if err := a.Drop("other"); err != nil {
		t.Fatal(err)
	}
	limits := seam.LimitsOf(ln)
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan error, 1)
	go func() { ready <- a.Ready(ctx) }()
	wantElsewhere(t, limits, 1)
	cancel()
	wantError(t, testnet.Receive(t, "Ready", ready), context.Canceled.Error())
	wantError(t, testnet.Receive(t, "Give", gave), "this process serves on")
	wantElsewhere(t, limits, 0)
}

// logTo collects what is logged until the test ends.
func logTo(t *testing.T) *testnet.Log {
	t.Helper()
	log := new(testnet.Log)
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	return log
}

// TestBadCounts: counts that make no sense are the last that are read. They are logged in a line, and
// nothing counts then.
func TestBadCounts(t *testing.T) {
	for name, bad := range map[string]string{
		"no JSON":        "GET / HTTP/1.1\r\n",
		"nothing":        "{}",
		"too few":        `{"open":[1]}`,
		"too many":       `{"open":[1,2,3]}`,
		"negative":       `{"open":[1,-1]}`,
		"huge":           `{"open":[1,1073741825]}`,
		"huger":          `{"open":[1,99999999999999999999]}`,
		"another type":   `{"open":["1","2"]}`,
		"too long":       fmt.Sprintf(`{"open":[1,2]%*s}`, countsBytesMax, ""),
		"cut off by one": `{"open":[1,2]`,
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			log := logTo(t)
			theirs, ours := pair(t)
			config := accepting.Config{MaxConns: 10}
			limits := config.Limits(new(accepting.Counts), func() {})
			e := newElsewhere(ours, []*offered{{limits: limits, offeredListener: offeredListener{Taken: 4}}, {}})
			if n := limits.Elsewhere(); n != 4 {
				t.Errorf("got %d connections elsewhere, want those of the offer, 4", n)
			}
			if _, err := theirs.Write([]byte(`{"open":[7,1]}`)); err != nil {
				t.Fatal(err)
			}
			wantElsewhere(t, limits, 7)
			if _, err := theirs.Write([]byte(bad)); err != nil {
				t.Fatal(err)
			}
			wantElsewhere(t, limits, 0)
			e.came(0)
			if n := limits.Elsewhere(); n != 0 {
				t.Errorf("got %d connections elsewhere, want 0", n)
			}
			if got := log.String(); log.Count("\n") != 1 || !log.Has("no longer counts") {
				t.Errorf("got the log %q, want a line", got)
			}
		})
	}
}

// TestBadTally: the handover goes on without counts if the descriptor that comes with ready is no
// socket that a tally can be.
func TestBadTally(t *testing.T) {
	testnet.NoLeaks(t)
	for name, open := range map[string]func(t *testing.T) any{
		"a file": func(t *testing.T) any { return testnet.TempFile(t, nil) },
		"TCP":    func(t *testing.T) any { c, _ := testnet.Pair(t, percore.Listen, testnet.TCP4); return c },
		"stream": func(t *testing.T) any { c, _ := testnet.Pair(t, percore.Listen, testnet.Unix); return c },
	} {
		t.Run(name, func(t *testing.T) {
			useFakes(t)
			log := logTo(t)
			p := newPredecessor(t, testnet.TCP4, 1)
			giving, taking := pair(t)
			gave := goGive(t.Context(), giving, Server{Name: "web", Listener: p.ln})
			s := newStranger(t, taking)
			s.greet()
			s.say(&message{Kind: ready}, s.copyOf(open(t)))
			s.hear(done)
			s.say(&message{Kind: over})
			if err := testnet.Receive(t, "Give", gave); err != nil {
				t.Error(err)
			}
			p.wantAll(t)
			if got := log.String(); log.Count("\n") != 1 || !log.Has("can't be told how many") {
				t.Errorf("got the log %q, want a line", got)
			}
		})
	}
}
