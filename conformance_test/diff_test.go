package conformance

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// The differential suite. A script is played once against net and once against percore, and everything a
// caller could see is written down. Both transcripts must be equal. To write a script:
//
//   - Name it after the situation, and list in shows the lines that net's transcript must
//     contain to prove that the situation really arose. A script that fails to
//     get anywhere would otherwise agree with itself.
//   - Get actors (named connections) from the stage and let them act: each
//     method performs one operation and notes its outcome.
//   - Note nothing that depends on timing. Where the kernel works in the
//     background, wait for its visible effect with actor.await.
//   - Ports and paths that differ from run to run are replaced by the names of
//     their actors.
type script struct {
	name  string
	kinds []testnet.Kind // where it is played; everywhere if empty
	shows []string       // regular expressions that net's transcript must match
	play  func(s *stage)
}

var onTCP = []testnet.Kind{testnet.TCP4, testnet.TCP6}

// onTwoKinds has scripts that wait played on two kinds of those that they name: all unix sockets wait
// alike, and so do all IP versions.
func onTwoKinds(scripts []script) []script {
	for i := range scripts {
		kinds := slices.Clone(scripts[i].allKinds())
		scripts[i].kinds = slices.DeleteFunc(kinds, func(k testnet.Kind) bool { return k != testnet.TCP4 && k != testnet.Unix })
	}
	return scripts
}

// playScripts plays every script on net and on percore, with accepted connections and with dialed
// ones, as a subtest for each kind.
func playScripts(t *testing.T, scripts []script) {
	playScriptsOn(t, percoreEngine, scripts)
	for _, sc := range scripts {
		for _, kind := range sc.allKinds() {
			playDialed(t, sc, kind)
		}
	}
}

// playScriptsOn plays every script on net and on e, as a subtest for each kind.
func playScriptsOn(t *testing.T, e engine, scripts []script) {
	for _, sc := range scripts {
		for _, kind := range sc.allKinds() {
			t.Run(sc.name+"/"+string(kind), func(t *testing.T) {
				testnet.NoLeaks(t)
				testnet.Address(t, kind) // skips if the kind is missing
				compareEngines(t, sc, kind, netEngine, e)
			})
		}
	}
}

// allKinds returns the kinds that the script is played on.
func (sc script) allKinds() []testnet.Kind {
	if len(sc.kinds) == 0 {
		return testnet.Kinds()
	}
	return sc.kinds
}

// compareEngines fails the test if the script goes differently on e than on the reference.
func compareEngines(t testing.TB, sc script, kind testnet.Kind, reference, e engine) {
	t.Helper()
	want := perform(t, sc, kind, reference)
	for _, pattern := range sc.shows {
		if !regexp.MustCompile(pattern).MatchString(strings.Join(want, "\n")) {
			t.Errorf("the script does not show %q on %s:\n%s", pattern, reference.name, strings.Join(want, "\n"))
		}
	}
	got := perform(t, sc, kind, e)
	if difference := diffLines(want, got); difference != "" {
		t.Errorf("%s (+) differs from %s (-):\n%s", e.name, reference.name, difference)
	}
}

// perform plays a script on one engine and returns the transcript.
func perform(t testing.TB, sc script, kind testnet.Kind, e engine) []string {
	t.Helper()
	s := &stage{TB: t, engine: e, kind: kind}
	testnet.Within(t, "script on "+e.name, func() { sc.play(s) })
	if t.Failed() {
		t.FailNow()
	}
	return s.lines
}

// A stage is where a script is played: it provides listeners and connections
// of one engine and one kind, and keeps the transcript.
type stage struct {
	testing.TB
	engine engine
	kind   testnet.Kind
	lines  []string
	names  []string // pairs of text and replacement, for strings.NewReplacer
}

// Fatalf ends the script, which does not run on the test's own goroutine.
func (s *stage) Fatalf(format string, args ...any) {
	s.Helper()
	s.Errorf("on "+s.engine.name+": "+format, args...)
	runtime.Goexit()
}

