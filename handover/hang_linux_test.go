//go:build !percore_net

package handover

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestLateReader: a process that was stopped before it could read finds the messages that have come,
// whatever limit is over by then.
func TestLateReader(t *testing.T) {
	testnet.NoLeaks(t)
	giving, taking := pair(t)
	ours, theirs := newStranger(t, giving), newStranger(t, taking)
	theirs.say(&message{Kind: ready})
	theirs.say(&message{Kind: over})
	for _, want := range []kind{ready, over} {
		if m, _, err := ours.receive(t.Context(), 1); err != nil || m.Kind != want {
			t.Fatalf("got %+v, %v, want %q", m, err, want)
		}
	}
	if _, _, err := ours.receive(t.Context(), 1); !errors.Is(err, errSilent) {
		t.Errorf("got %v, want %v", err, errSilent)
	}
}

// TestPackets: a message of any length arrives whole, alone or behind another.
func TestPackets(t *testing.T) {
	testnet.NoLeaks(t)
	giving, taking := pair(t)
	ours, theirs := newStranger(t, giving), newStranger(t, taking)
	p, _ := (&message{Kind: hello, Reason: "x"}).encode()
	var sent sync.WaitGroup
	defer sent.Wait()
	sizes := []int{packetBytes - 1, packetBytes, packetBytes + 1, 2 * packetBytes, 3*packetBytes - 1}
	sent.Go(func() {
		for _, size := range sizes {
			theirs.say(&message{Kind: hello, Reason: strings.Repeat("x", 1+size-len(p))})
		}
	})
	for _, size := range sizes {
		if got := len(ours.hear(hello).Reason); got != 1+size-len(p) {
			t.Errorf("a message of %d bytes: got %d bytes of its reason", size, got)
		}
	}
}

// TestOverInTime: a predecessor that gives up before it has read ready finds behind it that the
// successor has gone on, and what that has dropped.
func TestOverInTime(t *testing.T) {
	testnet.NoLeaks(t)
	giving, taking := pair(t)
	ours, theirs := newStranger(t, giving), newStranger(t, taking)
	theirs.say(&message{Kind: ready, Dropped: []int{1}})
	theirs.say(&message{Kind: over})
	g := &giver{wire: ours.wire, servers: make([]server, 2)}
	if !g.isOver() || !g.dropped[1] {
		t.Errorf("got dropped listeners %v, want over, and listener 1", g.dropped)
	}
	if err := theirs.send(&message{Kind: over}); !errors.Is(err, errGone) {
		t.Errorf("a second over: got %v, want %v", err, errGone)
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
		{"the end", func(s *stranger) { s.close() }, errGone.Error()},
		{"gives up", func(s *stranger) { s.refuse(errTest); s.close() }, "gave up: " + errTest.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			useFakes(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			giving, taking := pair(t)
			s := newStranger(t, giving)
			a, theirs := s.offered(taking, ln)
			defer theirs.Close()
			test.play(s)
			wantError(t, a.ready(t.Context(), nil), test.want)
		})
	}
}

// TestDrop: a listener that the successor doesn't open stays with the predecessor, accepts, and
// keeps its connections; the other moves.
func TestDrop(t *testing.T) {
	useFakes(t)
	old, web := newPredecessor(t, testnet.TCP4, 2), newPredecessor(t, testnet.TCP4, 2)
	a, gave := meet(t, old.server("old"), web.server("web"))
	ln := mustOpen(t, a, "web")
	if err := errors.Join(a.ready(t.Context(), nil), testnet.Receive(t, "give", gave)); err != nil {
		t.Fatal(err)
	}
	if got, want := old.fake.state(), "paused=false unlink=true adopted=0"; got != want || old.fake.pauses > 0 {
		t.Errorf("the listener that was dropped: got %s, paused %d times, want %s, never", got, old.fake.pauses, want)
	}
	old.wantAll(t)
	if got, want := web.fake.state(), "paused=true unlink=false adopted=0"; got != want {
		t.Errorf("the listener that has moved: got %s, want %s", got, want)
	}
	if got, want := len(fakeOf(ln).adopted), 2; got != want {
		t.Errorf("got %d connections, want %d", got, want)
	}
}

// TestNothingWanted: a successor that opens no listener takes nothing over.
func TestNothingWanted(t *testing.T) {
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	a, gave := meet(t, p.server("web"))
	const want = "wants none of the predecessor's listeners"
	wantError(t, a.ready(t.Context(), nil), want)
	p.wantServesOn(t, testnet.Receive(t, "give", gave), want)
}

// TestRefuse: a process gets the reason of the other, whether it has said something or not.
func TestRefuse(t *testing.T) {
	testnet.NoLeaks(t)
	for range 20 {
		giving, taking := pair(t)
		took := goTake(t, taking)
		w := newWire(giving)
		w.refuse(errTest)
		w.close()
		wantError(t, testnet.Receive(t, "take", took), "gave up: "+errTest.Error())
	}
}

// stop stops a process.
func stop(t *testing.T, child *testnet.ChildProcess) {
	t.Helper()
	_ = syscall.Kill(child.PID(), syscall.SIGSTOP)
	testnet.Eventually(t, "the process is stopped", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child.PID()))
		return bytes.Contains(stat, []byte(") T "))
	})
}

// TestStoppedSuccessor: a successor that is stopped is given up, and finds that out when it goes on.
func TestStoppedSuccessor(t *testing.T) {
	testnet.NoLeaks(t)
	p := newRealPredecessor(t, testnet.TCP4, 3)
	p.source.busy = make(chan struct{})
	child, c := startSuccessor(t)
	gave := goGive(t.Context(), c, p.server("web"))
	testnet.Eventually(t, "the connections move", func() bool { return p.source.left() == 0 })
	stop(t, child)
	shortSteps(t)
	close(p.source.busy)
	wantError(t, testnet.Receive(t, "give", gave), "has sent nothing for 400ms; this process serves on")
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
	address := filepath.Join(testnet.ShortTempDir(t), "s")
	p := startPredecessor(t, address, 3, "BUSY=1")
	shortSteps(t)
	a, ln := mustTake(t, p.wire)
	defer serveEcho(t, ln).End()
	readied := make(chan error, 1)
	go func() { readied <- a.ready(t.Context(), nil) }()
	testnet.Eventually(t, "the connections arrive", func() bool { return ln.(*percore.Listener).Stats().Adopted == 3 })
	stop(t, p.child)
	if err := testnet.Receive(t, "ready", readied); !errors.Is(err, errGone) {
		t.Errorf("got %v, want %v", err, errGone)
	}
	for _, c := range append(p.clients, testnet.Dial(t, ln)) {
		mustEcho(t, c)
	}
	_ = syscall.Kill(p.child.PID(), syscall.SIGCONT)
	if line, err := p.out.ReadString('\n'); line != "gave: <nil>\n" {
		t.Errorf("the predecessor: got %q, %v, want it to leave", line, err)
	}
	if err := p.child.Wait(); err != nil {
		t.Error(err)
	}
}
