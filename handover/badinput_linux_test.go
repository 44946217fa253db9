//go:build !percore_net

package handover

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// A stranger is the other end of a wire, and sends what it likes.
type stranger struct {
	*wire
	t *testing.T
}

func newStranger(t *testing.T, c *net.UnixConn) *stranger {
	t.Helper()
	w, err := newWire(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return &stranger{w, t}
}

// say sends a message as a proper process does.
func (s *stranger) say(m *message, fds ...int) {
	s.t.Helper()
	if err := s.send(m, fds...); err != nil {
		s.t.Fatalf("sending %q: %v", m.Kind, err)
	}
}

// raw sends bytes and descriptors.
func (s *stranger) raw(p []byte, fds ...int) {
	s.t.Helper()
	if err := writeMsg(s.conn, p, fds); err != nil {
		s.t.Fatal(err)
	}
}

// rights sends descriptors without a byte, which package syscall doesn't.
func (s *stranger) rights(fds ...int) {
	s.t.Helper()
	oob := unix.UnixRights(fds...)
	h := unix.Msghdr{Control: &oob[0]}
	h.SetControllen(len(oob))
	var errno unix.Errno
	if err := control(s.conn, func(fd int) {
		_, _, errno = unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&h)), 0)
	}); err != nil || errno != 0 {
		s.t.Fatalf("sendmsg: %v, %v", err, errno)
	}
}

// forge sends a message of any session, number, and count of descriptors.
func (s *stranger) forge(m *message, fds ...int) {
	s.t.Helper()
	p, err := m.encode()
	if err != nil {
		s.t.Fatal(err)
	}
	s.raw(p, fds...)
}

// hear returns the next message, and closes its descriptors.
func (s *stranger) hear(want kind) *message {
	s.t.Helper()
	m, fds, err := s.receive(context.Background(), testnet.HangTimeout)
	if err != nil || m.Kind != want {
		s.t.Fatalf("got %+v, %v, want %q", m, err, want)
	}
	fds.close()
	return m
}

// greet is the successor's part up to the offer.
func (s *stranger) greet() {
	s.t.Helper()
	s.session = newNonce()
	s.say(&message{Kind: hello})
	s.hear(offer)
	s.hear(sockets)
}

// ready is the successor's part up to the first connections.
func (s *stranger) ready() {
	s.t.Helper()
	s.greet()
	s.say(&message{Kind: ready})
	s.hear(conns)
}

const (
	notOurs  = "not of the protocol"
	httpText = "GET / HTTP/1.1\r\nHost: percore\r\n\r\n"
)

