//go:build !percore_net

package handover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestPatience: a process is given up after the limit without a sign of life, or without an answer,
// in ticks of this process, however long these take.
func TestPatience(t *testing.T) {
	for _, test := range []struct {
		name    string
		timeout time.Duration
		hears   bool
		heard   func(tick int) bool
		ticks   int // until it gives up; 0: never
		want    string
	}{
		{"silent", 0, true, func(int) bool { return false }, 5, "gives no sign of life"},
		{"lives", 0, true, func(int) bool { return true }, 0, ""},
		{"now and then", 0, true, func(tick int) bool { return tick%5 == 0 }, 0, ""},
		{"falls silent", 0, true, func(tick int) bool { return tick < 20 }, 25, "gives no sign of life"},
		{"doesn't answer", 10 * time.Second, true, func(int) bool { return true }, 5, "does not answer for 10s"},
		{"a part of a tick", 9 * time.Second, true, func(int) bool { return true }, 5, "does not answer for 9s"},
		{"no signs yet", 0, false, func(int) bool { return false }, 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := patience{timeout: test.timeout, hears: test.hears}
			p.begin()
			for tick := range 1000 {
				p.heard = p.heard || test.heard(tick)
				if err := p.pass(); err != nil {
					wantError(t, err, test.want)
					if tick+1 != test.ticks {
						t.Errorf("got an end after %d ticks, want %d", tick+1, test.ticks)
					}
					return
				}
			}
			if test.ticks != 0 {
				t.Errorf("it does not give up, want an end after %d ticks", test.ticks)
			}
		})
	}
}

// lives fails the test unless the other process gives signs of life.
func (s *stranger) lives() {
	s.t.Helper()
	for range 3 {
		m, fds, err := s.receiveUntil(context.Background(), time.Now().Add(testnet.HangTimeout))
		if err != nil || m.Kind != alive {
			s.t.Fatalf("got %+v, %v, want a sign of life", m, err)
		}
		fds.close()
	}
}

// silentSuccessors give no sign of life from some step on.
var silentSuccessors = []struct {
	name string
	play func(s *stranger)
	want string
}{
	{"before ready", func(s *stranger) { s.greet() }, "waiting for the successor to be ready: "},
	{"before took", func(s *stranger) { s.ready() }, "handing over connections: "},
	{"busy", func(s *stranger) {
		s.ready()
		s.say(&message{Kind: took})
		s.hear(commit)
		s.lives()
	}, "handing over connections: "},
}

// TestSilentSuccessor: the predecessor notices at each step, serves on, and can be handed over again.
func TestSilentSuccessor(t *testing.T) {
	for _, test := range silentSuccessors {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			quickBeats(t)
			p := newPredecessor(t, testnet.TCP4, 1)
			isBusy := test.name == "busy"
			if isBusy {
				p.source.busy = make(chan struct{})
			}
			giving, taking := pair(t)
			gave := goGive(t.Context(), giving, p.server("web"))
			test.play(newStranger(t, taking))
			silenceNanoseconds.Store(int64(20 * time.Millisecond))
			err := testnet.Receive(t, "Give", gave)
			p.wantServesOn(t, err, test.want, "gives no sign of life")
			if !errors.Is(err, ErrGone) {
				t.Errorf("got %v, want it to wrap %v", err, ErrGone)
			}
			if !isBusy { // whose connection was committed
				p.wantAll(t)
				silenceNanoseconds.Store(int64(testnet.HangTimeout))
				p.handOver(t)
			}
		})
	}
}

