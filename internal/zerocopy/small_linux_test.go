package zerocopy

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// A conversation is a Splice under way, and its two far ends.
type conversation struct {
	testing.TB
	src, dst link
	data     []byte // all that is ever sent, in this order
	sent     int
	done     <-chan transferResult
}

func converse(t testing.TB, src, dst link) *conversation {
	return converseBy(t, src, dst, raw(t, src.out), -1)
}

// converseBy is converse with a limit, and with a RawConn of src's.
func converseBy(t testing.TB, src, dst link, in syscall.RawConn, limit int64) *conversation {
	c := &conversation{TB: t, src: src, dst: dst, data: content(8 << 20)}
	splice := func(out, _ syscall.RawConn, limit int64) (int64, bool, error) { return Splice(out, in, limit) }
	c.done = begin(t, splice, dst.in, src.out, limit)
	return c
}

// say sends n bytes and waits until they have arrived.
func (c *conversation) say(n int) {
	c.Helper()
	data := c.data[c.sent:][:n]
	go c.src.in.Write(data)
	got := make([]byte, n)
	testnet.Within(c, "a message", func() {
		if m, err := io.ReadFull(c.dst.out, got); err != nil || !slices.Equal(got, data) {
			c.Errorf("after %d bytes: got %d bytes, %v, the right ones %t, want all of %d", c.sent, m, err, slices.Equal(got, data), n)
		}
	})
	c.sent += n
}

// chat sends small messages until they are copied.
func (c *conversation) chat() {
	c.Helper()
	for i := range 2 * smallRun {
		c.say(i + 1)
	}
}

// isSocket reports whether l's ends are sockets.
func isSocket(l link) bool {
	_, ok := l.in.(net.Conn)
	return ok
}

// TestSmallMessages has messages of all sizes follow each other: small ones are
// copied where both ends are sockets, and large ones never.
func TestSmallMessages(t *testing.T) {
	onEveryRoute(t, func(t *testing.T, open func() (src, dst link)) {
		src, dst := open()
		c, copies := converse(t, src, dst), isSocket(src) && isSocket(dst)
		before := countMoved()
		counted := func() (copied uint64) { // which is done after the message has left
			testnet.Eventually(t, "all bytes being counted", func() bool {
				now := since(before)
				copied = now.copied
				return now.splice+copied == uint64(c.sent)
			})
			return copied
		}
		c.chat()
		if got := counted(); copies && got == 0 {
			t.Error("small messages: nothing was copied")
		}
		last := counted()
		c.say(smallMax)
		if got := counted() - last; copies && got != smallMax || !copies && got > 0 {
			t.Errorf("another one: got %d bytes copied, want all %d %t", got, smallMax, copies)
		}
		last = counted()
		c.say(1 << 20)
		c.say(1 << 20)
		if got := counted() - last; got > 2*copyBytes { // the first read, and the part of the first message that was there for it
			t.Errorf("large messages: got %d bytes copied, want %d at most", got, 2*copyBytes)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 100 {
			c.say(1 + random.IntN(copyBytes+100))
			if random.IntN(10) == 0 {
				c.chat()
			}
		}
		if got := counted(); !copies && got > 2*smallRun {
			t.Errorf("where not both ends are sockets: got %d bytes copied, want one message's, to find that out", got)
		}
		testnet.Eventually(t, "no pipe in use while waiting", func() bool { return pipesInUse() == 0 })
		c.src.in.Close()
		r := testnet.Receive(t, "Splice", c.done)
		wantTransfer(t, r.n, r.handled, r.err, int64(c.sent))
		wantArrival(t, c.dst.in, readAll(c.dst.out), nil)
	})
}

// TestSmallMessagesLimit has the limit come in the middle of one: bytes behind it stays.
func TestSmallMessagesLimit(t *testing.T) {
	src, dst := links["tcp"](t), links["tcp"](t)
	limit := int64(smallRun + 5)
	c := converseBy(t, src, dst, raw(t, src.out), limit)
	for range smallRun {
		c.say(1)
	}
	io.WriteString(src.in, "01234rest")
	r := testnet.Receive(t, "Splice", c.done)
	wantTransfer(t, r.n, r.handled, r.err, limit)
	src.in.Close()
	if rest, err := io.ReadAll(src.out); string(rest) != "rest" || err != nil {
		t.Errorf("behind the limit: got %q, %v, want \"rest\"", rest, err)
	}
	wantArrival(t, dst.in, readAll(dst.out), []byte("01234"))
}

// TestSmallMessagesUrgent: a read gets past a mark in the stream.
func TestSmallMessagesUrgent(t *testing.T) {
	c := converse(t, links["tcp"](t), links["tcp"](t))
	c.chat()
	sendUrgent(t, c.src.in)
	r := testnet.Receive(t, "Splice", c.done)
	wantTransfer(t, r.n, r.handled, r.err, int64(c.sent+len("beforeafter")))
	wantArrival(t, c.dst.in, readAll(c.dst.out), []byte("beforeafter"))
}

// TestSmallMessagesFullDestination: bytes that a destination doesn't take at once are kept
// for it, and nothing is read meanwhile.
func TestSmallMessagesFullDestination(t *testing.T) {
	c := converse(t, links["unix"](t), links["unix"](t))
	c.chat()
	const messages = 2000
	text := strings.Repeat("m", 500)
	testnet.GoBlocked(t, "the feeder", func() { // once the destination is full
		for range messages {
			io.WriteString(c.src.in, text)
		}
		c.src.in.Close()
	})
	arriving := readAll(c.dst.out)
	r := testnet.Receive(t, "Splice", c.done)
	wantTransfer(t, r.n, r.handled, r.err, int64(c.sent+messages*len(text)))
	wantArrival(t, c.dst.in, arriving, []byte(strings.Repeat(text, messages)))
}

// A told is a source that counts how often it is told that it is drained.
type told struct {
	syscall.RawConn
	drained int
}

func (t *told) Drained()          { t.drained++ }
func (t *told) Marked() bool      { return false }
func (t *told) Nonblocking() bool { return false }
func (t *told) Closed() bool      { return false }

// TestDrained: the source is told exactly when a short read has emptied it.
func TestDrained(t *testing.T) {
	src, dst := links["tcp"](t), links["tcp"](t)
	in := &told{RawConn: raw(t, src.out)}
	c := converseBy(t, src, dst, in, -1)
	for range smallRun + 3 {
		c.say(100)
	}
	c.say(copyBytes) // fills the buffer
	src.in.Close()
	r := testnet.Receive(t, "Splice", c.done)
	wantTransfer(t, r.n, r.handled, r.err, int64(c.sent))
	if in.drained != 3 {
		t.Errorf("told %d times, want 3", in.drained)
	}
}