// badSuccessors end a handover before it is committed.
var badSuccessors = []struct {
	name string
	play func(s *stranger)
	want []string // in Give's error
}{
	// Before the offer.
	{"dies at once", func(s *stranger) { s.close() }, []string{"waiting for the successor: ", ErrGone.Error()}},
	{"hangs at once", func(s *stranger) { shortSteps(s.t) }, []string{"waiting for the successor: ", "does not answer"}},
	{"HTTP", func(s *stranger) { s.raw([]byte(httpText)) }, []string{notOurs, `"GET / HTTP/1.1`}},
	{"cut off", func(s *stranger) { s.raw([]byte(`{"protocol":"percore-handover","ver`)) }, []string{notOurs, "cut off"}},
	{"too long", func(s *stranger) { s.raw(make([]byte, bytesMax+1)) }, []string{"longer than"}},
	{"newer", func(s *stranger) { s.raw([]byte(`{"protocol":"percore-handover","version":2,"kind":"hello"}`)) },
		[]string{"speaks version 2 of the protocol, and this one version 1: replace the old process"}},
	{"hello without a session", func(s *stranger) { s.say(&message{Kind: hello}) }, []string{"without a session"}},
	{"ready at first", func(s *stranger) { s.say(&message{Kind: ready}) }, []string{`"ready" came where ["hello"]`}},
	{"hello with a descriptor", func(s *stranger) { s.session = newNonce(); s.say(&message{Kind: hello}, 0) }, []string{"where none belong"}},
	{"descriptors alone", func(s *stranger) { s.rights(0, 1) }, []string{"empty, with 2 descriptors"}},
	{"nothing", func(s *stranger) { s.raw(nil) }, []string{"waiting for the successor: "}},
	{"gives up at once", func(s *stranger) { s.refuse(errors.New("no\nreason")) }, []string{"the other process gave up: no reason"}},

	// Between the offer and ready.
	{"dies before ready", func(s *stranger) { s.greet(); s.close() }, []string{"to be ready: ", ErrGone.Error()}},
	{"hello twice", func(s *stranger) { s.greet(); s.say(&message{Kind: hello}) }, []string{`"hello" came where ["ready"]`}},
	{"another session", func(s *stranger) { s.greet(); s.forge(&message{Kind: ready, Session: newNonce(), Number: 2}) },
		[]string{"of another handover"}},
	{"repeated", func(s *stranger) { s.greet(); s.forge(&message{Kind: ready, Session: s.session, Number: 1}) },
		[]string{"message 1 came where number 2 is due"}},
	{"one left out", func(s *stranger) { s.greet(); s.forge(&message{Kind: ready, Session: s.session, Number: 3}) },
		[]string{"message 3 came where number 2 is due"}},
	{"ready with hidden descriptors", func(s *stranger) { s.greet(); s.forge(&message{Kind: ready, Session: s.session, Number: 2}, 0, 1, 2) },
		[]string{"with 3 descriptors instead of 0"}},
	{"took instead of ready", func(s *stranger) { s.greet(); s.say(&message{Kind: took}) }, []string{`"took" came where ["ready"]`}},
	{"gives up before ready", func(s *stranger) { s.greet(); s.refuse(errTest) }, []string{"to be ready: ", "gave up: " + errTest.Error()}},

	// With connections under way.
	{"dies before took", func(s *stranger) { s.ready(); s.close() }, []string{"handing over connections: ", ErrGone.Error()}},
	{"hangs before took", func(s *stranger) { s.greet(); shortSteps(s.t); s.say(&message{Kind: ready}); s.hear(conns) },
		[]string{"handing over connections: the successor does not take connections for"}},
	{"ready instead of took", func(s *stranger) { s.ready(); s.say(&message{Kind: ready}) }, []string{`"ready" came where ["took" "over"]`}},
	{"took of another session", func(s *stranger) { s.ready(); s.forge(&message{Kind: took, Session: newNonce(), Number: 3}) },
		[]string{"of another handover"}},
	{"took with descriptors", func(s *stranger) { s.ready(); s.forge(&message{Kind: took, Session: s.session, Number: 3}, 0) },
		[]string{"with 1 descriptors instead of 0"}},
	{"HTTP instead of took", func(s *stranger) { s.ready(); s.raw([]byte(httpText)) }, []string{notOurs}},
	{"gives up before took", func(s *stranger) { s.ready(); s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
}

var errTest = errors.New("just testing")

// TestBadSuccessor: the predecessor serves on, says why, and can be handed over afterwards.
func TestBadSuccessor(t *testing.T) {
	for _, test := range badSuccessors {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			p := newPredecessor(t, testnet.TCP4, 2)
			giving, taking := pair(t)
			if test.name == "hangs at once" {
				shortSteps(t)
			}
			gave := goGive(t.Context(), giving, p.server("web"))
			test.play(newStranger(t, taking))
			p.wantServesOn(t, testnet.Receive(t, "Give", gave), test.want...)
			p.wantAll(t)
			p.handOver(t)
		})
	}
}

// TestAnswersWithoutQuestions: a successor that says that it has taken connections before any have
// been sent is out of step.
func TestAnswersWithoutQuestions(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 0)
	p.source.busy = make(chan struct{})
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	s := newStranger(t, taking)
	s.greet()
	s.say(&message{Kind: ready})
	s.say(&message{Kind: took})
	s.say(&message{Kind: took})
	p.wantServesOn(t, testnet.Receive(t, "Give", gave), "more answers came than there were questions")
}

// wantServesOn fails the test unless Give's error has some words, and the listeners accept.
func (p *predecessor) wantServesOn(t *testing.T, err error, want ...string) {
	t.Helper()
	want = append(want, "this process serves on")
	wantError(t, err, want...)
	if got, want := p.fake.state(), "begun=false paused=false unlink=true adopted=0"; got != want {
		t.Errorf("the predecessor's listener: got %s, want %s", got, want)
	}
}