// note appends a line to the transcript.
func (s *stage) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.lines = append(s.lines, strings.NewReplacer(s.names...).Replace(line))
}

// noteError appends the full description of an error.
func (s *stage) noteError(what string, err error) { s.note("%s: %s", what, describeError(err)) }

// nameAddr makes the port or path of addr appear as <name> in the transcript.
func (s *stage) nameAddr(addr net.Addr, name string) {
	switch a := addr.(type) {
	case *net.TCPAddr:
		s.names = append(s.names, fmt.Sprintf(":%d", a.Port), ":<"+name+">")
	case *net.UnixAddr:
		if len(a.Name) > 1 { // unnamed sockets are "" or "@": equal everywhere
			s.names = append(s.names, a.Name, "<"+name+">")
		}
	}
}

// listen opens a listener of the stage's kind, called "ln" in the transcript.
func (s *stage) listen() net.Listener {
	ln := testnet.Listen(s, s.engine.listen, s.kind)
	s.nameAddr(ln.Addr(), "ln")
	return ln
}

// connect makes a connection through ln. srv, of the engine, is under test; cli is always a
// connection of package net. On an engine that dials, srv is the dialed end.
func (s *stage) connect(ln net.Listener) (srv, cli *actor) {
	server, client := s.engine.connect(s, ln)
	s.nameAddr(s.engine.dialedEnd(server, client).LocalAddr(), "cli")
	return &actor{Conn: server, stage: s, name: "srv"}, &actor{Conn: client, stage: s, name: "cli"}
}

// pair is listen and connect in one.
func (s *stage) pair() (srv, cli *actor) { return s.connect(s.listen()) }

// retry plays attempts until one reports that chance has not disturbed it, and discards the others.
// It gives up after a few, and fails the test.
func (s *stage) retry(what string, attempt func(try int) bool) {
	s.Helper()
	const tries = 6
	kept := len(s.lines)
	for try := range tries {
		if attempt(try) {
			return
		}
		s.lines = s.lines[:kept]
	}
	s.Fatalf("%s: not in %d tries", what, tries)
}

// A pending operation has started and may block.
type pending struct {
	stage   *stage
	what    string
	outcome chan string
}

// begin starts an operation on its own goroutine and returns when it is blocked. end notes its outcome.
func (s *stage) begin(what string, operation func() string) *pending {
	p := &pending{stage: s, what: what, outcome: make(chan string, 1)}
	testnet.GoBlocked(s, what, func() { p.outcome <- operation() })
	return p
}

// end waits for the operation's end and notes its outcome.
func (p *pending) end() {
	p.stage.Helper()
	p.stage.note("blocked %s", testnet.Receive(p.stage, p.what, p.outcome))
}

