package httpstream_test

import (
	"fmt"
	"hash/fnv"
	"log"
	"maps"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// This file plays scripts that a fuzzer has written against net/http's server and the one under
// test. scenario_test.go decodes them, handlers_test.go has their handlers, and rules_test.go the
// differences that are allowed.
//
// Nothing in a script depends on time. After each step the client waits until the server has done
// everything that the step makes it do: it has answered a PING, all other goroutines wait,
// and it has answered a second PING, which comes behind everything that the handlers have sent. What
// still depends on the scheduler is compared as a set: a part of an outcome is a difference only if
// neither server shows one of the other's in several plays.

// FuzzDiffer plays a script against both servers. Each part of the outcome must be the same: what
// the handlers saw, what each stream got in each step, how streams and connection ended.
//
//	go test -run '^$' -fuzz FuzzDiffer -parallel 1 ./adapters/httpadapter/internal/httpstream
func FuzzDiffer(f *testing.F) {
	var arenas [len(configs)][len(ways)]*arena
	for i := range configs {
		for j, way := range ways {
			arenas[i][j] = openArena(f, way, configs[i])
		}
	}
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // for awaitRest
	f.Fuzz(func(t *testing.T, code []byte) {
		sc := decodeScenario(code)
		if diff, _ := duel(t, arenas[sc.config], sc); diff != "" {
			t.Errorf("%s\n%s", sc, diff)
		}
	})
}

// duel plays a scenario until the servers have an outcome in common for each part. It returns the
// parts for which they have none, and how often it was played again.
func duel(t *testing.T, arenas [len(ways)]*arena, sc *scenario) (diff string, again int) {
	var shown [len(ways)]outcomes
	var records [len(ways)]*record
	for again = range playsMost {
		for j, a := range arenas {
			records[j] = a.play(t, sc)
		}
		compare := sc.allow(records[0], records[1])
		for j := range records {
			shown[j].add(records[j].parts(compare))
		}
		if diff = shown[0].difference(shown[1]); diff == "" {
			break
		}
	}
	return diff, again
}

// playsMost is how often a script is played before a difference counts.
const playsMost = 6

// cutTime is how long the client pauses in the middle of a frame. That it suffices for the server to
// read what has come is likely, and nothing depends on it.
const cutTime = 100 * time.Microsecond

// configs are the settings of the servers.
var configs = [...]func(*http.Server){
	func(*http.Server) {},
	func(srv *http.Server) {
		srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 3, MaxReceiveBufferPerStream: 500, MaxReceiveBufferPerConnection: 65535}
	},
	func(srv *http.Server) { srv.MaxHeaderBytes, srv.DisableGeneralOptionsHandler = 1000, true },
}

// An arena is a server that plays scripts, each on a connection of its own.
type arena struct {
	name  string
	l     net.Listener
	plays sync.Map // of *play, by the client's address
}

// Write takes a line of the server's log. Only the panics of handlers are of interest.
func (a *arena) Write(line []byte) (int, error) {
	if rest, ok := strings.CutPrefix(string(line), "http2: panic serving "); ok {
		addr, rest, _ := strings.Cut(rest, ": ")
		reason, _, _ := strings.Cut(rest, "\n")
		if p, ok := a.plays.Load(addr); ok {
			p.(*play).panics.note("%s", reason)
		}
	}
	return len(line), nil
}

func openArena(f testing.TB, w way, configure func(*http.Server)) *arena {
	a := &arena{name: w.name}
	srv := &http.Server{
		ErrorLog: log.New(a, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, _ := a.plays.Load(r.RemoteAddr)
			p.(*play).handle(w, r)
		}),
		ConnState: func(nc net.Conn, s http.ConnState) {
			if p, ok := a.plays.Load(nc.RemoteAddr().String()); ok && s == http.StateClosed {
				close(p.(*play).closed)
			}
		},
	}
	configure(srv)
	a.l = w.serve(f, srv)
	return a
}