// wantError fails the test unless err is one line and has some words.
func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Fatalf("got %v, want an error with %q", err, w)
		}
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("got %q, want one line", err)
	}
}

// wantAll fails the test unless the predecessor has all its connections, and they work.
func (p *predecessor) wantAll(t *testing.T) {
	t.Helper()
	if got, want := p.source.left(), len(p.clients); got != want {
		t.Fatalf("got %d connections, want %d", got, want)
	}
	for i, c := range p.source.conns {
		exchange(t, p.clients[i], c.Conn)
	}
}

// handOver hands over everything, in steps that may take their time again: see shortSteps.
func (p *predecessor) handOver(t *testing.T) {
	t.Helper()
	defer stepNanoseconds.Store(stepNanoseconds.Swap(int64(testnet.HangTimeout)))
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	a, ln := mustTake(t, taking)
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Give", gave); err != nil {
		t.Fatal(err)
	}
	if got, want := len(fakeOf(ln).adopted), len(p.clients); got != want {
		t.Errorf("got %d connections, want %d", got, want)
	}
}

// invite is the predecessor's part up to the offer, of one listener.
func (s *stranger) invite(ln net.Listener) *message {
	s.t.Helper()
	s.hear(hello)
	return &message{Kind: offer, Listeners: []offeredListener{{"web", ln.Addr().Network(), ln.Addr().String(), 1, true, nil}}}
}

// offers is the predecessor's part up to the sockets.
func (s *stranger) offers(ln net.Listener) {
	s.t.Helper()
	s.say(s.invite(ln))
	s.say(&message{Kind: sockets}, s.copyOf(ln))
}

