package zerocopy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// countedBuffer is a Buffer that must not be released too often.
type countedBuffer struct {
	t          testing.TB
	references atomic.Int32
}

func (b *countedBuffer) Retain() { b.references.Add(1) }

func (b *countedBuffer) Release() {
	if b.references.Add(-1) < 0 {
		b.t.Error("a buffer was released once too often")
	}
}

// countedHolder is a Holder that counts.
type countedHolder struct{ holds atomic.Int32 }

func (h *countedHolder) Hold()        { h.holds.Add(1) }
func (h *countedHolder) Unhold(n int) { h.holds.Add(-int32(n)) }

// newTestSender returns a Sender that has never seen a socket, whose next send has
// the number first.
func newTestSender(first uint32) (*Sender, *countedHolder) {
	h := new(countedHolder)
	s := &Sender{holder: h}
	s.mu.base = first
	return s, h
}

// begins begins n sends and returns their buffers.
func begins(t testing.TB, s *Sender, n int) []*countedBuffer {
	var buffers []*countedBuffer
	for range n {
		b := &countedBuffer{t: t}
		s.begin(b)
		buffers = append(buffers, b)
	}
	return buffers
}

// inUse lists which buffers have a reference.
func inUse(buffers []*countedBuffer) string {
	s := ""
	for _, b := range buffers {
		s += fmt.Sprint(b.references.Load())
	}
	return s
}

func TestSenderCompletions(t *testing.T) {
	type completion struct{ first, last int } // counted from the first send
	for _, test := range []struct {
		name        string
		sends       int
		completions []completion
		want        string // references by then
		base        uint32 // how many are forgotten
	}{
		{"none", 3, nil, "111", 0},
		{"one by one", 3, []completion{{0, 0}, {1, 1}}, "001", 2},
		{"a range", 4, []completion{{0, 2}}, "0001", 3},
		{"all", 4, []completion{{0, 3}}, "0000", 4},
		{"out of order", 4, []completion{{2, 2}, {1, 1}}, "1001", 0},
		{"out of order, then the first", 4, []completion{{1, 2}, {0, 0}}, "0001", 3},
		{"a range around one that is done", 4, []completion{{1, 1}, {0, 2}}, "0001", 3},
		{"twice", 3, []completion{{0, 1}, {0, 1}, {1, 1}}, "001", 2},
		{"beyond the last", 3, []completion{{2, 9}}, "110", 0},
		{"never sent", 3, []completion{{3, 7}}, "111", 0},
		{"long ago", 3, []completion{{-5, -1}}, "111", 0},
		{"from long ago", 3, []completion{{-5, 1}}, "001", 2},
		{"backwards", 3, []completion{{2, 0}}, "111", 0},
	} {
		for _, first := range []uint32{0, 1000, ^uint32(0), ^uint32(0) - 1, 1<<31 - 2} {
			t.Run(fmt.Sprintf("%s/from %d", test.name, first), func(t *testing.T) {
				s, h := newTestSender(first)
				buffers := begins(t, s, test.sends)
				for _, c := range test.completions {
					s.complete(sys.Completion{First: first + uint32(c.first), Last: first + uint32(c.last)})
				}
				if got := inUse(buffers); got != test.want {
					t.Errorf("got references %s, want %s", got, test.want)
				}
				if got := s.mu.base - first; got != test.base {
					t.Errorf("got %d sends forgotten, want %d", got, test.base)
				}
				if got, want := int(h.holds.Load()), bytes.Count([]byte(test.want), []byte("1")); got != want {
					t.Errorf("got %d holds, want %d", got, want)
				}
				s.complete(sys.Completion{First: first, Last: first + uint32(test.sends) - 1})
				if got := h.holds.Load(); got != 0 || len(s.mu.sends) != 0 {
					t.Errorf("after a completion of all: got %d holds, %d sends, want none", got, len(s.mu.sends))
				}
			})
		}
	}
}