// A play is one script on one server.
type play struct {
	t        *testing.T
	scenario *scenario
	peer     *frames.Peer
	record   *record
	step     int
	pings    byte
	dead     bool          // the connection has ended, or is about to
	closed   chan struct{} // closed when the server has closed the connection
	over     chan struct{} // closed when no more gates open
	running  atomic.Int32  // handlers
	panics   seen

	gates []chan bool

	mu    sync.Mutex
	seen  map[string]*seen
	fates map[int]fate // of the handlers' streams
	all   fate         // of all of them
}

// play plays a script, and returns what was seen.
func (a *arena) play(t *testing.T, sc *scenario) *record {
	c, err := net.Dial("tcp", a.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	p := &play{t: t, scenario: sc, peer: frames.NewPeer(t, c), record: newRecord(), closed: make(chan struct{}), over: make(chan struct{}),
		seen: make(map[string]*seen), fates: make(map[int]fate)}
	p.peer.Out = nil
	for range sc.opened {
		p.gates = append(p.gates, make(chan bool, len(sc.steps)))
	}
	a.plays.Store(c.LocalAddr().String(), p)

	for i := range sc.steps {
		p.step = i
		if p.do(&sc.steps[i]); p.dead {
			break
		}
	}
	p.mu.Lock()
	p.all = over
	p.mu.Unlock()
	p.hangUp(c.(*net.TCPConn))
	if p.dead && !sc.patient {
		go func() { // net/http takes a second to close it
			<-p.closed
			close(p.over)
			a.plays.Delete(c.LocalAddr().String())
		}()
		return p.record
	}
	where := " on " + a.name + " in " + sc.String()
	testnet.Receive(t, "the end of the connection"+where, p.closed)
	close(p.over)
	testnet.Eventually(t, "the handlers' end"+where, func() bool { return p.running.Load() == 0 })
	a.plays.Delete(c.LocalAddr().String())
	p.record.whole, p.record.log = true, p.panics.text()
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.seen {
		p.record.handlers[key] = s.text()
	}
	return p.record
}

// do does a step, and waits until the server has done its part.
func (p *play) do(s *step) {
	p.mu.Lock()
	for _, h := range s.resets {
		p.fates[h] = max(p.fates[h], resetAlone)
		if p.scenario.burst(p.step) > 1 {
			p.fates[h] = resetInBurst
		}
	}
	p.mu.Unlock()
	if s.release >= 0 && s.release < len(p.gates) {
		p.gates[s.release] <- true
	}
	from := 0
	for _, cut := range s.cuts {
		if cut > from && cut < len(s.out) {
			p.send(s.out[from:cut])
			time.Sleep(cutTime)
			from = cut
		}
	}
	p.send(s.out[from:])
	p.ping()
	awaitRest()
	p.ping()
}

func (p *play) send(b []byte) {
	if len(b) > 0 && !p.dead {
		_, _ = p.peer.Conn.Write(b) // a server that has hung up is noticed by ping
	}
}

// ping notes the frames that come before the answer to a PING.
func (p *play) ping() {
	if p.dead {
		return
	}
	p.pings++
	data := [8]byte{'b', 'a', 'r', 'r', 'i', 'e', 'r', p.pings}
	var out frames.Peer
	p.send(out.Frame(frames.Ping, 0, 0, data[:]).Out)
	for want := fmt.Sprintf("pong %x", data); !p.dead; {
		line := p.peer.Next()
		if line == want {
			return
		}
		p.note(line)
	}
}

// note notes a frame of the server's.
func (p *play) note(line string) {
	if line == "end" || strings.HasPrefix(line, "error") {
		if strings.Contains(line, "i/o timeout") {
			p.t.Fatalf("the server hangs in step %d of\n%s", p.step, p.scenario)
		}
		p.dead = true
		line = "end" // whether a FIN or a reset came depends on what was unread
	}
	if strings.HasPrefix(line, "goaway") && !strings.HasSuffix(line, "NO_ERROR") {
		p.dead = true // net/http closes it later than this server does
		line = "goaway" + line[strings.LastIndexByte(line, ' '):]
	}
	p.record.add(p.step, line)
	if strings.HasPrefix(line, "reset ") {
		p.doom(line)
	}
}

// doom notes that the server has reset a stream.
func (p *play) doom(line string) {
	var id int
	_, _ = fmt.Sscanf(line, "reset %d", &id)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.scenario.opened {
		if o.stream == id {
			p.fates[i] = max(p.fates[i], resetAlone)
		}
	}
}

// hangUp ends the connection from the client's side.
func (p *play) hangUp(c *net.TCPConn) {
	switch {
	case p.scenario.ending == endReset:
		_ = c.SetLinger(0)
		c.Close()
	case p.scenario.ending == endHalf && !p.dead:
		_ = c.CloseWrite()
		for !p.dead {
			if line := p.peer.Next(); line == "end" || strings.HasPrefix(line, "error") {
				p.dead = true
			}
		}
		c.Close()
	default:
		c.Close()
	}
}

// A record is what was seen of a script. The keys of frames are "STEP STREAM".
type record struct {
	frames   map[place][]string
	handlers map[string]string // by the handler's number and how often it was called before
	log      string
	whole    bool // handlers and log are complete
}

type place struct{ step, stream int } // stream 0 is the connection

func newRecord() *record {
	return &record{frames: make(map[place][]string), handlers: make(map[string]string)}
}

// add adds a frame. The credit that a server gives is its own business.
func (r *record) add(step int, line string) {
	kind, rest, _ := strings.Cut(line, " ")
	at := place{step: step}
	switch kind {
	case "window", "settings":
		if line != "settings ack" || slices.Contains(r.frames[at], line) { // they may be combined
			return
		}
	case "headers", "data", "reset":
		if _, err := fmt.Sscan(rest, &at.stream); err != nil {
			panic("a frame without a stream: " + line)
		}
		line = withoutDate(line)
	}
	r.frames[at] = append(r.frames[at], line)
}

// parts returns what is compared, by name.
func (r *record) parts(compare scope) map[string]string {
	parts := make(map[string]string)
	for at, lines := range r.frames {
		if compare.frames(at) {
			lines = withoutLateReset(slices.Clone(lines))
			lines = fromReset(joinEnd(withoutRefusal(merge(lines))))
			for i, l := range lines {
				lines[i] = short(l)
			}
			parts[fmt.Sprintf("step %d stream %d", at.step, at.stream)] = strings.Join(lines, "\n\t\t")
		}
	}
	for key, text := range r.handlers {
		if compare.handler(key) {
			parts["handler "+key] = strings.ReplaceAll(withoutCauses(text), "\n\t", "\n\t\t")
		}
	}
	if compare.all() && r.whole {
		parts["log"] = r.log
	}
	return parts
}

// causes match net/http's reasons in errors of a stream that was reset: see the rule "cause".
var causes = regexp.MustCompile(`; (invalid|duplicate|pseudo|mix of|unexpected)[^,\n]*`)
var bareCauses = regexp.MustCompile(`(invalid (pseudo-header|header field)|duplicate pseudo|pseudo header field|mix of request)[^,\n]*`)

func withoutCauses(text string) string {
	return bareCauses.ReplaceAllString(causes.ReplaceAllString(text, ""), "http2: stream closed")
}

// withoutLateReset removes the reset behind a complete answer: see the rule "late reset".
func withoutLateReset(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "reset ") && strings.HasSuffix(l, " NO_ERROR")
	})
}

