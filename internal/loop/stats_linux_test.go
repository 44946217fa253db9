package loop

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestReadStats: groups in use are listed by unique names, and ended ones stay in the sums.
func TestReadStats(t *testing.T) {
	names := func() (all []string) {
		_, groups := ReadStats()
		for _, g := range groups {
			all = append(all, g.Name())
		}
		return all
	}
	has := func(name string) bool { return slices.Contains(names(), name) }
	const name = "TestReadStats"
	before, _ := ReadStats()
	first := newTestGroup(t, Config{Loops: 3, Name: name})
	second := newTestGroup(t, Config{Loops: 1, Name: name})
	f, peer := newPair(t, first.Loop(0), overTCP)
	for range 3 {
		receiveByte(t, f, peer)
	}
	if !has(name) || !has(name+"-2") {
		t.Fatalf("got the groups %q, want %s and %[2]s-2 among them", names(), name)
	}
	s := first.Counts()
	started := 0
	first.EachCounts(func(loop int, n Counts) {
		if started++; loop != 0 || n.Registered != s.Registered || n.Events < s.Events || n.Wakeups < s.Wakeups { // it goes on
			t.Errorf("loop %d: got %+v, want only the first, with all counts: %+v", loop, n, s)
		}
	})
	if started != 1 {
		t.Errorf("got %d loops started, want 1", started)
	}
	if s.Descriptors != 1 || s.Registered != 1 || s.Events < 3 || s.Wakeups == 0 {
		t.Errorf("got %+v, want 1 descriptor, 3 events, a wake-up", s)
	}
	closeFD(t, f)
	_ = peer.Close()
	first.Close()
	testnet.Receive(t, "the group's end", first.Stopped())
	if has(name) || !has(name+"-2") {
		t.Errorf("got the groups %q after the first ended, want the second only", names())
	}
	after, _ := ReadStats()
	if after.Registered != before.Registered+1 || after.Events < before.Events+3 || after.Descriptors != before.Descriptors {
		t.Errorf("got %+v, then %+v after the group ended, want the sums with its work", before, after)
	}
	newTestGroup(t, Config{Name: name})
	if !has(name) {
		t.Errorf("got the groups %q, want the first's name used again", names())
	}
	second.Close()
}

// receiveByte sends a byte from peer to f.
func receiveByte(t *testing.T, f *FD, peer net.Conn) {
	t.Helper()
	if _, err := peer.Write([]byte{1}); err != nil {
		t.Fatalf("Write: %v", err)
	}
	if n, err := f.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Fatalf("Read: got %d, %v, want 1, nil", n, err)
	}
}

// TestReadStatsConcurrently: the counters never go back, whatever begins and ends meanwhile.
func TestReadStatsConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	ended := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for range 30 {
				g, err := NewGroup(Config{Loops: 2})
				if err != nil {
					t.Errorf("NewGroup: %v", err)
					return
				}
				var ran sync.WaitGroup
				ran.Add(2)
				g.Loop(0).Submit(ran.Done)
				g.Loop(1).Submit(ran.Done)
				ran.Wait()
				g.Close()
				<-g.Stopped()
			}
		})
	}
	go func() { wg.Wait(); close(ended) }()
	for last, _ := ReadStats(); ; {
		n, _ := ReadStats()
		if n.Wakeups < last.Wakeups || n.Events < last.Events || n.Registered < last.Registered || n.CallbackTime < last.CallbackTime || n.LongestPass < last.LongestPass {
			t.Fatalf("got %+v, then %+v, want counters that only grow", last, n)
		}
		last = n
		select {
		case <-ended:
			return
		default:
			runtime.Gosched()
		}
	}
}

// TestSlowPasses: callbacks and tasks are timed, and nothing else is.
func TestSlowPasses(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		f, peer := newPair(t, g.Loop(0), overTCP)
		receiveByte(t, f, peer)
		if n := g.Counts(); n.CallbackTime != 0 {
			t.Errorf("got %+v before the first callback, want no time in callbacks", n)
		}
		called := make(chan struct{})
		if err := f.OnReadable(func(error) {
			time.Sleep(SlowPass)
			g.Loop(0).Submit(func() { close(called) })
		}); err != nil {
			t.Fatalf("OnReadable: %v", err)
		}
		if _, err := peer.Write([]byte{1}); err != nil {
			t.Fatalf("Write: %v", err)
		}
		testnet.Receive(t, "the callback", called)
		eventually(t, "the pass is counted", func() bool {
			n := g.Counts()
			return n.SlowPasses > 0 && n.LongestPass >= SlowPass && n.CallbackTime >= n.LongestPass
		})
		closeFD(t, f)
	})
}

// TestDeadlineStats: a deadline that comes is counted, one that is taken away is not.
func TestDeadlineStats(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, _ := newPair(t, g.Loop(0), overTCP)
	ahead := uint64(0) // deadlines that had not passed when they were set: on a busy machine, not all
	for range 3 {
		at := time.Now().Add(time.Millisecond)
		if err := f.SetReadDeadline(at); err != nil {
			t.Fatal(err)
		}
		if time.Now().Before(at) {
			ahead++
		}
		if _, err := f.Read(make([]byte, 1)); err != errTimeout {
			t.Fatalf("Read: got %v, want a timeout", err)
		}
	}
	if err := f.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	// A Read that begins as its deadline comes may end before that is counted.
	eventually(t, "the deadlines are counted", func() bool { return g.Counts().Deadlines >= ahead })
	if n := g.Counts().Deadlines; n > 3 {
		t.Errorf("got %d deadlines, want 3 at most", n)
	}
	closeFD(t, f)
}

// TestProfilerLabels: a loop's goroutine has the loop's labels, however it came about, and the
// goroutines that callbacks start have none.
func TestProfilerLabels(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			config := engine.config
			config.Loops, config.Name = 2, "labelled"
			var g *Group
			pprof.Do(context.Background(), pprof.Labels("maker", "user"), func(context.Context) { g = newTestGroup(t, config) })
			labels := func(loop int) string { return fmt.Sprintf(`{"percore_group":"labelled", "percore_loop":"%d"}`, loop) }
			for i := range g.Len() {
				release := make(chan struct{})
				g.Loop(i).Submit(func() {
					go labelledChild(release)
					runtime.Goexit() // another goroutine goes on as the loop's
				})
				eventually(t, "the loop's labels", func() bool { return labelsOf(t, ".(*Loop).run")[labels(i)] })
				eventually(t, "a callback's goroutine", func() bool { return len(labelsOf(t, "labelledChild")) > 0 })
				if got := labelsOf(t, "labelledChild"); len(got) != 1 || !got[""] {
					t.Errorf("a goroutine that a callback started: got the labels %v, want none", got)
				}
				// A goroutine that has not run yet has those of the goroutine that started it.
				eventually(t, "no label of the group's maker", func() bool { return !labelsOf(t, ".(*Loop).run")[`{"maker":"user"}`] })
				close(release)
				eventually(t, "the goroutine's end", func() bool { return len(labelsOf(t, "labelledChild")) == 0 })
			}
		})
	}
}

func labelledChild(release chan struct{}) { <-release }

// labelsOf returns the labels of the goroutines with a function in their stacks; "" for none.
func labelsOf(t *testing.T, function string) map[string]bool {
	t.Helper()
	var dump strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&dump, 1); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, stack := range strings.Split(dump.String(), "\n\n") {
		if !strings.Contains(stack, function) {
			continue
		}
		_, after, _ := strings.Cut(stack, "# labels: ")
		labels, _, _ := strings.Cut(after, "\n")
		found[labels] = true
	}
	return found
}