// copyOf returns a descriptor of x until the test ends.
func (s *stranger) copyOf(x any) (fd int) {
	s.t.Helper()
	err := control(x, func(own int) { fd, _ = sys.Dup(own) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { sys.Close(fd) })
	return fd
}

// badPredecessors make Take fail.
var badPredecessors = []struct {
	name string
	play func(s *stranger, ln net.Listener)
	want []string // in Take's error
}{
	{"dies at once", func(s *stranger, _ net.Listener) { s.close() }, []string{ErrGone.Error()}},
	{"hangs at once", func(*stranger, net.Listener) {}, []string{"waiting for the predecessor's offer: ", "does not answer"}},
	{"HTTP", func(s *stranger, _ net.Listener) { s.raw([]byte(httpText)) }, []string{notOurs}},
	{"newer", func(s *stranger, _ net.Listener) { s.raw([]byte(`{"protocol":"percore-handover","version":2}`)) },
		[]string{"speaks version 2", "version 1"}},
	{"refuses", func(s *stranger, _ net.Listener) { s.hear(hello); s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
	{"an offer of another session", func(s *stranger, ln net.Listener) {
		m := s.invite(ln)
		m.Session, m.Number = newNonce()+newNonce(), 1
		s.forge(m)
	}, []string{"of another handover"}},
	{"an offer of nothing", func(s *stranger, ln net.Listener) { s.hear(hello); s.say(&message{Kind: offer}) }, []string{"an offer of 0 listeners"}},
	{"an offer of two of one name", func(s *stranger, ln net.Listener) {
		m := s.invite(ln)
		m.Listeners = append(m.Listeners, m.Listeners[0])
		s.say(m)
	}, []string{`two listeners named "web"`}},
	{"an offer without sockets", func(s *stranger, ln net.Listener) {
		m := s.invite(ln)
		m.Listeners[0].Sockets = 0
		s.say(m)
	}, []string{"with 0 sockets"}},
	{"an offer of negative connections", func(s *stranger, ln net.Listener) {
		m := s.invite(ln)
		m.Open = -1
		s.say(m)
	}, []string{"an offer of -1 connections"}},
	{"more connections than descriptors", func(s *stranger, ln net.Listener) {
		m := s.invite(ln)
		m.Open = math.MaxInt
		s.say(m)
	}, []string{"raise the limit of descriptors (ulimit -n"}},
	{"sockets before the offer", func(s *stranger, ln net.Listener) { s.hear(hello); s.say(&message{Kind: sockets}, s.copyOf(ln)) },
		[]string{`"sockets" came where ["offer"]`}},
	{"dies before the sockets", func(s *stranger, ln net.Listener) { s.say(s.invite(ln)); s.close() },
		[]string{"receiving the listeners: ", ErrGone.Error()}},
	{"hangs before the sockets", func(s *stranger, ln net.Listener) { m := s.invite(ln); shortSteps(s.t); s.say(m) },
		[]string{"receiving the listeners: ", "does not answer"}},
	{"too many sockets", func(s *stranger, ln net.Listener) {
		s.say(s.invite(ln))
		s.say(&message{Kind: sockets}, s.copyOf(ln), s.copyOf(ln))
	}, []string{"1 sockets more than"}},
	{"no sockets", func(s *stranger, ln net.Listener) { s.say(s.invite(ln)); s.say(&message{Kind: sockets}) }, []string{`"sockets" came`}},
	{"sockets that the kernel has lost", func(s *stranger, ln net.Listener) {
		s.say(s.invite(ln))
		s.forge(&message{Kind: sockets, Session: s.session, Number: s.sent + 1, Descriptors: 2}, s.copyOf(ln))
	}, []string{`"sockets" came with 1 descriptors instead of 2`}},
	{"a file as a socket", func(s *stranger, ln net.Listener) {
		s.say(s.invite(ln))
		s.say(&message{Kind: sockets}, s.copyOf(testnet.TempFile(s.t, nil)))
	}, []string{`listener "web" at tcp 127.0.0.1:`, "is no socket"}},
	{"a connection as a listening socket", func(s *stranger, ln net.Listener) {
		s.say(s.invite(ln))
		s.say(&message{Kind: sockets}, s.copyOf(testnet.Dial(s.t, ln)))
	}, []string{"is no listening socket"}},
	{"conns at first", func(s *stranger, ln net.Listener) { s.hear(hello); s.say(&message{Kind: conns}) }, []string{`"conns" came`}},
}

// TestBadPredecessor: Take fails, says why, and keeps nothing.
func TestBadPredecessor(t *testing.T) {
	for _, test := range badPredecessors {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			giving, taking := pair(t)
			if test.name == "hangs at once" {
				shortSteps(t)
			}
			took := make(chan error, 1)
			go func() {
				_, err := Take(t.Context(), taking)
				took <- err
			}()
			test.play(newStranger(t, giving), ln)
			wantError(t, testnet.Receive(t, "Take", took), append(test.want, "handover: ")...)
		})
	}
}

// badGifts make Ready fail. fd is a connection's.
var badGifts = []struct {
	name string
	play func(s *stranger, ln net.Listener, fd int)
	want []string
}{
	{"dies", func(s *stranger, _ net.Listener, _ int) { s.close() }, []string{ErrGone.Error()}},
	{"HTTP", func(s *stranger, _ net.Listener, _ int) { s.raw([]byte(httpText)) }, []string{notOurs}},
	{"gives up", func(s *stranger, _ net.Listener, _ int) { s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
	{"commits nothing", func(s *stranger, _ net.Listener, _ int) { s.say(&message{Kind: commit}) }, []string{`"commit" came where ["conns" "done"]`}},
	{"repeats", func(s *stranger, _ net.Listener, fd int) {
		s.forge(&message{Kind: conns, Conns: make([]movedConn, 1), Descriptors: 1, Session: s.session, Number: s.sent}, fd)
	}, []string{"it is repeated"}},
	{"another handover's", func(s *stranger, _ net.Listener, fd int) {
		s.forge(&message{Kind: conns, Conns: make([]movedConn, 1), Descriptors: 1, Session: newNonce() + newNonce(), Number: s.sent + 1}, fd)
	}, []string{"of another handover"}},
	{"dies with connections under way", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, fd)
		s.hear(took)
		s.close()
	}, []string{ErrGone.Error()}},
	{"hangs with connections under way", func(s *stranger, _ net.Listener, fd int) {
		shortSteps(s.t)
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, fd)
	}, []string{"does not answer"}},
	{"conns twice", func(s *stranger, _ net.Listener, fd int) {
		for range 2 {
			s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, fd)
		}
	}, []string{`"conns" came where ["commit"]`}},
	{"done with connections under way", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, fd)
		s.say(&message{Kind: done})
	}, []string{`"done" came where ["commit"]`}},
	{"the end instead of another part", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1), More: true}, fd)
		s.say(&message{Kind: done})
	}, []string{`"done" came where ["conns"]`}},
	{"commit instead of another part", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1), More: true}, fd)
		s.say(&message{Kind: commit})
	}, []string{`"commit" came where ["conns"]`}},
	{"parts without end", func(s *stranger, _ net.Listener, fd int) {
		for range 2 {
			fds := make([]int, descriptorsMax/2+1)
			for i := range fds {
				fds[i] = fd
			}
			s.say(&message{Kind: conns, Conns: make([]movedConn, len(fds)), More: true}, fds...)
		}
	}, []string{"254 connections at once, more than 253"}},
	{"too few descriptors", func(s *stranger, _ net.Listener, fd int) {
		s.forge(&message{Kind: conns, Conns: make([]movedConn, 2), Descriptors: 2, Session: s.session, Number: s.sent + 1}, fd)
	}, []string{"with 1 descriptors instead of 2"}},
	{"too many descriptors", func(s *stranger, _ net.Listener, fd int) {
		s.forge(&message{Kind: conns, Conns: make([]movedConn, 1), Descriptors: 1, Session: s.session, Number: s.sent + 1}, fd, fd)
	}, []string{"with 2 descriptors instead of 1"}},
	{"of a listener that is not there", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: []movedConn{{Listener: 1}}}, fd)
	}, []string{"connection 1 of 1 is of listener 1 of 1"}},
	{"of listener -1", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: []movedConn{{}, {Listener: -1}}}, fd, fd)
	}, []string{"connection 2 of 2 is of listener -1 of 1"}},
	{"a file", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 2)}, fd, s.copyOf(testnet.TempFile(s.t, nil)))
	}, []string{`connection 2 of 2, of listener "web" at tcp 127.0.0.1:`, "a descriptor is no socket"}},
	{"a listening socket", func(s *stranger, ln net.Listener, _ int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, s.copyOf(ln))
	}, []string{"a socket listens, and should be connected"}},
	{"a datagram socket", func(s *stranger, _ net.Listener, _ int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, s.socket(unix.AF_INET, unix.SOCK_DGRAM))
	}, []string{"a socket is no stream socket"}},
	{"of another family", func(s *stranger, _ net.Listener, _ int) {
		s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, s.socket(unix.AF_UNIX, unix.SOCK_STREAM))
	}, []string{"a socket is of family 1, and its listener of 2"}},
}

