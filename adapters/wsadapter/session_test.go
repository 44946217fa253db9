package wsadapter

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
	"github.com/percore/percore/internal/testnet"
)

// armable reports whether connections of percore.Listen are armed here.
func armable(nc net.Conn) bool { return socketOf(nc) != nil }

// miniature is a WebSocket library that reads ahead, and keeps the first error for good.
type miniature struct {
	br      *bufio.Reader
	c       net.Conn
	err     error
	onFrame func(opcode byte) // if not nil
}

func newMiniature(c net.Conn) *miniature { return &miniature{br: bufio.NewReaderSize(c, 512), c: c} }

// read returns the next message. It answers pings.
func (m *miniature) read() (string, error) {
	var message strings.Builder
	for m.err == nil {
		var head [2]byte
		if _, m.err = io.ReadFull(m.br, head[:]); m.err != nil {
			break
		}
		size := int(head[1] &^ link.Mask)
		if size == 126 {
			var wide [2]byte
			_, m.err = io.ReadFull(m.br, wide[:])
			size = int(binary.BigEndian.Uint16(wide[:]))
		}
		payload := make([]byte, 4+size)
		if m.err == nil {
			_, m.err = io.ReadFull(m.br, payload)
		}
		if m.err != nil {
			break
		}
		if m.onFrame != nil {
			m.onFrame(head[0] & 0xf)
		}
		switch head[0] & 0xf {
		case 0x8:
			m.err = io.EOF
		case 0x9:
			m.c.Write([]byte("pong"))
		case 0xA:
		default:
			message.Write(payload[4:])
			if head[0]&link.Fin != 0 {
				return message.String(), nil
			}
		}
	}
	return "", m.err
}

// program is a Session of functions.
type program struct {
	read   func() (string, error)
	handle func(string) error
	end    func(error) // if nil, ended has the error
	ended  chan error
}

func (p *program) Read() (string, error) { return p.read() }

func (p *program) Handle(m string) error {
	if p.handle == nil {
		return nil
	}
	return p.handle(m)
}

func (p *program) End(err error) {
	if p.end != nil {
		p.end(err)
		return
	}
	p.ended <- err
}

// talk is a conversation that a test is the client of.
type talk struct {
	*testing.T
	client   net.Conn
	tcp      *net.TCPConn // below TLS
	conn     *Conn
	library  *miniature
	messages chan string
	ended    chan error
	armable  bool
	listen   testnet.ListenFunc // it was made with
	before   Stats
}

// onEachWay runs a test over TCP and over TLS, on percore, and on net, where no connection is armed.
func onEachWay(t *testing.T, test func(t *talk)) {
	for _, listen := range []struct {
		name string
		f    testnet.ListenFunc
	}{{"percore", percore.Listen}, {"net", net.Listen}} {
		for _, secret := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tls=%t", listen.name, secret), func(t *testing.T) {
				talk := newTalk(t, listen.f, secret)
				talk.listen = listen.f
				test(talk)
			})
		}
	}
}

func newTalk(t *testing.T, listen testnet.ListenFunc, secret bool) *talk {
	before := statsAtRest(t)
	talk := newTalkBeside(t, listen, secret)
	talk.before = before
	return talk
}

// newTalkBeside is newTalk for another conversation of a test.
func newTalkBeside(t *testing.T, listen testnet.ListenFunc, secret bool) *talk {
	server, client := testnet.Pair(t, listen, testnet.TCP4)
	tcp := client.(*net.TCPConn)
	if secret {
		config, clientConfig := testnet.TLS(t)
		tc := tls.Client(client, clientConfig)
		shaken := make(chan error, 1)
		go func() { shaken <- tc.Handshake() }()
		ts := tls.Server(server, config)
		if err := ts.Handshake(); err != nil {
			t.Fatalf("the handshake: %v", err)
		}
		if err := testnet.Receive(t, "the client's handshake", shaken); err != nil {
			t.Fatalf("the client's handshake: %v", err)
		}
		server, client = ts, tc
	}
	c := New(server)
	return &talk{
		T: t, client: client, tcp: tcp, conn: c, library: newMiniature(c), messages: make(chan string, 1000),
		ended: make(chan error, 1), armable: armable(server),
	}
}

// statsAtRest returns the stats once the conversations of all tests before are counted out. That comes
// after End.
func statsAtRest(t *testing.T) (s Stats) {
	t.Helper()
	testnet.Eventually(t, "the end of other tests' conversations", func() bool {
		s = ReadStats()
		return s.Sessions == 0 && s.Waiting == 0 && s.Kept == 0
	})
	return s
}

// start starts the conversation with the miniature's read.
func (t *talk) start() *talk {
	t.startWith(&program{read: t.library.read})
	return t
}

