//go:build !percore_net

package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

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
	w := newWire(c)
	t.Cleanup(w.close)
	return &stranger{w, t}
}

// say sends a message.
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

// hear returns the next message, and closes its descriptors.
func (s *stranger) hear(want kind) *message {
	s.t.Helper()
	m, err := s.await(context.Background(), testnet.HangTimeout, want)
	if err != nil {
		s.t.Fatalf("got %+v, %v, want %q", m, err, want)
	}
	return m
}

// greet is the successor's part up to the offer.
func (s *stranger) greet() {
	s.t.Helper()
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

// A stage is how far a successor has come when it goes wrong.
type stage func(s *stranger, p *predecessor)

var (
	begun   stage = func(*stranger, *predecessor) {}
	greeted stage = func(s *stranger, _ *predecessor) { s.greet() }
	given   stage = func(s *stranger, _ *predecessor) { s.ready() } // connections, which are under way

	// waiting is when the predecessor waits for its servers, and asks nothing.
	waiting stage = func(s *stranger, p *predecessor) {
		p.source.mu.Lock()
		p.source.busy = make(chan struct{})
		p.source.mu.Unlock()
		s.takes()
		testnet.Eventually(s.t, "the predecessor knows that its connections have moved", func() bool { return p.source.left() == 0 })
	}
	finished stage = func(s *stranger, _ *predecessor) { s.takes(); s.hear(done) }
)

// takes is the successor's part up to the last connection.
func (s *stranger) takes() {
	s.t.Helper()
	s.ready()
	s.say(&message{Kind: took})
	s.hear(commit)
}

// strangeSuccessors end a handover. If the predecessor is to leave they want no error of give.
var strangeSuccessors = []struct {
	name  string
	stage stage
	play  func(s *stranger)
	want  []string // in give's error
}{
	{"dies at once", begun, func(s *stranger) { s.close() }, []string{"waiting for the successor: ", errGone.Error()}},
	{"hangs at once", begun, func(s *stranger) {}, []string{"waiting for the successor: ", "has sent nothing for"}},
	{"HTTP", begun, func(s *stranger) { s.raw([]byte(httpText)) }, []string{notOurs, `"GET / HTTP/1.1`}},
	{"too long", begun, func(s *stranger) { s.raw(make([]byte, packetBytes+1)) }, []string{"longer than"}},
	{"ready at first", begun, func(s *stranger) { s.say(&message{Kind: ready}) }, []string{`"ready" came where ["hello"]`}},
	{"hello with a descriptor", begun, func(s *stranger) { s.say(&message{Kind: hello}, 0) }, []string{"1 descriptors, where none belong"}},
	{"descriptors alone", begun, func(s *stranger) { s.rights(0, 1) }, []string{"empty, with 2 descriptors"}},
	{"nothing", begun, func(s *stranger) { s.raw(nil) }, []string{"waiting for the successor: "}},
	{"gives up at once", begun, func(s *stranger) { s.refuse(errors.New("no\nreason")) }, []string{"the other process gave up: no reason"}},

	{"dies before ready", greeted, func(s *stranger) { s.close() }, []string{"to be ready: ", errGone.Error()}},
	{"hello twice", greeted, func(s *stranger) { s.say(&message{Kind: hello}) }, []string{`"hello" came where ["ready"]`}},
	{"took instead of ready", greeted, func(s *stranger) { s.say(&message{Kind: took}) }, []string{`"took" came where ["ready"]`}},
	{"gives up before ready", greeted, func(s *stranger) { s.refuse(errTest) }, []string{"to be ready: ", "gave up: " + errTest.Error()}},
	{"drops listener -1", greeted, func(s *stranger) { s.say(&message{Kind: ready, Dropped: []int{-1}}) }, []string{"the successor drops listener "}},
	{"drops listener 1 of 1", greeted, func(s *stranger) { s.say(&message{Kind: ready, Dropped: []int{0, 1}}) }, []string{"the successor drops listener "}},
	{"hangs before took", greeted, func(s *stranger) { shortSteps(s.t); s.say(&message{Kind: ready}); s.hear(conns) },
		[]string{"handing over connections: ", "has sent nothing for"}},

	{"dies before took", given, func(s *stranger) { s.close() }, []string{"handing over connections: ", errGone.Error()}},
	{"ready instead of took", given, func(s *stranger) { s.say(&message{Kind: ready}) }, []string{`"ready" came where ["took" "over"]`}},
	{"HTTP instead of took", given, func(s *stranger) { s.raw([]byte(httpText)) }, []string{notOurs}},
	{"gives up before took", given, func(s *stranger) { s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
	{"over instead of took", given, func(s *stranger) { s.say(&message{Kind: over}); s.close() }, nil},

	{"dies meanwhile", waiting, func(s *stranger) { s.close() }, []string{"handing over connections: ", errGone.Error()}},
	{"gives up meanwhile", waiting, func(s *stranger) { s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
	{"took unasked", waiting, func(s *stranger) { s.say(&message{Kind: took}) }, []string{`"took" came where ["over"] is due`}},
	{"over unasked", waiting, func(s *stranger) { s.say(&message{Kind: over}) }, nil},
	{"over unasked, and dies", waiting, func(s *stranger) { s.say(&message{Kind: over}); s.close() }, nil},

	{"over", finished, func(s *stranger) { s.say(&message{Kind: over}) }, nil},
	{"over, and dies", finished, func(s *stranger) { s.say(&message{Kind: over}); s.close() }, nil},
	{"dies before over", finished, func(s *stranger) { s.close() }, []string{"ending: " + errGone.Error()}},
	{"took instead of over", finished, func(s *stranger) { s.say(&message{Kind: took}) }, []string{`"took" came where ["over"] is due`}},
	{"gives up before over", finished, func(s *stranger) { s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
	{"hangs before over", finished, func(s *stranger) {}, []string{"ending: the other process has gone: it has sent nothing for"}},
}

var errTest = errors.New("just testing")

// TestStrangeSuccessor: the end of a handover is the successor's word that it has taken over. With it
// the predecessor leaves, whenever that comes. Without it the predecessor serves on, says why, has all
// connections that it has not committed, and can be handed over afterwards.
func TestStrangeSuccessor(t *testing.T) {
	for _, test := range strangeSuccessors {
		t.Run(test.name, func(t *testing.T) {
			useFakes(t)
			log := logTo(t)
			p := newPredecessor(t, testnet.TCP4, 2)
			giving, taking := pair(t)
			if test.name == "hangs at once" || test.name == "hangs before over" {
				shortSteps(t)
			}
			s := newStranger(t, taking)
			gave := goGive(t.Context(), giving, p.server("web"))
			test.stage(s, p)
			test.play(s)
			err := testnet.Receive(t, "give", gave)
			if p.source.left() > 0 {
				p.wantAll(t)
			} else {
				p.clients, p.source.busy = nil, nil // committed
			}
			if test.want != nil {
				p.wantServesOn(t, err, test.want...)
				p.handOver(t)
				return
			}
			if got, want := p.fake.state(), "paused=true unlink=false adopted=0"; err != nil || got != want {
				t.Errorf("the predecessor's listener: got %s, %v, want %s", got, err, want)
			}
			if said, want := log.Has("has gone on without this process"), !strings.HasPrefix(test.name, "over, ") && test.name != "over"; said != want {
				t.Errorf("got a line about a successor that has gone on: %t, want %t", said, want)
			}
		})
	}
}

// wantServesOn fails the test unless give's error has some words, and the listeners accept.
func (p *predecessor) wantServesOn(t *testing.T, err error, want ...string) {
	t.Helper()
	want = append(want, "this process serves on")
	wantError(t, err, want...)
	if got, want := p.fake.state(), "paused=false unlink=true adopted=0"; got != want {
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
	a, gave := meet(t, p.server("web"))
	ln := mustOpen(t, a, "web")
	if err := errors.Join(a.ready(t.Context(), nil), testnet.Receive(t, "give", gave)); err != nil {
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

// badPredecessors make take fail.
var badPredecessors = []struct {
	name string
	play func(s *stranger, ln net.Listener)
	want []string // in take's error
}{
	{"dies at once", func(s *stranger, _ net.Listener) { s.close() }, []string{errGone.Error()}},
	{"hangs at once", func(*stranger, net.Listener) {}, []string{"waiting for the predecessor's offer: ", "has sent nothing for"}},
	{"HTTP", func(s *stranger, _ net.Listener) { s.raw([]byte(httpText)) }, []string{notOurs}},
	{"refuses", func(s *stranger, _ net.Listener) { s.hear(hello); s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
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
		[]string{"receiving the listeners: ", errGone.Error()}},
	{"hangs before the sockets", func(s *stranger, ln net.Listener) { m := s.invite(ln); shortSteps(s.t); s.say(m) },
		[]string{"receiving the listeners: ", "has sent nothing for"}},
	{"too many sockets", func(s *stranger, ln net.Listener) {
		s.say(s.invite(ln))
		s.say(&message{Kind: sockets}, s.copyOf(ln), s.copyOf(ln))
	}, []string{"1 sockets more than"}},
	{"no sockets", func(s *stranger, ln net.Listener) { s.say(s.invite(ln)); s.say(&message{Kind: sockets}) }, []string{`"sockets" came`}},
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

// TestBadPredecessor: take fails, says why, and keeps nothing.
func TestBadPredecessor(t *testing.T) {
	for _, test := range badPredecessors {
		t.Run(test.name, func(t *testing.T) {
			useFakes(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			giving, taking := pair(t)
			if test.name == "hangs at once" {
				shortSteps(t)
			}
			took := goTake(t, taking)
			test.play(newStranger(t, giving), ln)
			wantError(t, testnet.Receive(t, "take", took), append(test.want, "handover: ")...)
		})
	}
}

// gives sends connections.
func (s *stranger) gives(n int, fds ...int) {
	s.t.Helper()
	s.say(&message{Kind: conns, Conns: make([]movedConn, n)}, fds...)
}

// commits sends a connection, and commits it.
func (s *stranger) commits(fd int) {
	s.t.Helper()
	s.gives(1, fd)
	s.hear(took)
	s.say(&message{Kind: commit})
}

// part is the beginning of a message.
var part = bytes.Repeat([]byte(" "), packetBytes)

// badGifts make ready fail. fd is a connection's. Those that hang do so for longer than a step.
var badGifts = []struct {
	name string
	play func(s *stranger, ln net.Listener, fd int)
	want []string
}{
	{"dies", func(s *stranger, _ net.Listener, _ int) { s.close() }, []string{errGone.Error()}},
	{"HTTP", func(s *stranger, _ net.Listener, _ int) { s.raw([]byte(httpText)) }, []string{notOurs}},
	{"gives up", func(s *stranger, _ net.Listener, _ int) { s.refuse(errTest) }, []string{"gave up: " + errTest.Error()}},
	{"commits nothing", func(s *stranger, _ net.Listener, _ int) { s.say(&message{Kind: commit}) }, []string{`"commit" came where ["conns" "done"]`}},
	{"dies with connections under way", func(s *stranger, _ net.Listener, fd int) { s.gives(1, fd); s.hear(took); s.close() },
		[]string{errGone.Error()}},
	{"dies when they are committed", func(s *stranger, _ net.Listener, fd int) { s.commits(fd); s.close() }, []string{errGone.Error()}},
	{"hangs before conns", func(*stranger, net.Listener, int) {}, []string{"has sent nothing for"}},
	{"hangs within a message", func(s *stranger, _ net.Listener, fd int) { s.raw(part, fd) }, []string{"within a message"}},
	{"hangs before commit", func(s *stranger, _ net.Listener, fd int) { s.gives(1, fd); s.hear(took) }, []string{"has sent nothing for"}},
	{"hangs when they are committed", func(s *stranger, _ net.Listener, fd int) { s.commits(fd) }, []string{"has sent nothing for"}},
	{"is stopped between giving up and saying so, and hangs", func(s *stranger, _ net.Listener, _ int) { s.stopReceiving() },
		[]string{errGivenUp.Error()}},
	{"conns twice", func(s *stranger, _ net.Listener, fd int) { s.gives(1, fd); s.gives(1, fd) },
		[]string{`"conns" came where ["commit"]`}},
	{"done with connections under way", func(s *stranger, _ net.Listener, fd int) { s.gives(1, fd); s.say(&message{Kind: done}) },
		[]string{`"done" came where ["commit"]`}},
	{"dies within a message", func(s *stranger, _ net.Listener, fd int) { s.raw(part, fd); s.close() }, []string{errGone.Error()}},
	{"a message without end", func(s *stranger, _ net.Listener, fd int) {
		for err := error(nil); err == nil; { // until the successor stops reading
			err = writeMsg(s.conn, part, nil)
		}
	}, []string{"a message is longer than"}},
	{"too few descriptors", func(s *stranger, _ net.Listener, fd int) { s.gives(2, fd) }, []string{"2 connections and 1 descriptors"}},
	{"too many descriptors", func(s *stranger, _ net.Listener, fd int) { s.gives(1, fd, fd) }, []string{"1 connections and 2 descriptors"}},
	{"of a listener that is not there", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: []movedConn{{Listener: 1}}}, fd)
	}, []string{"connection 1 of 1 is of listener 1 of 1"}},
	{"of listener -1", func(s *stranger, _ net.Listener, fd int) {
		s.say(&message{Kind: conns, Conns: []movedConn{{}, {Listener: -1}}}, fd, fd)
	}, []string{"connection 2 of 2 is of listener -1 of 1"}},
	{"a file", func(s *stranger, _ net.Listener, fd int) { s.gives(2, fd, s.copyOf(testnet.TempFile(s.t, nil))) },
		[]string{`connection 2 of 2, of listener "web" at tcp 127.0.0.1:`, "a descriptor is no socket"}},
	{"a listening socket", func(s *stranger, ln net.Listener, _ int) { s.gives(1, s.copyOf(ln)) },
		[]string{"a socket listens, and should be connected"}},
	{"a datagram socket", func(s *stranger, _ net.Listener, _ int) { s.gives(1, s.socket(unix.AF_INET, unix.SOCK_DGRAM)) },
		[]string{"a socket is no stream socket"}},
	{"of another family", func(s *stranger, _ net.Listener, _ int) { s.gives(1, s.socket(unix.AF_UNIX, unix.SOCK_STREAM)) },
		[]string{"a socket is of family 1, and its listener of 2"}},
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

// TestBadGift: ready fails, says why, and keeps nothing but the listener; the connection is as it was
// for a predecessor that still has it. If the predecessor dies or hangs the successor goes on, with the
// connections that were committed; a predecessor that wakes up hears of it.
func TestBadGift(t *testing.T) {
	for _, test := range badGifts {
		t.Run(test.name, func(t *testing.T) {
			useFakes(t)
			ln := testnet.Listen(t, net.Listen, testnet.TCP4)
			server, client := testnet.Connect(t, ln)
			giving, taking := pair(t)
			if strings.Contains(test.name, "hangs") {
				shortSteps(t)
			}
			s, theirs, ready := arrived(t, giving, taking, ln)
			test.play(s, ln, s.copyOf(server))
			err := testnet.Receive(t, "ready", ready)
			wantError(t, err, append(test.want, "handover: taking over connections: ")...)
			if strings.HasPrefix(test.name, "hangs") {
				s.hear(over)
			}
			dead := strings.HasPrefix(test.name, "dies") || strings.HasPrefix(test.name, "hangs")
			if gone := errors.Is(err, errGone); gone != dead {
				t.Errorf("got %v, which wraps %v: %t, want %t", err, errGone, gone, dead)
			}
			f := fakeOf(theirs)
			adopted := strings.Count(test.name, "committed")
			if got, want := f.state(), fmt.Sprintf("paused=false unlink=%t adopted=%d", dead, adopted); got != want {
				t.Fatalf("the successor's listener: got %s, want %s", got, want)
			}
			if adopted > 0 {
				talk(t, client, &f.adopted[0])
			} else {
				exchange(t, client, server)
			}
		})
	}
}

// arrived returns a successor that waits in ready, and its listener, with a stranger as predecessor.
func arrived(t *testing.T, giving, taking *net.UnixConn, ln net.Listener) (s *stranger, theirs net.Listener, readied <-chan error) {
	t.Helper()
	s = newStranger(t, giving)
	a, theirs := s.offered(taking, ln)
	fakeOf(theirs).SetUnlinkOnClose(false)
	errs := make(chan error, 1)
	go func() { errs <- a.ready(t.Context(), nil) }()
	s.hear(ready)
	return s, theirs, errs
}

// offered returns a successor that the stranger has offered ln to, and its listener.
func (s *stranger) offered(taking *net.UnixConn, ln net.Listener) (a *successor, theirs net.Listener) {
	s.t.Helper()
	errs := make(chan error, 1)
	go func() {
		var err error
		a, err = take(s.t.Context(), taking)
		errs <- err
	}()
	s.offers(ln)
	if err := testnet.Receive(s.t, "take", errs); err != nil {
		s.t.Fatal(err)
	}
	return a, mustOpen(s.t, a, "web")
}

// TestEndedOnTheWay: a connection that its client resets while it moves is no error, and one that the
// predecessor has closed is passed over.
func TestEndedOnTheWay(t *testing.T) {
	for name, end := range map[string]func(client, server net.Conn){
		"reset":  func(client, server net.Conn) { reset(t, client, server) },
		"closed": func(_, server net.Conn) { server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			useFakes(t)
			p := newPredecessor(t, testnet.TCP4, 3)
			for i, c := range p.source.conns[1:] {
				end(p.clients[1+i], c.Conn)
			}
			p.clients = p.clients[:1]
			p.handOver(t)
		})
	}
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

// TestLackOfDescriptors: the kernel passes on only a part of the descriptors; none of these is left.
func TestLackOfDescriptors(t *testing.T) {
	testnet.NoLeaks(t)
	giving, taking := pair(t)
	s, w := newStranger(t, giving), newStranger(t, taking).wire
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

// TestSuccessorGivesUp: a successor that can't go on, or whose context ends, tells the predecessor.
func TestSuccessorGivesUp(t *testing.T) {
	for name, end := range map[string]func(a *successor){
		"before ready": func(a *successor) { a.giveUp(errTest); a.giveUp(errTest) },
		"ready": func(a *successor) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errTest)
			mustOpen(t, a, "web")
			_ = a.ready(ctx, nil)
			a.giveUp(errTest) // has no effect
		},
	} {
		t.Run(name, func(t *testing.T) {
			useFakes(t)
			p := newPredecessor(t, testnet.TCP4, 1)
			p.source.conns, p.source.busy = nil, make(chan struct{})
			a, gave := meet(t, p.server("web"))
			end(a)
			p.wantServesOn(t, testnet.Receive(t, "give", gave), "gave up: "+errTest.Error())
		})
	}
}

// TestEndBeforeReady: the end of give's context before the successor is ready ends both.
func TestEndBeforeReady(t *testing.T) {
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 1)
	ctx, cancel := context.WithCancel(t.Context())
	giving, taking := pair(t)
	gave := goGive(ctx, giving, p.server("web"))
	a, _ := mustTake(t, taking)
	cancel()
	p.wantServesOn(t, testnet.Receive(t, "give", gave), "waiting for the successor to be ready: "+context.Canceled.Error())
	wantError(t, a.ready(t.Context(), nil), "gave up: "+context.Canceled.Error())
	p.wantAll(t)
}

// TestEndOfTake: so does the end of take's.
func TestEndOfTake(t *testing.T) {
	testnet.NoLeaks(t)
	_, taking := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := take(ctx, taking)
	wantError(t, err, context.Canceled.Error())
}

// TestLongState: a state that is too long for the offer ends the handover, and both processes say it.
func TestLongState(t *testing.T) {
	useFakes(t)
	p := newPredecessor(t, testnet.TCP4, 0)
	s := p.server("web")
	s.state = make([]byte, stateBytesMax+1)
	giving, taking := pair(t)
	gave := goGive(t.Context(), giving, s)
	const want = `the state of listener "web" has 4097 bytes`
	_, err := take(t.Context(), taking)
	wantError(t, err, want)
	p.wantServesOn(t, testnet.Receive(t, "give", gave), want)
}

// TestMoveFails: what goes wrong while connections move ends the handover, and both processes say it.
// Connections that the successor's listener refuses are lost; the others stay.
func TestMoveFails(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(s *server, ln *fakeListener)
		want  string
		lost  int
	}{
		{"the source", func(s *server, _ *fakeListener) { s.source = sourceFunc(func() error { return errTest }) }, `server "web": just testing`, 0},
		{"the successor's listener", func(_ *server, ln *fakeListener) { ln.adoptFail = errTest }, "2 of 2 connections are lost: just testing", 2},
		{"a listener that it has closed", func(_ *server, ln *fakeListener) { ln.closed = true }, "which this process has closed", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			useFakes(t)
			p := newPredecessor(t, testnet.TCP4, 5)
			p.source.batch = 2
			servers := []server{p.server("web")}
			test.spoil(&servers[0], new(fakeListener))
			a, gave := meet(t, servers...)
			ln := mustOpen(t, a, "web")
			test.spoil(new(server), fakeOf(ln))
			wantError(t, a.ready(t.Context(), nil), test.want)
			p.wantServesOn(t, testnet.Receive(t, "give", gave), test.want)
			p.clients = p.clients[test.lost:]
			p.wantAll(t)
		})
	}
}

// TestLossBeforeOver: a successor that loses connections before it has said that it has taken over
// leaves the service to the predecessor, also if that has said that it is done, and says so.
func TestLossBeforeOver(t *testing.T) {
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
	if got, want := f.state(), "paused=false unlink=false adopted=0"; got != want {
		t.Errorf("the successor's listener: got %s, want %s", got, want)
	}
}
