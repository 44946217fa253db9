package loop

import (
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore/internal/race"
)

// An idle connection costs its FD and little else: 10,000 of them cost 1.4 MB at this limit. 144 is
// also one of the allocator's size classes, and the next one is 160: a field too many costs 16
// bytes per connection. A good reason may raise it; this test catches accidents.
const fdBytesMax = 144

func TestFDSize(t *testing.T) {
	if n := unsafe.Sizeof(FD{}); n > fdBytesMax {
		t.Errorf("an FD takes %d bytes, want %d at most", n, fdBytesMax)
	}
}

// The data path does not allocate, and neither do deadlines: servers set several per request.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates: run it without -race")
	}
	onEveryEngine(t, 2, func(t *testing.T, g *Group) {
		for _, tr := range []transport{overTCP, overUnix} {
			// Alone on its loop, a descriptor's waiters poll themselves; with company they don't.
			for _, company := range []bool{false, true} {
				f, peer := newFDPair(t, g.Loop(0), g.Loop(1), tr)
				if company {
					newPair(t, g.Loop(0), overUnix)
					newPair(t, g.Loop(1), overUnix)
				}
				measureAllocations(t, f, peer)
				closeFD(t, f)
				closeFD(t, peer)
			}
		}
	})
}

func measureAllocations(t *testing.T, f, peer *FD) {
	t.Helper()
	p := make([]byte, 128)
	base := time.Now().Add(time.Hour)
	i := 0
	never := readableFunc(func(error) {})
	stop := echo(peer)
	defer stop()
	tests := []struct {
		name string
		do   func()
	}{
		{"Write and a Read that waits", func() {
			_, _ = f.Write(p)
			_, _ = f.Read(p)
		}},
		{"deadline later", func() { i++; _ = f.SetReadDeadline(base.Add(time.Duration(i))) }},
		{"deadline earlier", func() { i++; _ = f.SetReadDeadline(base.Add(-time.Duration(i) * time.Millisecond)) }},
		{"write deadline earlier", func() { i++; _ = f.SetWriteDeadline(base.Add(-time.Duration(i) * time.Millisecond)) }},
		{"both deadlines", func() { i++; _ = f.SetDeadline(base.Add(time.Duration(i))) }},
		{"deadline in the past", func() { _ = f.SetReadDeadline(time.Unix(1, 0)) }},
		{"Read past the deadline", func() { _, _ = f.Read(p) }},
		{"no deadline", func() { _ = f.SetDeadline(time.Time{}) }},
		{"a callback, again", func() { _ = f.NotifyReadable(never); f.CancelOnReadable() }},
	}
	for _, tt := range tests {
		if n := testing.AllocsPerRun(200, tt.do); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", tt.name, n)
		}
	}
}

// echo sends f's bytes back, until stop.
func echo(f *FD) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := make([]byte, 4096)
		for {
			n, err := f.Read(p)
			if err != nil {
				return
			}
			if _, err := f.Write(p[:n]); err != nil {
				return
			}
		}
	}()
	return func() {
		_ = f.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = f.SetReadDeadline(time.Time{})
	}
}