// A number that the kernel didn't use is the next send's.
func TestSenderAbort(t *testing.T) {
	s, h := newTestSender(^uint32(0))
	first := begins(t, s, 2)
	failed := &countedBuffer{t: t}
	number := s.begin(failed)
	s.abort(number)
	if failed.references.Load() != 0 || h.holds.Load() != 2 {
		t.Errorf("after a failure: got %d references, %d holds, want 0, 2", failed.references.Load(), h.holds.Load())
	}
	next := &countedBuffer{t: t}
	if got := s.begin(next); got != number {
		t.Errorf("the next number: got %d, want %d", got, number)
	}
	s.abort(number - 1) // not the last: nothing
	s.complete(sys.Completion{First: number, Last: number})
	if got := inUse(append(first, next)); got != "110" {
		t.Errorf("got references %s, want 110", got)
	}
	// The kernel says that it is done with a send, and then that it failed. It never
	// does; but no reference must be given up twice.
	odd := &countedBuffer{t: t}
	number = s.begin(odd)
	s.complete(sys.Completion{First: number, Last: number})
	s.abort(number)
	if n := odd.references.Load(); n != 0 {
		t.Errorf("after both: got %d references, want 0", n)
	}
}

// The list of sends does not grow with their number, and recording one costs
// nothing once the list is long enough.
func TestSenderAllocations(t *testing.T) {
	s, _ := newTestSender(0)
	b := &countedBuffer{t: t}
	number := uint32(0)
	for range 10 {
		s.begin(b)
	}
	if n := testing.AllocsPerRun(1000, func() {
		s.begin(b)
		s.complete(sys.Completion{First: number, Last: number})
		number++
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
	if n := cap(s.mu.sends); n > 64 {
		t.Errorf("got room for %d sends, of which 11 are in progress at a time", n)
	}
}

// FuzzSender plays begins, aborts and completions, possible and impossible ones,
// against a model that keeps all sends there ever were.
func FuzzSender(f *testing.F) {
	f.Add(uint32(0), []byte{0, 0, 0, 1, 2, 3, 9, 200, 17})
	f.Add(^uint32(0), []byte{0, 0, 2, 4, 0, 2, 5, 3, 0, 2, 8, 1})
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		program := make([]byte, 300)
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		f.Add(random.Uint32(), program)
	}
	f.Fuzz(func(t *testing.T, first uint32, program []byte) {
		s, h := newTestSender(first)
		var sends []*countedBuffer
		next := func() byte {
			if len(program) == 0 {
				return 0
			}
			b := program[0]
			program = program[1:]
			return b
		}
		for len(program) > 0 {
			switch next() % 4 {
			case 0, 1:
				b := &countedBuffer{t: t}
				if got, want := s.begin(b), first+uint32(len(sends)); got != want {
					t.Fatalf("send %d got the number %d, want %d", len(sends), got, want)
				}
				sends = append(sends, b)
			case 2:
				if last := len(sends) - 1; last >= 0 && sends[last].references.Load() == 1 {
					s.abort(first + uint32(last))
					if n := sends[last].references.Load(); n != 0 {
						t.Fatalf("an aborted send: got %d references, want 0", n)
					}
					sends = sends[:last]
				}
			case 3:
				from := int(next()) - 10
				to := from + int(next()%32) - 3
				s.complete(sys.Completion{First: first + uint32(from), Last: first + uint32(to)})
				for i := max(from, 0); i <= to && i < len(sends); i++ {
					if n := sends[i].references.Load(); n != 0 {
						t.Fatalf("send %d, of completion %d to %d: got %d references, want 0", i, from, to, n)
					}
				}
			}
			pending := 0
			for _, b := range sends {
				pending += int(b.references.Load())
			}
			if held := int(h.holds.Load()); held != pending {
				t.Fatalf("got %d holds, want %d, one for each send in progress", held, pending)
			}
		}
		s.complete(sys.Completion{First: first, Last: first + uint32(len(sends)) - 1})
		if n := h.holds.Load(); len(sends) > 0 && n != 0 {
			t.Fatalf("after a completion of all: got %d holds, want none", n)
		}
	})
}

// A real socket: the bytes arrive, the completions come, and since the kernel says
// that it copied, as on loopback it always does, no others are asked for.
func TestSenderWrite(t *testing.T) {
	fd, peer := streamPair(t)
	h := new(countedHolder)
	s := NewSender(fd, h, 1000)
	if s.copies.Load() {
		t.Fatal("the socket can't do without copying")
	}
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	b := &countedBuffer{t: t}
	for round := range 3 {
		received := drain(peer, len(data))
		if n, err := senderWriteAll(s, fd, data, b); n != len(data) || err != nil {
			t.Fatalf("round %d: got %d, %v, want all", round, n, err)
		}
		if got := testnet.Receive(t, "the bytes", received); !bytes.Equal(got, data) {
			t.Errorf("round %d: other bytes arrived", round)
		}
		testnet.Eventually(t, "all completions", func() bool {
			s.Drain(fd)
			return b.references.Load() == 0
		})
		if n := h.holds.Load(); n != 0 {
			t.Errorf("round %d: got %d holds, want none", round, n)
		}
	}
	if !s.copies.Load() {
		t.Error("the kernel copied, and the Sender does not know")
	}
	before := ReadStats()
	go io.Copy(io.Discard, peer)
	if _, err := senderWriteAll(s, fd, data, b); err != nil {
		t.Error(err)
	}
	after := ReadStats()
	if after.ZerocopyBytes != before.ZerocopyBytes || after.ZerocopyDeclined == before.ZerocopyDeclined || b.references.Load() != 0 {
		t.Errorf("after that: got %d more bytes without copying, %d declined, want none and some",
			after.ZerocopyBytes-before.ZerocopyBytes, after.ZerocopyDeclined-before.ZerocopyDeclined)
	}
}

// senderWriteAll calls Write until all is written, waiting whenever the kernel says
// so.
func senderWriteAll(s *Sender, fd int, p []byte, b Buffer) (n int, err error) {
	for {
		wrote, err := s.Write(fd, p[n:], b)
		n += wrote
		if err != syscall.EAGAIN {
			return n, err
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err != nil && err != unix.EINTR {
			return n, err
		}
	}
}

// A socket that has no MSG_ZEROCOPY is written to all the same.
func TestSenderWithout(t *testing.T) {
	defer fastpath.MsgZerocopy.Force(true)()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	h := new(countedHolder)
	s := NewSender(fds[0], h, 1)
	b := &countedBuffer{t: t}
	if n, err := s.Write(fds[0], []byte("some text"), b); n != 9 || err != nil || b.references.Load() != 0 || h.holds.Load() != 0 {
		t.Errorf("got %d, %v, %d references, want 9, nil, 0", n, err, b.references.Load())
	}
	got := make([]byte, 20)
	if n, err := unix.Read(fds[1], got); n != 9 || err != nil {
		t.Errorf("the other end: got %d, %v, want 9", n, err)
	}
}

// What stops a plain write stops this, and the buffer is not kept.
func TestSenderErrors(t *testing.T) {
	fd, _ := streamPair(t)
	h := new(countedHolder)
	s := NewSender(fd, h, 1)
	b := &countedBuffer{t: t}
	if n, err := s.Write(fd, nil, b); n != 0 || err != nil {
		t.Errorf("nothing: got %d, %v, want 0, nil", n, err)
	}
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Write(fd, make([]byte, 5000), b); n != 0 || err != syscall.EPIPE {
		t.Errorf("after shutdown: got %d, %v, want 0, EPIPE", n, err)
	}
	if b.references.Load() != 0 || h.holds.Load() != 0 {
		t.Errorf("after a failure: got %d references, %d holds, want none", b.references.Load(), h.holds.Load())
	}
}