// socket returns a new socket's descriptor until the test ends.
func (s *stranger) socket(family, typ int) int {
	s.t.Helper()
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestBadGift: Ready fails, says why, and keeps nothing but the listener; the connection is as it was
// for a predecessor that still has it.
func TestBadGift(t *testing.T) {
	for _, test := range badGifts {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			server, client := testnet.Connect(t, ln)
			giving, taking := pair(t)
			s, theirs, ready := arrived(t, giving, taking, ln)
			test.play(s, ln, s.copyOf(server))
			err := testnet.Receive(t, "Ready", ready)
			wantError(t, err, append(test.want, "handover: taking over connections: ")...)
			gone := errors.Is(err, ErrGone)
			if got, want := fakeOf(theirs).state(), fmt.Sprintf("begun=false paused=false unlink=%t adopted=0", gone); got != want {
				t.Errorf("the successor's listener: got %s, want %s", got, want)
			}
			exchange(t, client, server)
		})
	}
}

// arrived returns a successor that waits in Ready, and its listener, with a stranger as predecessor.
func arrived(t *testing.T, giving, taking *net.UnixConn, ln net.Listener) (s *stranger, theirs net.Listener, readied <-chan error) {
	t.Helper()
	s = newStranger(t, giving)
	a, theirs := s.offered(taking, ln)
	fakeOf(theirs).SetUnlinkOnClose(false)
	errs := make(chan error, 1)
	go func() { errs <- a.Ready(t.Context()) }()
	s.hear(ready)
	return s, theirs, errs
}