// withoutRefusal removes what comes behind the answer to a malformed request: see the rule "refused".
func withoutRefusal(lines []string) []string {
	i := slices.IndexFunc(lines, func(l string) bool {
		return strings.Contains(l, " :status=400 content-type=text/plain; charset=utf-8 ")
	})
	if i < 0 {
		return lines
	}
	lines[i] = strings.TrimSuffix(lines[i], " end")
	return lines[:i+1]
}

// joinEnd moves END_STREAM from empty DATA to the frame before: see the rule "empty".
func joinEnd(lines []string) []string {
	isEnd := func(l string) bool { return strings.HasPrefix(l, "data ") && strings.HasSuffix(l, ` "" end`) }
	i := slices.IndexFunc(lines, isEnd)
	if i < 1 {
		return lines
	}
	lines[i-1] += " end"
	return slices.Delete(lines, i, i+1)
}

// fromReset removes what a reset may overtake: see the rule "overtaken".
func fromReset(lines []string) []string {
	return lines[max(0, slices.IndexFunc(lines, func(l string) bool { return strings.HasSuffix(l, " INTERNAL_ERROR") })):]
}

// short shortens a long line, so that it still differs from others.
func short(line string) string {
	if len(line) < 300 {
		return line
	}
	h := fnv.New32()
	h.Write([]byte(line))
	return fmt.Sprintf("%s... %d bytes, sum %x %s", line[:60], len(line), h.Sum32(), line[len(line)-10:])
}