func (t *talk) startWith(p *program) {
	p.ended = t.ended
	if p.handle == nil {
		p.handle = func(m string) error {
			t.messages <- m
			return nil
		}
	}
	Start(t.conn, p)
}

// send sends bytes of frames, in one write.
func (t *talk) send(frames ...[]byte) {
	t.Helper()
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	if _, err := t.client.Write(all); err != nil {
		t.Fatalf("sending: %v", err)
	}
}

// appendFrame appends a client's frame of less than 64 KiB, with a mask that changes nothing.
func appendFrame(b []byte, first byte, payload []byte) []byte {
	if n := len(payload); n < 126 {
		b = append(b, first, link.Mask|byte(n))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, first, link.Mask|126), uint16(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

func frame(text string) []byte { return appendFrame(nil, link.Fin|0x1, []byte(text)) }
func ping() []byte             { return appendFrame(nil, link.Fin|0x9, nil) }

func (t *talk) want(texts ...string) {
	t.Helper()
	for _, want := range texts {
		if got := testnet.Receive(t, "a message", t.messages); got != want {
			t.Fatalf("got the message %.50q, want %.50q", got, want)
		}
	}
}

// wantPong reads the answer to a ping.
func (t *talk) wantPong() {
	t.Helper()
	t.client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	pong := make([]byte, 4)
	if _, err := io.ReadFull(t.client, pong); err != nil || string(pong) != "pong" {
		t.Fatalf("got the answer %q, %v, want a pong", pong, err)
	}
}

// awaitIdle waits until the conversation waits for a message, without a goroutine if it can.
func (t *talk) awaitIdle() {
	t.Helper()
	t.awaitStats(t.idle())
}

// idle returns the stats with the conversation idle.
func (t *talk) idle() Stats {
	s := t.before
	s.Sessions++
	if t.armable {
		s.Waiting++
	} else {
		s.Kept++
	}
	return s
}

func (t *talk) awaitStats(want Stats) {
	t.Helper()
	testnet.Eventually(t, fmt.Sprintf("the stats %+v", want), func() bool { return ReadStats() == want })
}

// wantEnd wants the conversation to be over.
func (t *talk) wantEnd(want error) {
	t.Helper()
	if got := testnet.Receive(t, "the end", t.ended); !errors.Is(got, want) {
		t.Errorf("got the end %v, want %v", got, want)
	}
	t.awaitStats(t.before)
	if len(t.messages) > 0 {
		t.Errorf("got the message %.50q, want no more", <-t.messages)
	}
	if _, err := t.conn.Write([]byte("x")); err == nil {
		t.Error("the connection is open, want it closed")
	}
}

// TestMessages: messages that come together, in parts, and with pings between are handled once, in
// their order, and the conversation waits again. Writes go on while it waits.
func TestMessages(t *testing.T) {
	onEachWay(t, func(t *talk) {
		t.start().awaitIdle()
		t.conn.Write([]byte("pong"))
		t.wantPong()
		t.send(frame("one"))
		t.want("one")
		t.awaitIdle()
		t.send(frame("two"), frame("three"), ping(), frame(""), frame("four"))
		t.want("two", "three", "", "four")
		t.wantPong()
		t.awaitIdle()
		t.send(ping())
		t.wantPong()
		t.awaitIdle()
		t.send(appendFrame(nil, 0x1, []byte("a")), ping())
		t.wantPong()
		t.send(appendFrame(nil, link.Fin, []byte("b")))
		t.want("ab")
		t.awaitIdle()
		long := frame(strings.Repeat("x", 3000))
		for len(long) > 0 {
			n := min(len(long), 1+len(long)/3)
			t.send(long[:n])
			long = long[n:]
			runtime.Gosched()
		}
		t.want(strings.Repeat("x", 3000))
		t.awaitIdle()
		t.send(frame("last"), appendFrame(nil, link.Fin|0x8, nil))
		t.want("last")
		t.wantEnd(io.EOF)
	})
}

// TestEnds: whatever ends a conversation that waits, with a goroutine or without, End is told, and the
// connection is closed.
func TestEnds(t *testing.T) {
	sweepByHand(t)
	for _, end := range []struct {
		name string
		do   func(t *talk)
		want error
	}{
		{"the client closes", func(t *talk) { t.client.Close() }, io.EOF},
		{"a close message", func(t *talk) { t.send(appendFrame(nil, link.Fin|0x8, nil)) }, io.EOF},
		{"Close", func(t *talk) { t.conn.Close() }, net.ErrClosed},
		{"a deadline", func(t *talk) { t.conn.SetReadDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		{"a deadline that moves", func(t *talk) {
			t.conn.SetReadDeadline(time.Now().Add(time.Hour))
			t.conn.SetReadDeadline(time.Time{})
			t.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		}, os.ErrDeadlineExceeded},
		{"a deadline in the past", func(t *talk) { t.conn.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(end.name, func(t *testing.T) {
			onEachWay(t, func(t *talk) {
				t.start().awaitIdle()
				end.do(t)
				t.wantEnd(end.want)
			})
			onEachWay(t, func(t *talk) {
				t.start().awaitIdle()
				t.send(frame("one"))
				t.want("one")
				end.do(t) // it lingers
				t.wantEnd(end.want)
			})
		})
	}
}

// TestPeersLeave: a client that leaves at any point of a message, or reads nothing of the answers, ends
// its conversation and no other.
func TestPeersLeave(t *testing.T) {
	message := slices.Concat(appendFrame(nil, 0x1, []byte("part")), ping(), appendFrame(nil, link.Fin, []byte(strings.Repeat("x", 200))))
	for _, cut := range []int{0, 1, 4, 8, 10, 13, 16, 18, 21, 100, len(message) - 1, len(message)} {
		for _, resets := range []bool{false, true} {
			onEachWay(t, func(t *talk) {
				other := newTalkBeside(t.T, t.listen, false).start()
				p := &program{read: t.library.read}
				if cut == len(message) { // the client reads nothing
					p.handle = func(string) (err error) {
						for answer := make([]byte, 1<<20); err == nil; _, err = t.conn.Write(answer) {
						}
						return err
					}
				}
				t.startWith(p)
				t.send(message[:cut])
				wantEcho(other)
				resets := resets || cut == len(message)
				if resets {
					_ = t.tcp.SetLinger(0)
					t.tcp.Close()
				} else {
					_ = t.tcp.CloseWrite()
				}
				err := testnet.Receive(t, "the end", t.ended)
				if err == nil || !resets && errors.Is(err, syscall.ECONNRESET) { // net may say EOF behind a reset
					t.Errorf("cut at %d, reset %t: got the end %v", cut, resets, err)
				}
				wantEcho(other)
				other.client.Close()
				testnet.Receive(t, "the other's end", other.ended)
				t.awaitStats(t.before)
			})
		}
	}
}

// wantEcho checks that a conversation goes on.
func wantEcho(t *talk) {
	t.Helper()
	t.send(frame("one"), ping())
	t.want("one")
	t.wantPong()
}

// TestPassedOver: a Read that wants binary messages only is given a marker of that kind; a Read that
// passes over both keeps its goroutine, and loses nothing.
func TestPassedOver(t *testing.T) {
	for _, wanted := range []byte{0x1, 0x2, 0} {
		t.Run(fmt.Sprint(wanted), func(t *testing.T) {
			onEachWay(t, func(t *talk) {
				var opcode byte
				t.library.onFrame = func(o byte) { opcode = o }
				t.armable = t.armable && wanted != 0
				t.startWith(&program{read: func() (string, error) {
					for {
						m, err := t.library.read()
						if err != nil || opcode == wanted || m != "" {
							return m, err
						}
					}
				}})
				for _, text := range []string{"one", "two"} {
					t.awaitIdle()
					t.send(appendFrame(nil, link.Fin|0x2, []byte(text)), frame(text))
					t.want(text, text)
				}
				t.awaitIdle()
				t.conn.Close()
				t.wantEnd(net.ErrClosed)
			})
		})
	}
}

// TestReadsAhead: a library that reads on a goroutine of its own is given no marker.
func TestReadsAhead(t *testing.T) {
	onEachWay(t, func(t *talk) {
		t.armable = false
		queue := make(chan string, 100)
		t.startWith(&program{read: func() (string, error) {
			if m, ok := <-queue; ok {
				return m, nil
			}
			return "", t.library.err
		}})
		go func() {
			for {
				m, err := t.library.read()
				if err != nil {
					close(queue)
					return
				}
				queue <- m
			}
		}()
		for range 10 {
			t.send(frame("one"), frame("two"))
			t.want("one", "two")
		}
		t.client.Close()
		t.wantEnd(io.EOF)
	})
}

// TestStream: messages that are handed out before they have come whole are handled as they come.
func TestStream(t *testing.T) {
	onEachWay(t, func(t *talk) {
		br := bufio.NewReader(t.conn)
		size := 0
		t.startWith(&program{
			read: func() (string, error) {
				var head [6]byte
				_, err := io.ReadFull(br, head[:])
				size = int(head[1] &^ link.Mask)
				return "", err
			},
			handle: func(string) error {
				payload := make([]byte, size)
				_, err := io.ReadFull(br, payload)
				t.messages <- string(payload)
				return err
			},
		})
		t.awaitIdle()
		f := frame("hello")
		for i := range f {
			t.send(f[i : i+1])
		}
		t.want("hello")
		t.awaitIdle()
		t.send(frame("two"), frame("three"))
		t.want("two", "three")
		t.awaitIdle()
		t.client.Close()
		t.wantEnd(io.EOF)
	})
}

// TestShortReads: a library that reads byte by byte gets the marker in as many parts.
func TestShortReads(t *testing.T) {
	onEachWay(t, func(t *talk) {
		t.library.br = nil
		slow := &miniature{br: bufio.NewReaderSize(oneByte{t.conn}, 16), c: t.conn}
		t.startWith(&program{read: slow.read})
		for range 3 {
			t.awaitIdle()
			t.send(frame("one"), frame("two"))
			t.want("one", "two")
		}
		t.client.Close()
		t.wantEnd(io.EOF)
	})
}

// oneByte is a reader of single bytes.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }

// TestArmedByAnother: a connection whose callback is another's keeps its goroutine.
func TestArmedByAnother(t *testing.T) {
	k := newTalk(t, percore.Listen, false)
	c := k.conn.NetConn().(*percore.Conn)
	if !k.armable {
		t.Skip("no connection is armed here")
	}
	if err := c.OnReadable(func(error) {}); err != nil {
		t.Fatalf("OnReadable: %v", err)
	}
	k.armable = false
	k.start().awaitIdle()
	k.send(frame("one"), frame("two"))
	k.want("one", "two")
	k.awaitIdle()
	k.client.Close()
	k.wantEnd(io.EOF)
}

// TestPanics: a panic in a method of the Session, or runtime.Goexit, closes the connection and nothing
// else. A panic is logged with its stack as net/http does, and End is called, once. Handle's error ends
// the conversation as well, whatever else has come.
func TestPanics(t *testing.T) {
	var logged testnet.Log
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	failure, enough, goexit := errors.New("a failure"), errors.New("enough"), "Goexit"
	for _, method := range []string{"Read", "Handle", "End", "Handle and End"} {
		for _, value := range []any{"oh", failure, http.ErrAbortHandler, goexit} {
			t.Run(fmt.Sprint(method, " ", value), func(t *testing.T) {
				onEachWay(t, func(t *talk) {
					before := logged.Count("panic serving")
					reach := func(at string) {
						switch {
						case !strings.Contains(method, at):
						case value == goexit:
							runtime.Goexit()
						default:
							panic(value)
						}
					}
					heard, handled := false, 0
					calls := make(chan error, 10)
					Start(t.conn, &program{read: func() (string, error) {
						m, err := t.library.read()
						if m != "" {
							heard = true
						}
						if heard {
							reach("Read")
						}
						return m, err
					}, handle: func(string) error {
						handled++
						reach("Handle")
						return enough
					}, end: func(err error) {
						calls <- err
						reach("End")
					}})
					t.awaitIdle()
					t.send(frame("one"), frame("two"))
					err := testnet.Receive(t, "End", calls)
					t.awaitStats(t.before)
					if _, err := t.client.Read(make([]byte, 1)); err == nil {
						t.Error("the connection is open, want it closed")
					}
					wants, ok := value.(error)
					if method == "End" {
						wants, ok = enough, true
					}
					if ok && !errors.Is(err, wants) || handled > 1 {
						t.Errorf("End: got %v after %d calls of Handle, want %v", err, handled, wants)
					}
					if err == nil {
						t.Error("End: got no error")
					}
					want := strings.Count(method, " and ") + 1
					if value == http.ErrAbortHandler || value == goexit {
						want = 0
					}
					testnet.Eventually(t, "the log", func() bool { return logged.Count("panic serving") == before+want })
					if want > 0 && !logged.Has("session_test.go") {
						t.Errorf("the log has no stack: %s", &logged)
					}
					if len(calls) > 0 {
						t.Error("End is called again")
					}
				})
			})
		}
	}
}

// TestStartTwice: a connection has one conversation.
func TestStartTwice(t *testing.T) {
	k := newTalk(t, percore.Listen, false).start()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a second Start: got no panic, want one")
			}
		}()
		k.start()
	}()
	k.conn.Close()
	k.wantEnd(net.ErrClosed)
}

// In a bubble of testing/synctest a conversation may use what was made there.
func TestBubble(t *testing.T) {
	server, client := testnet.Pair(t, percore.Listen, testnet.TCP4)
	synctest.Test(t, func(t *testing.T) {
		heard, ended := make(chan string), make(chan error, 1)
		c := New(server)
		Start(c, &program{read: newMiniature(c).read, handle: func(m string) error { heard <- m; return nil }, ended: ended})
		for _, m := range []string{"a", "b"} {
			client.Write(frame(m))
			if got := <-heard; got != m {
				t.Errorf("got %q, want %q", got, m)
			}
		}
		client.Close()
		if err := <-ended; err != io.EOF {
			t.Errorf("got %v, want %v", err, io.EOF)
		}
	})
}