// offered returns a successor that the stranger has offered ln to, and its listener.
func (s *stranger) offered(taking *net.UnixConn, ln net.Listener) (a *Successor, theirs net.Listener) {
	s.t.Helper()
	taken := make(chan *Successor, 1)
	errs := make(chan error, 1)
	go func() {
		a, err := Take(s.t.Context(), taking)
		taken <- a
		errs <- err
	}()
	s.offers(ln)
	a = testnet.Receive(s.t, "Take", taken)
	if err := <-errs; err != nil {
		s.t.Fatal(err)
	}
	theirs, err := a.Listener("web", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return a, theirs
}

// TestPredecessorDiesAfterCommit: committed connections, and the listener, are the successor's,
// also if the predecessor has ended before the successor looks.
func TestPredecessorDiesAfterCommit(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	server, client := testnet.Connect(t, ln)
	giving, taking := pair(t)
	s, theirs, ready := arrived(t, giving, taking, ln)
	fd := s.copyOf(server)
	s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, fd)
	s.hear(took)
	s.say(&message{Kind: commit})
	s.close()
	if err := testnet.Receive(t, "Ready", ready); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	f := fakeOf(theirs)
	if got, want := f.state(), "begun=false paused=false unlink=true adopted=1"; got != want {
		t.Fatalf("the successor's listener: got %s, want %s", got, want)
	}
	talk(t, client, &f.adopted[0])
}

// TestResetOnTheWay: a connection that its client resets while it moves is no error.
func TestResetOnTheWay(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 3)
	reset(t, p.clients[1], p.source.conns[1].Conn)
	p.handOverSome(t, 2)
}

// reset has the client reset a connection.
func reset(t *testing.T, client, server net.Conn) {
	t.Helper()
	client.(*net.TCPConn).SetLinger(0)
	client.Close()
	testnet.Eventually(t, "the reset arrives", func() (ended bool) {
		if err := control(server, func(fd int) {
			_, err := unix.Getpeername(fd)
			ended = err == unix.ENOTCONN
		}); err != nil {
			t.Fatal(err)
		}
		return ended
	})
}

// handOverSome hands over everything, of which so many connections live.
func (p *predecessor) handOverSome(t *testing.T, live int) {
	t.Helper()
	all := p.clients
	p.clients = all[:live]
	p.handOver(t)
	p.clients = all
}

// TestClosedOnTheWay: a connection that the predecessor has closed is passed over.
func TestClosedOnTheWay(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 3)
	for _, c := range p.source.conns[1:] {
		c.Conn.Close()
	}
	p.handOverSome(t, 1)
}

// TestSecondSuccessor: it is refused at once; the first is not disturbed.
func TestSecondSuccessor(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 2)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}

	giving2, taking2 := pair(t)
	gave2 := goGive(t.Context(), giving2, p.server("web"))
	const busy = `a handover of listener "web" is under way`
	_, err = Take(t.Context(), taking2)
	wantError(t, err, "gave up: "+busy)
	wantError(t, testnet.Receive(t, "the second Give", gave2), busy)

	ln, err := a.Listener("web", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Give", gave); err != nil {
		t.Fatal(err)
	}
	if got, want := len(fakeOf(ln).adopted), 2; got != want {
		t.Errorf("got %d connections, want %d", got, want)
	}
}

// TestOtherUser: neither process deals with one of another user.
func TestOtherUser(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	giving, taking := pair(t)
	old := peerOf
	peerOf = func(int) (peer, error) { return peer{uid: os.Geteuid() + 1}, nil }
	defer func() { peerOf = old }()
	want := fmt.Sprintf("runs as user %d, and this one as user %d", os.Geteuid()+1, os.Geteuid())
	p.wantServesOn(t, Give(t.Context(), giving, p.server("")), want)
	_, err := Take(t.Context(), taking)
	wantError(t, err, want)
	p.wantAll(t)
}

// TestOtherNetworks: a socket that doesn't keep the boundaries of messages is refused.
func TestOtherNetworks(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	server, client := testnet.Pair(t, net.Listen, testnet.Unix)
	p.wantServesOn(t, Give(t.Context(), server.(*net.UnixConn), p.server("")), `not of the network "unixpacket"`)
	_, err := Take(t.Context(), client.(*net.UnixConn))
	wantError(t, err, `not of the network "unixpacket"`)
}

