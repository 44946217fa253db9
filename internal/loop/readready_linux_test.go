package loop

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

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
