package reactor

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A program is played by a client against two servers of one protocol: a blocking one, on package net,
// and handlers on loops. Both must send the same bytes and see the same end.
//
// A message is a kind, a length in two bytes and a body. The answer is the body, prefixed by the
// message's number, as often as the kind says; or the server closes.
const (
	kindEcho  = iota // the body
	kindMuch         // 50 times the body: a slow reader holds the server up
	kindQuiet        // nothing
	kindLast         // the body, and the end
	kinds
)

const headBytes = 3

// answer appends the answer to the n-th message. last says that the connection ends with it.
func answer(to []byte, n int, kind byte, body []byte) (answer []byte, last bool) {
	times := [kinds]int{1, 50, 0, 1}[kind%kinds]
	for range times {
		to = append(to, byte(n))
		to = append(to, body...)
	}
	return to, kind%kinds == kindLast
}

// farewell is what a server sends last, in a style, when the peer has ended its stream.
const farewell = "farewell"

// blockingServe is the protocol as blocking code, from the n-th message on. It returns the end of the
// connection.
func blockingServe(c net.Conn, r io.Reader, n int, style uint16) (err error) {
	if style&saysFarewell != 0 {
		defer func() {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				c.Write([]byte(farewell))
			}
		}()
	}
	br := bufio.NewReader(r)
	for ; ; n++ {
		var head [headBytes]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint16(head[1:]))
		if _, err := io.ReadFull(br, body); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		reply, last := answer(nil, n, head[0], body)
		if _, err := c.Write(reply); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

// framed is the protocol as a handler.
type framed struct {
	style uint16     // how it is written: see Data
	ends  chan error // of connections
}

// The styles of framed. The other bits are the numbers of workers and of functions that wait for them.
const (
	inOneCall    = 1 << iota // Data takes all messages that there are
	onWorkers                // functions of Go answer
	piecemeal                // an answer is several writes
	thenBlocks               // hijacks after the third message
	lowLimit                 // WriteHardLimit is low: writes are refused
	isTold                   // a WritableHandler, which keeps what is refused
	saysFarewell             // an EndHandler, which takes its time
	pauses                   // waits before each third message, until a goroutine resumes it
	paced                    // reads no more while much waits, and is told of room by isTold

	styleBits = iota
)

// handler returns the handler in its style.
func (f *framed) handler() Handler {
	switch f.style & (isTold | saysFarewell) {
	case isTold:
		return struct {
			*framed
			framedRoom
		}{f, framedRoom{f}}
	case saysFarewell:
		return struct {
			*framed
			framedEnd
		}{f, framedEnd{f}}
	case isTold | saysFarewell:
		return struct {
			*framed
			framedRoom
			framedEnd
		}{f, framedRoom{f}, framedEnd{f}}
	}
	return f
}

// The methods that only some styles have.
type (
	framedRoom struct{ f *framed }
	framedEnd  struct{ f *framed }
)

// framedConn is a connection's context.
type framedConn struct {
	number int   // messages
	waited int   // the number that it has waited for
	closes bool  // one of them makes us close
	end    error // that End was called for

	mu      sync.Mutex
	refused [][]byte // guarded by mu; to be written in Writable
	last    bool     // guarded by mu; the connection ends with them
}

func (f *framed) Open(c *Conn) { c.SetUser(new(framedConn)) }