// TestUnfinished: the end of a handover is the successor's word that it has taken over. Without it
// the predecessor serves on, with the word it leaves, whenever that comes.
func TestUnfinished(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(s *stranger)
		want string // in Give's error; "": none
	}{
		{"over", func(s *stranger) { s.hear(done); s.say(&message{Kind: over}) }, ""},
		{"over and the end", func(s *stranger) { s.hear(done); s.say(&message{Kind: over}); s.close() }, ""},
		{"the end", func(s *stranger) { s.hear(done); s.close() }, "ending: " + ErrGone.Error()},
		{"garbage", func(s *stranger) { s.hear(done); s.raw([]byte(httpText)) }, notOurs},
		{"took", func(s *stranger) { s.hear(done); s.say(&message{Kind: took}) }, `"took" came where "over" is due`},
		{"gives up", func(s *stranger) { s.hear(done); s.refuse(errTest) }, "gave up: " + errTest.Error()},
		{"nothing", func(s *stranger) { s.hear(done); silenceNanoseconds.Store(int64(20 * time.Millisecond)) }, "gives no sign of life"},
		{"signs of life only", func(s *stranger) { s.beat(); s.hear(done) }, "has not said for"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			quickBeats(t)
			p := newPredecessor(t, testnet.TCP4, 0)
			giving, taking := pair(t)
			gave := goGive(t.Context(), giving, p.server("web"))
			s := newStranger(t, taking)
			s.greet()
			if test.name == "signs of life only" {
				defer stepNanoseconds.Store(stepNanoseconds.Swap(int64(time.Second))) // of the steps after ready
			}
			s.say(&message{Kind: ready})
			test.play(s)
			err := testnet.Receive(t, "Give", gave)
			if test.want != "" {
				p.wantServesOn(t, err, test.want)
				return
			}
			if err != nil {
				t.Error(err)
			}
			if got, want := p.fake.state(), "begun=true paused=true unlink=false adopted=0"; got != want || !p.fake.IsMoved() {
				t.Errorf("the predecessor's listener: got %s, moved %t, want %s", got, p.fake.IsMoved(), want)
			}
		})
	}
}

// TestSilentPredecessor: the successor notices at each step and goes on, with the connections that
// were committed. A predecessor that wakes up leaves, with the others.
func TestSilentPredecessor(t *testing.T) {
	for _, test := range []struct {
		name    string
		play    func(s *stranger, fd int)
		adopted int
	}{
		{"before conns", func(s *stranger, _ int) { s.lives() }, 0},
		{"before commit", func(s *stranger, fd int) {
			s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, fd)
			s.hear(took)
		}, 0},
		{"before done", func(s *stranger, fd int) {
			s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, fd)
			s.hear(took)
			s.say(&message{Kind: commit})
			s.lives()
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			quickBeats(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			server, client := testnet.Connect(t, ln)
			giving, taking := pair(t)
			s, theirs, readied := arrived(t, giving, taking, ln)
			test.play(s, s.copyOf(server))
			silenceNanoseconds.Store(int64(20 * time.Millisecond))
			err := testnet.Receive(t, "Ready", readied)
			wantError(t, err, "gives no sign of life")
			if !errors.Is(err, ErrGone) {
				t.Errorf("got %v, want it to wrap %v", err, ErrGone)
			}
			s.hear(over)
			f := fakeOf(theirs)
			if got, want := f.state(), fmt.Sprintf("begun=false paused=false unlink=true adopted=%d", test.adopted); got != want {
				t.Fatalf("the successor's listener: got %s, want %s", got, want)
			}
			if test.adopted > 0 {
				talk(t, client, &f.adopted[0])
			} else {
				exchange(t, client, server)
			}
		})
	}
}