// outcomes are the outcomes of several plays on one server: for each part those that were seen. A
// part that was missing in a play has the outcome "".
type outcomes struct {
	plays int
	parts map[string][]string
}

func (o *outcomes) add(parts map[string]string) {
	if o.parts == nil {
		o.parts = make(map[string][]string)
	}
	for name, text := range parts {
		o.parts[name] = append(o.parts[name], text)
	}
	o.plays++
}

// of returns the outcomes of a part.
func (o *outcomes) of(name string) []string {
	got := o.parts[name]
	if len(got) < o.plays {
		got = append(slices.Clone(got), "")
	}
	return got
}

// difference returns the parts for which the servers have no outcome in common.
func (o *outcomes) difference(other outcomes) string {
	var b strings.Builder
	names := slices.Concat(slices.Collect(maps.Keys(o.parts)), slices.Collect(maps.Keys(other.parts)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		mine, others := o.of(name), other.of(name)
		if !slices.ContainsFunc(mine, func(s string) bool { return slices.ContainsFunc(others, func(o string) bool { return alike(s, o) }) }) {
			mine, others := afterPrefix(mine[0], others[0])
			fmt.Fprintf(&b, "%s:\n\tnet/http\n\t\t%s\n\tthis server\n\t\t%s\n", name, mine, others)
		}
	}
	return b.String()
}

// notCompared is a line that equals all others.
const notCompared = "(not compared)"

// alike reports whether two outcomes of a part are the same.
func alike(a, b string) bool {
	return slices.EqualFunc(strings.Split(a, "\n"), strings.Split(b, "\n"), func(a, b string) bool {
		return a == b || strings.TrimSpace(a) == notCompared || strings.TrimSpace(b) == notCompared
	})
}

// afterPrefix returns a and b without the lines that both begin with.
func afterPrefix(a, b string) (string, string) {
	for {
		first, restA, ok := strings.Cut(a, "\n\t\t")
		if !ok || !strings.HasPrefix(b, first+"\n\t\t") {
			return a, b
		}
		a, b = restA, b[len(a)-len(restA):]
	}
}

// callsAtRest is how many goroutines are in system calls for long: under go test -fuzz, one that
// reads from the process above.
var callsAtRest uint64 = 1 << 32

// awaitRest waits until all other goroutines wait. It needs GOMAXPROCS to be 1: then they have all
// run before Gosched returns, except for those that another one has woken since.
func awaitRest() {
	const looksMost, restful = 1000, 3
	samples := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/not-in-go:goroutines"}}
	for looks, rests := 0, 0; looks < looksMost && rests < restful; looks++ {
		runtime.Gosched()
		metrics.Read(samples)
		calls := samples[1].Value.Uint64()
		callsAtRest = min(callsAtRest, calls)
		if rests++; samples[0].Value.Uint64() > 0 || calls > callsAtRest {
			rests = 0
		}
	}
}