// TestLackOfDescriptors: the kernel passes on only a part of the descriptors; none of these is left.
func TestLackOfDescriptors(t *testing.T) {
	testnet.NoLeaks(t)
	giving, taking := pair(t)
	s, w := newStranger(t, giving), newStranger(t, taking).wire
	s.session, w.session = newNonce()+newNonce(), ""
	w.session = s.session
	fds := make([]int, 20)
	s.say(&message{Kind: conns, Conns: make([]movedConn, len(fds))}, fds...)

	highest := s.socket(unix.AF_INET, unix.SOCK_STREAM) // no number below it is free
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = uint64(highest + 10)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, received, err := w.receive(t.Context(), time.Minute)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	received.close()
	wantError(t, err, "passed on only ", "raise the limit of descriptors (ulimit -n")
}

// TestForgottenListener: Ready names the listener that the successor has not made; the predecessor
// serves on.
func TestForgottenListener(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p, q := newPredecessor(t, testnet.TCP4, 1), newPredecessor(t, testnet.TCP4, 1)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"), q.server("admin"))
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Listener("web", nil); err != nil {
		t.Fatal(err)
	}
	_, err = a.Listener("web", nil)
	wantError(t, err, `listener "web" has been taken already`)
	_, err = a.Listener("ftp", nil)
	wantError(t, err, `the predecessor has no listener "ftp"`)
	want := fmt.Sprintf("listener %q at tcp %s was neither taken nor dropped", "admin", q.ln.Addr())
	wantError(t, a.Ready(t.Context()), want)
	err = testnet.Receive(t, "Give", gave)
	p.wantServesOn(t, err, "gave up: "+want)
	q.wantServesOn(t, err)
	p.wantAll(t)
}

// TestSuccessorGivesUp: Close, and the end of its context, tell the predecessor.
func TestSuccessorGivesUp(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(a *Successor)
		want string
	}{
		{"Close", func(a *Successor) { a.Close(); a.Close() }, "gave up: the successor has called Close"},
		{"Ready", func(a *Successor) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errTest)
			_, _ = a.Listener("web", nil)
			_ = a.Ready(ctx)
		}, "gave up: " + errTest.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			useFakes(t)
			p := newPredecessor(t, testnet.TCP4, 1)
			p.source.conns, p.source.busy = nil, make(chan struct{})
			giving, taking := pair(t)
			gave := goGive(t.Context(), giving, p.server("web"))
			a, err := Take(t.Context(), taking)
			if err != nil {
				t.Fatal(err)
			}
			test.end(a)
			p.wantServesOn(t, testnet.Receive(t, "Give", gave), test.want)
			wantError(t, a.Ready(t.Context()), "Ready was called already, or Close")
		})
	}
}

// TestEndBeforeReady: the end of Give's context before the successor is ready ends both.
func TestEndBeforeReady(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	ctx, cancel := context.WithCancel(t.Context())
	giving, taking := pair(t)
	gave := goGive(ctx, giving, p.server("web"))
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Listener("web", nil); err != nil {
		t.Fatal(err)
	}
	cancel()
	p.wantServesOn(t, testnet.Receive(t, "Give", gave), "waiting for the successor to be ready: "+context.Canceled.Error())
	wantError(t, a.Ready(t.Context()), "gave up: "+context.Canceled.Error())
	p.wantAll(t)
}

// TestEndOfTake: so does the end of Take's.
func TestEndOfTake(t *testing.T) {
	testnet.NoLeaks(t)
	_, taking := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Take(ctx, taking)
	wantError(t, err, context.Canceled.Error())
}