// TestLateReader: a process that was stopped before it could read finds the messages that have come,
// whatever limit is over by then.
func TestLateReader(t *testing.T) {
	testnet.NoLeaks(t)
	quickBeats(t)
	giving, taking := pair(t)
	var ends [2]*wire
	for i, c := range []*net.UnixConn{giving, taking} {
		w, err := newWire(c)
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		w.session = strings.Repeat("x", 2*nonceBytes)
		ends[i] = w
	}
	for _, kind := range []kind{alive, ready, over} {
		if err := ends[1].send(&message{Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	beatNanoseconds.Store(int64(-time.Second)) // each deadline is over when it is set
	silenceNanoseconds.Store(math.MinInt64)
	defer time.AfterFunc(10*time.Millisecond, func() { beatNanoseconds.Store(int64(testnet.HangTimeout)) }).Stop()
	ends[0].hears = true
	if g := (&giver{wire: ends[0]}); !g.isOver() {
		t.Error("the predecessor has not found that the successor has gone on")
	}
}

// TestStoppedWhileGivingUp: a predecessor that was stopped between giving its successor up and
// saying so will serve on, so the successor doesn't.
func TestStoppedWhileGivingUp(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	quickBeats(t)
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	giving, taking := pair(t)
	s, theirs, readied := arrived(t, giving, taking, ln)
	s.stopReceiving()
	silenceNanoseconds.Store(int64(20 * time.Millisecond))
	err := testnet.Receive(t, "Ready", readied)
	wantError(t, err, "given this one up")
	if errors.Is(err, ErrGone) {
		t.Errorf("got %v, want it not to wrap %v", err, ErrGone)
	}
	if got, want := fakeOf(theirs).state(), "begun=false paused=false unlink=false adopted=0"; got != want {
		t.Errorf("the successor's listener: got %s, want %s", got, want)
	}
}

// TestPredecessorEndsBeforeReady: a successor that takes its time hears of the predecessor's end,
// or of its refusal.
func TestPredecessorEndsBeforeReady(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(s *stranger)
		want string
	}{
		{"the end", func(s *stranger) { s.close() }, ErrGone.Error()},
		{"gives up", func(s *stranger) { s.refuse(errTest); s.close() }, "gave up: " + errTest.Error()},
		{"garbage", func(s *stranger) { s.raw([]byte(httpText)) }, notOurs},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			giving, taking := pair(t)
			s := newStranger(t, giving)
			a, theirs := s.offered(taking, ln)
			defer theirs.Close()
			test.play(s)
			wantError(t, a.Ready(t.Context()), test.want)
		})
	}
}

// TestDrop: a listener that the successor doesn't want stays with the predecessor, accepts, and
// keeps its connections; the other moves.
func TestDrop(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	old, web := newPredecessor(t, testnet.TCP4, 2), newPredecessor(t, testnet.TCP4, 2)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, old.server("old"), web.server("web"))
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := a.Listener("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, a.Drop("web"), `listener "web" has been taken already`)
	wantError(t, a.Drop("ftp"), `no listener "ftp"`)
	if err := errors.Join(a.Drop("old"), a.Drop("old")); err != nil {
		t.Fatal(err)
	}
	_, err = a.Listener("old", nil)
	wantError(t, err, "has been taken already, or dropped")
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Give", gave); err != nil {
		t.Fatal(err)
	}
	if got, want := old.fake.state(), "begun=false paused=false unlink=true adopted=0"; got != want || old.fake.pauses > 0 || old.fake.IsMoved() {
		t.Errorf("the listener that was dropped: got %s, paused %d times, want %s, never", got, old.fake.pauses, want)
	}
	old.wantAll(t)
	if got, want := web.fake.state(), "begun=true paused=true unlink=false adopted=0"; got != want {
		t.Errorf("the listener that has moved: got %s, want %s", got, want)
	}
	if got, want := len(fakeOf(ln).adopted), 2; got != want {
		t.Errorf("got %d connections, want %d", got, want)
	}
}

// TestBadDrops: neither process accepts drops that make no sense.
func TestBadDrops(t *testing.T) {
	for _, dropped := range [][]int{{-1}, {1}, {0, 7}} {
		testnet.NoLeaks(t)
		useFakes(t)
		p := newPredecessor(t, testnet.TCP4, 1)
		giving, taking := pair(t)
		gave := goGive(t.Context(), giving, p.server("web"))
		s := newStranger(t, taking)
		s.greet()
		s.say(&message{Kind: ready, Dropped: dropped})
		p.wantServesOn(t, testnet.Receive(t, "Give", gave), "the successor drops listener ")
		p.wantAll(t)
	}
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Drop("web"); err != nil {
		t.Fatal(err)
	}
	wantError(t, a.Ready(t.Context()), "all listeners were dropped")
	p.wantServesOn(t, testnet.Receive(t, "Give", gave), "all listeners were dropped")
}

