package loop

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// lender is memory for ReadReady that knows whether it is lent out.
type lender struct {
	memory          []byte
	lent, takenBack atomic.Int32
}

func (l *lender) lend() []byte { l.lent.Add(1); return l.memory }
func (l *lender) takeBack()    { l.takenBack.Add(1) }

// held is how often the memory is lent out at the moment.
func (l *lender) held() int32 { return l.lent.Load() - l.takenBack.Load() }

func newLender(size int) *lender { return &lender{memory: make([]byte, size)} }

func (l *lender) read(f *FD) (int, error) { return f.ReadReady(l.lend, l.takeBack) }

// startBlocked starts a ReadReady and returns when it waits.
func (l *lender) startBlocked(t *testing.T, f *FD) <-chan result {
	t.Helper()
	ch := make(chan result, 1)
	testnet.GoBlocked(t, "ReadReady", func() {
		n, err := l.read(f)
		ch <- result{n, err}
	})
	if len(ch) > 0 {
		t.Fatalf("ReadReady: got %v, want it to wait", <-ch)
	}
	return ch
}

func TestReadReady(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		l := newLender(8)
		for _, want := range []string{"four", "all of 8", "the last"} {
			reading := l.startBlocked(t, f)
			if n := l.held(); n != 0 {
				t.Errorf("while ReadReady waits: got memory in use %d times, want none", n)
			}
			if _, err := io.WriteString(peer, want); err != nil {
				t.Fatal(err)
			}
			r := await(t, "ReadReady", reading)
			if got := string(l.memory[:r.n]); got != want || r.err != nil || l.held() != 1 {
				t.Errorf("got %q, %v, memory in use %d times, want %q, once", got, r.err, l.held(), want)
			}
			l.takeBack()
		}
		peer.Close()
		for range 2 {
			if r := await(t, "ReadReady at the end", start(func() (int, error) { return l.read(f) })); r != (result{0, io.EOF}) || l.held() != 0 {
				t.Errorf("at the end: got %v, memory in use %d times, want 0, EOF, none", r, l.held())
			}
		}
	})
}

// Events that cut a read cut this, too, and no memory is lent meanwhile.
func TestReadReadyCut(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		l := newLender(8)
		expect := func(what string, r result, want error) {
			t.Helper()
			if r.n != 0 || r.err != want || l.held() != 0 {
				t.Errorf("%s: got %v, memory in use %d times, want 0, %v, none", what, r, l.held(), want)
			}
		}
		waiting := l.startBlocked(t, f)
		_ = f.SetReadDeadline(time.Unix(1, 0))
		expect("the deadline is set to the past", await(t, "ReadReady", waiting), os.ErrDeadlineExceeded)
		lent := l.lent.Load()
		n, err := l.read(f)
		expect("past the deadline", result{n, err}, os.ErrDeadlineExceeded)
		if l.lent.Load() != lent {
			t.Error("past the deadline memory was asked for")
		}
		_ = f.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		expect("the deadline passes", await(t, "ReadReady", start(func() (int, error) { return l.read(f) })), os.ErrDeadlineExceeded)
		_ = f.SetReadDeadline(time.Time{})
		waiting = l.startBlocked(t, f)
		closeFD(t, f)
		expect("Close", await(t, "ReadReady", waiting), ErrClosed)
		n, err = l.read(f)
		expect("after Close", result{n, err}, ErrClosed)
	})
}

// Memory that is long in coming (a limit on it, say) holds up its ReadReady only:
// Close and other reads don't wait, and nothing is read into it afterwards.
func TestReadReadyLendBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, f *FD)
		want      error
	}{
		"Close": {func(t *testing.T, f *FD) { closeFD(t, f) }, ErrClosed},
		"a read, and Close": {func(t *testing.T, f *FD) {
			mustRead(t, f, "text")
			closeFD(t, f)
		}, ErrClosed},
		"a deadline": {func(t *testing.T, f *FD) { _ = f.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
				mustWrite(t, peer, "text")
				l := newLender(8)
				asked, found := make(chan struct{}), make(chan struct{})
				reading := start(func() (int, error) {
					return f.ReadReady(func() []byte {
						close(asked)
						<-found
						return l.lend()
					}, l.takeBack)
				})
				testnet.Receive(t, "lend", asked)
				c.meanwhile(t, f)
				close(found)
				if r := await(t, "ReadReady", reading); r != (result{0, c.want}) || l.held() != 0 {
					t.Errorf("ReadReady: got %v, memory in use %d times, want 0, %v, none", r, l.held(), c.want)
				}
				if string(l.memory) != string(make([]byte, 8)) {
					t.Errorf("the memory was written to: %q", l.memory)
				}
			})
		})
	}
}