// TestBadServers: Give refuses servers that can't be handed over, and tells the successor.
func TestBadServers(t *testing.T) {
	useFakes(t)
	p, q := newPredecessor(t, testnet.TCP4, 0), newPredecessor(t, testnet.TCP4, 0)
	for _, test := range []struct {
		name    string
		servers []Server
		want    string
	}{
		{"none", nil, "0 servers"},
		{"one name", []Server{p.server("a"), q.server("a")}, `two servers are named "a"`},
		{"one listener", []Server{p.server("a"), p.server("b")}, `listener "b" is under way`},
		{"a wrapper", []Server{p.server("a"), {Name: "b", Listener: struct{ net.Listener }{q.ln}}}, "only a *percore.Listener can be handed over"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			giving, taking := pair(t)
			gave := goGive(t.Context(), giving, test.servers...)
			_, err := Take(t.Context(), taking)
			wantError(t, err, test.want)
			err = testnet.Receive(t, "Give", gave)
			p.wantServesOn(t, err, test.want)
			q.wantServesOn(t, err)
		})
	}
	t.Run("of package net", func(t *testing.T) {
		testnet.NoLeaks(t)
		giving, taking := pair(t)
		gave := goGive(t.Context(), giving, Server{Listener: testnet.Listen(t, net.Listen, testnet.TCP4)})
		_, err := Take(t.Context(), taking)
		wantError(t, err, "a *net.TCPListener")
		wantError(t, testnet.Receive(t, "Give", gave), "a *net.TCPListener")
	})
}

// TestSourceFails: an error of a Source's ends the handover, and both processes say it.
func TestSourceFails(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p, q := newPredecessor(t, testnet.TCP4, 0), newPredecessor(t, testnet.TCP4, 0)
	p.source.busy = make(chan struct{})
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"), Server{Name: "admin", Listener: q.ln, Source: failingSource{}})
	a, err := Take(t.Context(), taking)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range a.Names() {
		if _, err := a.Listener(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	const want = `server "admin": just testing`
	wantError(t, a.Ready(t.Context()), want)
	err = testnet.Receive(t, "Give", gave)
	p.wantServesOn(t, err, want)
	q.wantServesOn(t, err)
}

type failingSource struct{}

func (failingSource) HandOver(context.Context, net.Listener, func([]percore.WaitingConn) error) error {
	return errTest
}

// TestAdoptFails: connections that the successor's listener refuses are lost; the others stay.
func TestAdoptFails(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 5)
	p.source.batch = 2
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	a, ln := mustTake(t, taking)
	fakeOf(ln).adoptFail = errTest
	const want = "2 of 2 connections are lost: just testing"
	wantError(t, a.Ready(t.Context()), want)
	p.wantServesOn(t, testnet.Receive(t, "Give", gave), want)
	if got, want := p.source.left(), 3; got != want {
		t.Errorf("got %d connections, want %d", got, want)
	}
}

// TestClosedSuccessor: a successor that has closed its listener refuses connections, and all stay.
func TestClosedSuccessor(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 5)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, p.server("web"))
	a, ln := mustTake(t, taking)
	fakeOf(ln).closed = true
	const want = "which this process has closed"
	wantError(t, a.Ready(t.Context()), want)
	p.wantServesOn(t, testnet.Receive(t, "Give", gave), want)
	p.wantAll(t)
}

// TestLossBeforeOver: a successor that loses connections before it has said that it has taken over
// leaves the service to the predecessor, also if that has said that it is done, and says so.
func TestLossBeforeOver(t *testing.T) {
	testnet.NoLeaks(t)
	useFakes(t)
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	server, _ := testnet.Connect(t, ln)
	giving, taking := pair(t)
	s := newStranger(t, giving)
	a, theirs := s.offered(taking, ln)
	f := fakeOf(theirs)
	f.unlink, f.adoptFail = false, errTest
	s.say(&message{Kind: conns, Conns: make([]movedConn, 1)}, s.copyOf(server))
	m, fds, err := a.wire.receive(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.handle(m, fds); err != nil {
		t.Fatal(err)
	}
	s.hear(took)
	s.say(&message{Kind: commit})
	s.say(&message{Kind: done})
	if err := a.end(errTest); err != errTest {
		t.Errorf("got %v, want %v", err, errTest)
	}
	_, _, err = s.receive(t.Context(), testnet.HangTimeout)
	wantError(t, err, "gave up: "+errTest.Error())
	if got, want := f.state(), "begun=false paused=false unlink=false adopted=0"; got != want {
		t.Errorf("the successor's listener: got %s, want %s", got, want)
	}
}