// write writes, or keeps for Writable what is refused.
func (f *framed) write(c *Conn, p []byte) {
	if f.style&isTold == 0 {
		c.Write(p) // errors are ignored, as handlers do
		return
	}
	s := c.User().(*framedConn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last {
		return
	}
	if len(s.refused) == 0 {
		if _, err := c.Write(p); !errors.Is(err, ErrWriteBufferFull) {
			return
		}
	}
	s.refused = append(s.refused, bytes.Clone(p))
}

// close ends the connection behind all that was written.
func (f *framed) close(c *Conn) {
	s := c.User().(*framedConn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last = true; len(s.refused) == 0 {
		c.Close()
	}
}

// Writable writes what was refused.
func (r framedRoom) Writable(c *Conn) {
	if r.f.style&paced != 0 {
		defer c.Resume()
	}
	s := c.User().(*framedConn)
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.refused) > 0 {
		if _, err := c.Write(s.refused[0]); errors.Is(err, ErrWriteBufferFull) {
			return
		}
		s.refused = s.refused[1:]
	}
	if s.last {
		c.Close()
	}
}

// End says farewell when more time has passed than ReadTimeout.
func (e framedEnd) End(c *Conn, unused []byte) {
	s := c.User().(*framedConn)
	if s.end = io.EOF; len(unused) > 0 {
		s.end = io.ErrUnexpectedEOF
	}
	c.Loop().Submit(func() {
		if kept := &c.more.times.keptSince; *kept != 0 {
			*kept -= int64(2 * modelReadTimeout)
			(*clock)(c).check()
		}
		c.Go(func() {
			e.f.write(c, []byte(farewell))
			e.f.close(c)
		})
	})
}

// modelMark is WriteHighWaterMark.
const modelMark = 4 << 10

// modelReadTimeout passes in no test.
const modelReadTimeout = time.Hour

func (f *framed) Data(c *Conn, p []byte) (used int) {
	s := c.User().(*framedConn)
	if f.style&pauses != 0 && s.number%3 == 2 && s.waited < s.number {
		s.waited = s.number
		c.Pause()
		go c.Resume()
		return 0
	}
	if f.style&(paced|isTold) == paced|isTold {
		defer func() {
			if c.Unsent() > modelMark {
				c.Pause()
				if c.Unsent() <= modelMark {
					c.Resume()
				}
			}
		}()
	}
	for {
		n := f.message(c, p[used:], used)
		used += n
		if n == 0 || f.style&inOneCall == 0 {
			return used
		}
	}
}

// message answers the message that p begins with, if it is whole, and returns its length. Before p
// the call of Data has used some bytes.
func (f *framed) message(c *Conn, p []byte, used int) int {
	if len(p) < headBytes {
		return 0
	}
	size := headBytes + int(binary.BigEndian.Uint16(p[1:]))
	if len(p) < size {
		return 0
	}
	s := c.User().(*framedConn)
	number := &s.number
	if f.style&thenBlocks != 0 && f.style&(onWorkers|isTold) == 0 && *number == 3 { // neither could write any more
		f.block(c, used, *number)
		return 0
	}
	reply, last := answer(nil, *number, p[0], p[headBytes:size])
	*number++
	s.closes = s.closes || last
	send := func() {
		if f.style&piecemeal != 0 {
			for len(reply) > 1000 {
				f.write(c, reply[:1000])
				reply = reply[1000:]
			}
		}
		f.write(c, reply)
		if last {
			f.close(c)
		}
	}
	if f.style&onWorkers != 0 {
		c.Go(send)
	} else {
		send()
	}
	return size
}

// block goes on as blocking code.
func (f *framed) block(c *Conn, used, n int) {
	conn, buffered, err := c.Hijack()
	if err != nil {
		return // it was closed by a message before
	}
	buffered = buffered[used:]
	go func() {
		err := blockingServe(conn, io.MultiReader(bytes.NewReader(buffered), conn), n, f.style)
		conn.Close()
		f.ends <- err
	}()
}

func (f *framed) Close(c *Conn, err error) {
	if s := c.User().(*framedConn); err == nil && !s.closes {
		err = s.end
	}
	f.ends <- err
}

// transcript is what a client and the server have seen.
type transcript struct {
	got []byte
	err error // nil for the end of the stream
	end string
}

// refused is the end of a connection whose write was refused.
const refused = "a write was refused"

// endOf names a server's end of a connection. Code that blocks sees an error when it reads or when
// it writes, whichever is first.
func endOf(err error) string {
	switch {
	case err == nil:
		return "closed by the server"
	case err == io.EOF:
		return "the end"
	case err == io.ErrUnexpectedEOF:
		return "the end in a message"
	case err == ErrWriteBufferFull:
		return refused
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "a timeout"
	}
	return "an error"
}

// playModel plays a client's program: bytes of it choose messages, cuts, pauses and the end.
func playModel(t testing.TB, network, address string, ends chan error, program []byte) (tr transcript) {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	next := func() byte {
		if len(program) == 0 {
			return 0
		}
		b := program[0]
		program = program[1:]
		return b
	}
	finish, slow := next(), next()%4 == 0
	var reading sync.WaitGroup
	start := make(chan bool)
	reading.Go(func() {
		if slow {
			<-start
		}
		tr.got, tr.err = io.ReadAll(c)
	})
	if sendProgram(c, next, func() bool { return len(program) > 0 }) {
		finish = 0 // or the server would close with bytes unread, which resets the connection
	}
	half, canHalf := c.(interface{ CloseWrite() error })
	switch {
	case finish%8 == 1: // in the middle of a message
		c.Write([]byte{kindEcho, 1})
	case finish%8 == 2 && network != "unix":
		time.Sleep(2 * time.Millisecond)
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	if canHalf {
		half.CloseWrite()
	}
	close(start)
	reading.Wait()
	tr.end = endOf(testnet.Receive(t, "the server's end", ends))
	return tr
}

// sendProgram sends messages, cut anywhere, and reports whether the last makes the server close.
func sendProgram(c net.Conn, next func() byte, more func() bool) (last bool) {
	var out []byte
	for more() && !last {
		kind, size := next(), int(next())<<(next()%6)
		if kind%kinds == kindLast && kind < 200 {
			kind = kindEcho // the last message should be rare
		}
		last = kind%kinds == kindLast
		out = append(out, kind)
		out = binary.BigEndian.AppendUint16(out, uint16(size))
		for i := range size {
			out = append(out, byte(i))
		}
		switch cut := int(next()); {
		case cut%3 == 0:
			n := min(len(out), cut)
			c.Write(out[:n])
			out = out[n:]
		case cut%3 == 1:
			c.Write(out)
			out = nil
		}
		if next()%16 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	c.Write(out)
	return last
}

// blocking starts the blocking server.
func blocking(t testing.TB, kind testnet.Kind, style uint16) (net.Listener, chan error) {
	ends := make(chan error, 10)
	ln := testnet.Listen(t, net.Listen, kind)
	return testnet.Serve(t, ln, func(c net.Conn) { ends <- blockingServe(c, c, 0, style) }), ends
}

// modelServer starts handlers in a style.
func modelServer(t testing.TB, kind testnet.Kind, style uint16) (net.Listener, chan error) {
	f := &framed{style: style, ends: make(chan error, 10)}
	limit, workers := 64<<20, int(style>>styleBits)
	if style&lowLimit != 0 {
		limit = 8 << 10
	}
	s, err := New(f.handler(), Config{WriteHighWaterMark: modelMark, WriteHardLimit: limit, ReadTimeout: modelReadTimeout, Workers: workers % 4, WaitingMax: workers / 4 % 8, LoopHandler: func(int) Handler { return f.handler() }})
	if err != nil {
		t.Fatal(err)
	}
	ln := testnet.Listen(t, percore.Listen, kind)
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	return ln, f.ends
}

// checkModel plays a program against both servers.
func checkModel(t *testing.T, kind testnet.Kind, style uint16, program []byte) {
	t.Helper()
	a, aEnds := blocking(t, kind, style)
	b, bEnds := modelServer(t, kind, style)
	want := playModel(t, a.Addr().Network(), a.Addr().String(), aEnds, program)
	got := playModel(t, b.Addr().Network(), b.Addr().String(), bEnds, program)
	if got.end == refused && (style&lowLimit == 0 || style&isTold != 0) {
		t.Errorf("style %#b, program %q: a write is refused, and ends the connection", style, program)
	}
	if got.end == refused {
		if !bytes.HasPrefix(want.got, got.got) {
			t.Errorf("style %#b, program %q: got %d bytes with a gap after %d", style, program, len(got.got), commonPrefix(got.got, want.got))
		}
		return
	}
	if want.end == "an error" || got.end == "an error" || want.err != nil || got.err != nil {
		// A reset: how far each got before is a matter of time, but not the bytes.
		short, long := got.got, want.got
		if len(short) > len(long) {
			short, long = long, short
		}
		if !bytes.HasPrefix(long, short) {
			t.Errorf("style %#b, program %q: the bytes before a reset differ", style, program)
		}
		return
	}
	if !bytes.Equal(got.got, want.got) || got.end != want.end {
		t.Errorf("style %#b, program %q: got %d bytes, %s; want %d bytes, %s (the same bytes up to %d)",
			style, program, len(got.got), got.end, len(want.got), want.end, commonPrefix(got.got, want.got))
	}
}

func commonPrefix(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestModel(t *testing.T) {
	testnet.NoLeaks(t)
	programs := 200
	if testing.Short() {
		programs = 30
	}
	for seed := range programs {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		program := make([]byte, 2+random.IntN(60))
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		kind := []testnet.Kind{testnet.TCP4, testnet.Unix}[seed%2]
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			checkModel(t, kind, uint16(random.Uint32()), program)
		})
	}
}

func FuzzPrograms(f *testing.F) {
	f.Add(uint16(0), []byte("\x00\x01hello, this is a program"))
	f.Add(uint16(inOneCall|piecemeal), []byte("\x01\x00\x01\x80\x05\x00\x01"))
	f.Add(uint16(inOneCall|lowLimit), []byte("\x00\x00\x01\xff\x05\x01\x01\x01\xff\x05\x01\x01\x00\x01\x05\x01\x01"))
	f.Add(uint16(onWorkers|thenBlocks), []byte("\x02\x00\x01\x80\x05\x00\x01\x01\xff\x05\x01\x01\x01\xff\x05\x01\x01"))
	f.Fuzz(func(t *testing.T, style uint16, program []byte) {
		if len(program) > 200 {
			t.Skip("a long program finds no more than two short ones")
		}
		checkModel(t, testnet.TCP4, style, program)
	})
}