// Ready with nothing to read: the memory is given back before the wait.
func TestReadReadySpurious(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		l := newLender(8)
		f.rd.setReady(f)
		waiting := l.startBlocked(t, f)
		if lent, held := l.lent.Load(), l.held(); lent == 0 || held != 0 {
			t.Errorf("after an edge without data: got memory lent %d times and in use %d times, want it lent and given back", lent, held)
		}
		_, _ = io.WriteString(peer, "text")
		if r := await(t, "ReadReady", waiting); r != (result{4, nil}) || l.held() != 1 {
			t.Errorf("got %v, memory in use %d times, want 4, once", r, l.held())
		}
	})
}

// ReadReady leaves the drained flag as Read does: bytes that one leaves the other finds.
func TestReadReadyAndRead(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		l := newLender(4)
		_, _ = io.WriteString(peer, "12345678")
		if r := await(t, "ReadReady", start(func() (int, error) { return l.read(f) })); r != (result{4, nil}) {
			t.Errorf("got %v, want 4 bytes", r)
		}
		p := make([]byte, 8)
		if r := await(t, "Read", start(func() (int, error) { return f.Read(p) })); r != (result{4, nil}) || string(p[:4]) != "5678" {
			t.Errorf("got %v, %q, want the other 4 bytes", r, p[:r.n])
		}
		waiting := l.startBlocked(t, f)
		_, _ = io.WriteString(peer, "9")
		if r := await(t, "ReadReady", waiting); r != (result{1, nil}) {
			t.Errorf("got %v, want 1 byte", r)
		}
	})
}

func TestReadReadyLendsNothing(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		l := newLender(0)
		_, _ = io.WriteString(peer, "text")
		if r := await(t, "ReadReady", start(func() (int, error) { return l.read(f) })); r != (result{}) || l.held() != 0 {
			t.Errorf("with no memory: got %v, in use %d times, want 0, nil, none", r, l.held())
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("lend's panic did not come through")
				}
			}()
			_, _ = f.ReadReady(func() []byte { panic("no memory") }, func() {})
		}()
		p := make([]byte, 8)
		if r := await(t, "Read", start(func() (int, error) { return f.Read(p) })); r != (result{4, nil}) {
			t.Errorf("after a panic in lend: got %v, want the 4 bytes", r)
		}
	})
}

// Several read from a stream at once: together they get each byte, once.
func TestReadReadyTogether(t *testing.T) {
	const total = 200_000
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		var sum, count atomic.Int64
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				p := make([]byte, 777)
				for {
					n, err := f.ReadReady(func() []byte { return p }, func() {})
					for _, b := range p[:n] {
						sum.Add(int64(b))
					}
					count.Add(int64(n))
					if err != nil {
						if err != io.EOF {
							t.Errorf("got %v, want EOF", err)
						}
						return
					}
				}
			})
		}
		want := int64(0)
		s := newStream(7)
		for left := total; left > 0; left -= 1000 {
			p := s.next(1000)
			for _, b := range p {
				want += int64(b)
			}
			if _, err := peer.Write(p); err != nil {
				t.Error(err)
			}
		}
		peer.Close()
		testnet.Within(t, "the readers", readers.Wait)
		if count.Load() != total || sum.Load() != want {
			t.Errorf("got %d bytes with sum %d, want %d with sum %d", count.Load(), sum.Load(), total, want)
		}
	})
}

func TestReadReadyAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates: run it without -race")
	}
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		stop := echoConn(peer)
		defer stop()
		p := make([]byte, 64)
		var failed error
		if n := testing.AllocsPerRun(200, func() {
			_, err := f.Write(p)
			lent := 0
			n, err2 := f.ReadReady(func() []byte { lent++; return p }, func() { lent-- })
			if err = errors.Join(err, err2); err != nil || n != len(p) || lent != 1 {
				failed = errors.Join(err, errors.New("a wrong read"))
			}
		}); n != 0 || failed != nil {
			t.Errorf("got %v allocations, %v, want none", n, failed)
		}
	})
}
