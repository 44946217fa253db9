package loop

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// A group ends when it is closed and its last descriptor is, in either order,
// and nothing is left of it then.
func TestGroupEnds(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			config := engine.config
			config.Loops = 3
			g := newTestGroup(t, config)
			var fds []*FD
			for i := range 10 {
				f, _ := newPair(t, g.Loop(i%3), overUnix)
				_ = f.SetDeadline(time.Now().Add(time.Hour))
				fds = append(fds, f)
			}
			reads := make([]<-chan result, len(fds))
			for i, f := range fds {
				reads[i] = start(func() (int, error) { return f.Read(make([]byte, 1)) })
				awaitWaiting(t, &f.rd)
			}
			g.Close()
			g.Close() // once more does nothing
			if !g.Retain() {
				t.Error("Retain with descriptors open: got false, want true")
			}
			for i, f := range fds {
				if n := g.Counts().Descriptors; n != len(fds)-i {
					t.Errorf("descriptors: got %d, want %d", n, len(fds)-i)
				}
				closeFD(t, f)
				await(t, "Read", reads[i])
			}
			select {
			case <-g.Stopped():
				t.Error("the group has ended while a reference was held")
			default:
			}
			g.Release()
			testnet.Receive(t, "the group's end", g.Stopped())
			if g.Retain() {
				t.Error("Retain after the end: got true, want false")
			}
			if _, err := g.Loop(0).NewFD(0, Plain); err != ErrStopped {
				t.Errorf("NewFD after the end: got %v, want %v", err, ErrStopped)
			}
			g.Loop(0).Submit(func() { t.Error("a task is run after the end") })
		})
	}
}

func TestGroupReleasedTooOften(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	g.Close()
	testnet.Receive(t, "the group's end", g.Stopped())
	defer func() {
		if recover() == nil {
			t.Error("Release without a Retain: no panic, want one")
		}
		g.refs.Store(0)
	}()
	g.Release()
}

// References are taken and given up from everywhere, and descriptors are registered, while the group
// comes to its end: it ends once, and never while a reference is held, by a descriptor or otherwise.
func TestGroupUseAgainstEnd(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, g *Group) (goesOn bool){
		"Retain": func(t *testing.T, g *Group) bool {
			if !g.Retain() {
				return false
			}
			defer g.Release()
			select {
			case <-g.Stopped():
				t.Error("the group has ended while a reference was held")
			default:
			}
			done := make(chan struct{})
			g.LeastLoaded().Submit(func() { close(done) })
			testnet.Receive(t, "a task is run", done)
			return true
		},
		"NewFD": func(t *testing.T, g *Group) bool {
			a, b := overUnix.pair(t)
			defer unix.Close(b)
			f, err := g.LeastLoaded().NewFD(a, Plain)
			if err != nil {
				if err != ErrStopped {
					t.Errorf("NewFD: got %v, want %v", err, ErrStopped)
				}
				unix.Close(a)
				return false
			}
			_, _ = unix.Write(b, []byte("x"))
			if n, err := f.Read(make([]byte, 8)); n != 1 || err != nil {
				t.Errorf("Read: got %d, %v, want 1, nil", n, err)
			}
			if err := f.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			return true
		},
	} {
		onEveryConfig(t, 2, func(t *testing.T, config Config) {
			for range 30 {
				g := newTestGroup(t, config)
				var running sync.WaitGroup
				for range 4 {
					rounds := 1 + rand.IntN(20) // without an end there would always be a reference
					running.Go(func() {
						for i := 0; i < rounds && use(t, g); i++ {
						}
					})
				}
				for range rand.IntN(20) {
					runtime.Gosched()
				}
				g.Close()
				testnet.Within(t, "everybody, "+name, running.Wait)
				testnet.Receive(t, "the group's end", g.Stopped())
			}
		})
	}
}

// TestPlace checks Place's table: which loop gets the next descriptor, for the number that each has.
func TestPlace(t *testing.T) {
	set := func(g *Group, loads []int) {
		for i, n := range loads {
			g.loops[i].descriptors.Store(int64(n))
		}
	}
	nested := newTestGroup(t, Config{Loops: 5})
	nested.first = 2 // on any machine
	defer set(nested, make([]int, 5))
	for _, tt := range []struct {
		loads []int
		want  int
	}{
		{[]int{0, 0, 0, 0, 0}, 0},
		{[]int{31, 0, 0, 0, 0}, 0},
		{[]int{32, 0, 0, 0, 0}, 1},
		{[]int{31, 32, 0, 0, 0}, 0}, // descriptors that have left make room again
		{[]int{33, 32, 0, 0, 0}, 1},
		{[]int{32, 33, 0, 0, 0}, 0},
		{[]int{1023, 1024, 0, 0, 0}, 0},
		{[]int{1024, 1024, 0, 0, 0}, 2},
		{[]int{1024, 1024, 1023, 0, 0}, 2},
		{[]int{1024, 1024, 1024, 0, 0}, 3},
		{[]int{1024, 1023, 1024, 0, 0}, 1},
		{[]int{1024, 1024, 1024, 1024, 1023}, 4},
		{[]int{1025, 1025, 1025, 1024, 1025}, 3},
	} {
		set(nested, tt.loads)
		for range 2 * nested.Len() { // wherever it starts to look
			if got := nested.Place().index; got != tt.want {
				t.Errorf("loads %v: got loop %d, want %d", tt.loads, got, tt.want)
			}
		}
	}

	thread := newTestGroup(t, Config{Loops: 3, Strategy: Thread})
	defer set(thread, make([]int, 3))
	set(thread, []int{2, 1, 2})
	if got := thread.Place().index; got != 1 {
		t.Errorf("strategy Thread: got loop %d, want loop 1, the least loaded", got)
	}
}

// TestUnusedLoops checks that a loop without descriptors costs no goroutine, no
// descriptor and next to no memory.
func TestUnusedLoops(t *testing.T) {
	measure := func(loops int) (goroutines, fds int, bytes uint64) {
		g := newTestGroup(t, Config{Loops: loops})
		f, peer := newPair(t, g.Place(), overUnix)
		_ = f.SetDeadline(time.Now().Add(time.Hour))
		_, _ = peer.Write([]byte("x"))
		if n, err := f.Read(make([]byte, 8)); n != 1 || err != nil {
			t.Errorf("Read: got %d, %v, want 1, nil", n, err)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		defer func() {
			closeFD(t, f)
			_ = peer.Close()
			g.Close()
			testnet.Receive(t, "the group's end", g.Stopped())
		}()
		return runtime.NumGoroutine(), testnet.CountFDs(), m.HeapAlloc
	}
	measure(1) // the leftovers of first uses
	const more = 1000
	var bytes, manyBytes uint64
	testnet.Eventually(t, "as many goroutines and descriptors as with one loop", func() bool {
		var goroutines, fds, manyGoroutines, manyFDs int
		goroutines, fds, bytes = measure(1)
		manyGoroutines, manyFDs, manyBytes = measure(1 + more)
		// The goroutine of a group that has just ended may be about to end, and counts once more.
		return manyGoroutines == goroutines && manyFDs == fds
	})
	if per := (int64(manyBytes) - int64(bytes)) / more; per > 1024 {
		t.Errorf("a loop that is not used takes %d bytes, want 1024 at most", per)
	}
}