// ended reports whether the operation ends within d. end then notes its outcome.
func (p *pending) ended(d time.Duration) bool {
	deadline := time.Now().Add(d)
	for len(p.outcome) == 0 {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// stillBlocked notes whether the operation is still running.
func (p *pending) stillBlocked() {
	letBlock()
	p.stage.note("%s: blocked: %t", p.what, len(p.outcome) == 0)
}

// An actor is a named connection whose operations are noted in the transcript.
type actor struct {
	net.Conn
	stage   *stage
	name    string
	options []string // of the socket, when last noted
}

// note appends a line about the actor.
func (a *actor) note(format string, args ...any) {
	a.stage.note("%s.%s", a.name, fmt.Sprintf(format, args...))
}

// call performs any operation that returns only an error.
func (a *actor) call(what string, operation func() error) {
	a.note("%s: %s", what, describeError(operation()))
}

// readOnce is Read. It returns the count and a line for the transcript.
func (a *actor) readOnce(size int) (n int, line string) {
	buf := make([]byte, size)
	n, err := a.Conn.Read(buf)
	return n, fmt.Sprintf("%s.Read(%d): %d %s %s", a.name, size, n, digest(buf[:max(n, 0)]), describeError(err))
}

// readOutcome is read, for stage.begin.
func (a *actor) readOutcome(size int) string {
	_, line := a.readOnce(size)
	return line
}

// read calls Read once with a buffer of size bytes. How many bytes arrive must not depend on
// timing: await them first, or expect an error.
func (a *actor) read(size int) { a.stage.note("%s", a.readOutcome(size)) }

// readAllOutcome is readAll, for stage.begin.
func (a *actor) readAllOutcome() string {
	d := newDigester()
	_, err := io.Copy(d, onlyReader{a.Conn})
	return fmt.Sprintf("%s.ReadAll: %s %s", a.name, d, describeError(err))
}

// readAll reads to the end or an error, in pieces of any size.
func (a *actor) readAll() { a.stage.note("%s", a.readAllOutcome()) }

// readFullOutcome is readFull, for stage.begin.
func (a *actor) readFullOutcome(n, size int) string {
	var data []byte
	var err error
	for len(data) < n && err == nil {
		buf := make([]byte, size)
		var m int
		m, err = a.Conn.Read(buf)
		data = append(data, buf[:m]...)
	}
	return fmt.Sprintf("%s.ReadFull(%d): %s %s", a.name, n, digest(data), describeError(err))
}

// readFull reads exactly n bytes, or until an error. It reads in pieces of any size, with a buffer
// of size bytes.
func (a *actor) readFull(n, size int) { a.stage.note("%s", a.readFullOutcome(n, size)) }

// writeOutcome is write, for stage.begin.
func (a *actor) writeOutcome(data []byte) string {
	n, err := a.Conn.Write(data)
	return fmt.Sprintf("%s.Write(%s): %d %s", a.name, digest(data), n, describeError(err))
}

// write calls Write once.
func (a *actor) write(text string) { a.writeBytes([]byte(text)) }

// writeBytes is write for more than a few words.
func (a *actor) writeBytes(data []byte) { a.stage.note("%s", a.writeOutcome(data)) }

func (a *actor) close() { a.call("Close()", a.Conn.Close) }

func (a *actor) closeRead() {
	a.call("CloseRead()", func() error { return as[interface{ CloseRead() error }](a).CloseRead() })
}

func (a *actor) closeWrite() {
	a.call("CloseWrite()", func() error { return as[interface{ CloseWrite() error }](a).CloseWrite() })
}

// reset closes the connection so that the peer receives a TCP reset.
func (a *actor) reset() {
	a.linger(0)
	a.close()
}

func (a *actor) linger(seconds int) {
	a.call(fmt.Sprintf("SetLinger(%d)", seconds), func() error {
		return as[interface{ SetLinger(int) error }](a).SetLinger(seconds)
	})
}

// deadlines sets a deadline by name ("SetDeadline", "SetReadDeadline", "SetWriteDeadline").
func (a *actor) deadline(method string, when time.Time) {
	set := map[string]func(time.Time) error{
		"SetDeadline":      a.Conn.SetDeadline,
		"SetReadDeadline":  a.Conn.SetReadDeadline,
		"SetWriteDeadline": a.Conn.SetWriteDeadline,
	}[method]
	a.call(method, func() error { return set(when) })
}

// addrs notes both addresses.
func (a *actor) addrs() {
	a.note("LocalAddr: %s", describeAddr(a.Conn.LocalAddr()))
	a.note("RemoteAddr: %s", describeAddr(a.Conn.RemoteAddr()))
}

// beginRead, beginReadAll and beginWrite start operations that are expected to block.
func (a *actor) beginRead(size int) *pending {
	return a.stage.begin(a.name+".Read", func() string { return a.readOutcome(size) })
}

func (a *actor) beginReadAll() *pending {
	return a.stage.begin(a.name+".ReadAll", a.readAllOutcome)
}

func (a *actor) beginWrite(data []byte) *pending {
	return a.stage.begin(a.name+".Write", func() string { return a.writeOutcome(data) })
}

// beginCutWrite starts to write muchData to the peer, which doesn't read, and waits until some of
// it has arrived. The kernel determines how much has been written when something cuts the write
// short, but it must be some.
func (a *actor) beginCutWrite(peer *actor) *pending {
	p := a.stage.begin(a.name+".Write", func() string {
		n, err := a.Conn.Write(pattern(muchData))
		return fmt.Sprintf("%s.Write(much): some: %t %s", a.name, n > 0, describeError(err))
	})
	peer.awaitReadable(1)
	return p
}

// as returns the connection as an interface and ends the script if it lacks the methods.
func as[I any](a *actor) I {
	a.stage.Helper()
	i, ok := a.Conn.(I)
	if !ok {
		a.stage.Fatalf("%s, a %T, is no %T", a.name, a.Conn, (*I)(nil))
	}
	return i
}

// digest renders data: short text as it is, more by length and hash.
func digest(data []byte) string {
	d := newDigester()
	d.Write(data)
	return d.String()
}

// A digester makes the digest of what is written to it. It doesn't keep that: under the race
// detector each copy of a byte costs as much as the test's own work.
type digester struct {
	short []byte // the first maxText bytes
	size  int
	hash  hash.Hash
}

// maxText is the length up to which a digest is the text itself.
const maxText = 64

func newDigester() *digester { return &digester{hash: sha256.New()} }

func (d *digester) Write(data []byte) (int, error) {
	d.short = append(d.short, data[:min(len(data), maxText-len(d.short))]...)
	d.size += len(data)
	return d.hash.Write(data)
}

func (d *digester) String() string {
	if d.size == len(d.short) {
		return fmt.Sprintf("%q", d.short)
	}
	return fmt.Sprintf("%d bytes, sha256 %.8x", d.size, d.hash.Sum(nil))
}

// muchData is more than any socket buffer of the tests takes: writing it blocks until the peer reads.
const muchData = 16 << 20

// pattern returns n bytes, up to muchData, that don't repeat soon, so that lost, repeated and
// swapped pieces change the digest. The caller must not modify them.
func pattern(n int) []byte { return wholePattern()[:n] }

// wholePattern is made once, so that writing it needs no preparation.
var wholePattern = sync.OnceValue(func() []byte {
	b := make([]byte, muchData)
	state := uint32(1)
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = byte(state >> 24)
	}
	return b
})

// contextLines is how many equal lines are shown on each side of a difference.
const contextLines = 3

// diffLines compares two transcripts. From the first difference to the last, lines of want are marked
// "-" and those of got "+"; lines of both near them are indented. It returns "" if there is no
// difference.
func diffLines(want, got []string) string {
	if slices.Equal(want, got) {
		return ""
	}
	shorter := min(len(want), len(got))
	begin, end := 0, 0 // how many lines are equal at either end
	for begin < shorter && want[begin] == got[begin] {
		begin++
	}
	for end < shorter-begin && want[len(want)-1-end] == got[len(got)-1-end] {
		end++
	}
	var b strings.Builder
	add := func(mark string, lines []string) {
		for _, line := range lines {
			fmt.Fprintf(&b, "  %s %s\n", mark, line)
		}
	}
	last := len(want) - end
	add(" ", want[max(0, begin-contextLines):begin])
	add("-", want[begin:last])
	add("+", got[begin:len(got)-end])
	add(" ", want[last:min(len(want), last+contextLines)])
	return b.String()
}

// sortLines puts the transcript in order where the order of events is free.
func (s *stage) sortLines() { slices.Sort(s.lines) }

// describeCopy renders the results of io.Copy and similar calls.
func describeCopy(what string, n int64, err error) string {
	return fmt.Sprintf("%s: %d %s", what, n, describeError(err))
}

// ignoreEOF returns nil for the normal end of a stream.
func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