// TestOvertaken: a handover that waits for its successor while another one succeeds says so, and
// not that this process serves on.
func TestOvertaken(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	a, _ := mustTake(t, taking)
	ctx, cancel := context.WithCancel(t.Context())
	slow, slowTaking := pair(t)
	gaveSlow := goGive(ctx, slow, p.server("web"))
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Give", gave); err != nil {
		t.Fatal(err)
	}
	cancel()
	overtaken := func(err error) {
		t.Helper()
		wantError(t, err, ErrOvertaken.Error())
		if !errors.Is(err, ErrOvertaken) || strings.Contains(err.Error(), "serves on") {
			t.Errorf("got %v, want %v", err, ErrOvertaken)
		}
	}
	overtaken(testnet.Receive(t, "the slow Give", gaveSlow))
	_, err := Take(t.Context(), slowTaking)
	wantError(t, err, ErrOvertaken.Error())
	late, lateTaking := pair(t)
	gaveLate := goGive(t.Context(), late, p.server("web"))
	_, err = Take(t.Context(), lateTaking)
	wantError(t, err, ErrOvertaken.Error())
	overtaken(testnet.Receive(t, "the late Give", gaveLate))
}

// TestRefuse: the successor gets the reason, whether it has said hello or not.
func TestRefuse(t *testing.T) {
	testnet.NoLeaks(t)
	for range 20 {
		giving, taking := pair(t)
		took := make(chan error, 1)
		go func() {
			_, err := Take(t.Context(), taking)
			took <- err
		}()
		if err := turnDown(giving, errTest); err != nil {
			t.Fatal(err)
		}
		wantError(t, testnet.Receive(t, "Take", took), "gave up: "+errTest.Error())
	}
}

// TestStoppedSuccessor: a successor that is stopped while a request is under way is given up, and
// finds that out when it goes on.
func TestStoppedSuccessor(t *testing.T) {
	testnet.NoLeaks(t)
	quickBeats(t)
	p := newRealPredecessor(t, testnet.TCP4, 3)
	p.source.busy = make(chan struct{})
	child, c := startSuccessor(t)
	gave := goGive(t.Context(), c, p.server("web"))
	testnet.Eventually(t, "the connections move", func() bool { return p.source.left() == 0 })
	_ = syscall.Kill(child.PID(), syscall.SIGSTOP)
	silenceNanoseconds.Store(int64(20 * time.Millisecond))
	wantError(t, testnet.Receive(t, "Give", gave), "gives no sign of life; this process serves on")
	mustEcho(t, testnet.Dial(t, p.ln))
	_ = syscall.Kill(child.PID(), syscall.SIGCONT)
	line, err := bufio.NewReader(child.Stdout).ReadString('\n')
	if !strings.Contains(line, "the other process gave up: ") {
		t.Errorf("the successor: got %q, %v, want it to know", line, err)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// TestStoppedPredecessor: a predecessor that is stopped while a request is under way is left
// behind, and leaves when it goes on.
func TestStoppedPredecessor(t *testing.T) {
	testnet.NoLeaks(t)
	quickBeats(t)
	dir := testnet.ShortTempDir(t)
	address := filepath.Join(dir, "s")
	child := testnet.StartChild(t, "predecessor", "LISTEN="+address, "NAMED="+filepath.Join(dir, "n"), "CONNECTIONS=3", "KILL=-1", "BUSY=1")
	out := bufio.NewReader(child.Stdout)
	if line, err := out.ReadString('\n'); line != "listening\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	var clients []net.Conn
	for range 3 {
		c, err := net.Dial("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	wire, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(dir, "n")})
	if err != nil {
		t.Fatal(err)
	}
	a, ln := mustTake(t, wire)
	s := newEchoServer(ln)
	defer s.close()
	readied := make(chan error, 1)
	go func() { readied <- a.Ready(t.Context()) }()
	testnet.Eventually(t, "the connections arrive", func() bool { return ln.(*percore.Listener).Stats().Adopted == 3 })
	_ = syscall.Kill(child.PID(), syscall.SIGSTOP)
	silenceNanoseconds.Store(int64(20 * time.Millisecond))
	if err := testnet.Receive(t, "Ready", readied); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	for _, c := range clients {
		mustEcho(t, c)
	}
	c, err := net.Dial("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustEcho(t, c)
	_ = syscall.Kill(child.PID(), syscall.SIGCONT)
	if line, err := out.ReadString('\n'); line != "gave: <nil>\n" {
		t.Errorf("the predecessor: got %q, %v, want it to leave", line, err)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}
