package pipes_test

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/testnet"
)

// newPool returns a pool that must have closed everything by the end of the test.
func newPool(t *testing.T) *pipes.Pool {
	testnet.NoLeaks(t)
	p := pipes.NewPool()
	t.Cleanup(p.Drain)
	return p
}

func get(t *testing.T, p *pipes.Pool) *pipes.Pipe {
	t.Helper()
	q, err := p.Get()
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return q
}

func wantState(t *testing.T, when string, p *pipes.Pool, idle, open int) {
	t.Helper()
	if gotOpen, gotIdle := p.Count(); gotIdle != idle || gotOpen != open {
		t.Errorf("%s: got %d idle of %d open, want %d of %d", when, gotIdle, gotOpen, idle, open)
	}
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestPipe(t *testing.T) {
	p := newPool(t)
	q := get(t, p)
	defer p.Put(q)
	for _, fd := range []int{q.R, q.W} {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("status flags: got %#x, %v, want non-blocking", flags, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC {
			t.Errorf("descriptor flags: got %#x, %v, want close-on-exec", flags, err)
		}
	}
	if size, err := unix.FcntlInt(uintptr(q.R), unix.F_GETPIPE_SZ, 0); err != nil || size != q.Capacity || size > pipes.Capacity {
		t.Errorf("capacity: got %d, want what the kernel says, %d, %v, and no more than %d", q.Capacity, size, err, pipes.Capacity)
	}
}

func TestPoolKeepsEmptyPipesOnly(t *testing.T) {
	p := newPool(t)
	empty, full := get(t, p), get(t, p)
	if _, err := unix.Write(full.W, []byte("left over")); err != nil {
		t.Fatal(err)
	}
	full.Buffered = 9
	p.Put(full)
	wantState(t, "with bytes in it", p, 0, 1)
	if isOpen(full.R) || isOpen(full.W) {
		t.Error("the pipe with bytes in it is still open")
	}
	p.Put(empty)
	wantState(t, "empty", p, 1, 1)
	if got := get(t, p); got != empty {
		t.Error("Get: got another pipe, want the one in the pool")
	} else {
		p.Put(got)
	}
}

func TestPoolBounds(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 2*pipes.OpenMax+100 {
		t.Skipf("the process may open %d files only", limit.Cur)
	}
	p := newPool(t)
	var lent []*pipes.Pipe
	for range pipes.OpenMax {
		q, err := p.Get()
		if errors.Is(err, syscall.EPERM) {
			for _, q := range lent {
				p.Put(q) // or the next tests may not get a pipe either
			}
			t.Skip("this user may not have so many pipes")
		}
		if err != nil {
			t.Fatalf("Get: %v", err)
		}
		lent = append(lent, q)
	}
	if _, err := p.Get(); err == nil {
		t.Errorf("Get: got pipe number %d, want an error", pipes.OpenMax+1)
	}
	wantState(t, "all lent", p, 0, pipes.OpenMax)
	for _, q := range lent {
		p.Put(q)
	}
	wantState(t, "all back", p, pipes.IdleMax, pipes.IdleMax)
}

// TestPoolTrim tests what the timer does each time it fires, one step after the other.
func TestPoolTrim(t *testing.T) {
	p := newPool(t)
	a, b, c := get(t, p), get(t, p), get(t, p)
	p.Put(a)
	p.Put(b)
	p.Put(c)
	p.Trim()
	wantState(t, "used since the last time", p, 3, 3)
	used := get(t, p)
	if used != c {
		t.Error("Get: got a pipe that was used before another, want the one used last")
	}
	p.Put(used)
	p.Trim()
	wantState(t, "two unused", p, 1, 1)
	if isOpen(a.R) || isOpen(b.R) || !isOpen(c.R) {
		t.Errorf("open: got %t %t %t, want only the one that was used", isOpen(a.R), isOpen(b.R), isOpen(c.R))
	}
	p.Trim()
	wantState(t, "none used", p, 0, 0)
	if p.Timed() {
		t.Error("the timer runs though nothing is idle")
	}
	p.Put(get(t, p))
	if !p.Timed() {
		t.Error("the timer does not run though a pipe is idle")
	}
}

func TestPoolConcurrently(t *testing.T) {
	p := newPool(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				q, err := p.Get()
				if err != nil {
					t.Errorf("Get: %v", err)
					return
				}
				if n, err := unix.Write(q.W, []byte{byte(i)}); n != 1 || err != nil {
					t.Errorf("Write: got %d, %v", n, err)
				}
				q.Buffered = 1
				var b [2]byte
				if j%3 > 0 {
					if n, err := unix.Read(q.R, b[:]); n != 1 || b[0] != byte(i) || err != nil {
						t.Errorf("Read: got %d bytes, %d, %v, want what only this goroutine wrote, %d", n, b[0], err, i)
					}
					q.Buffered = 0
				}
				p.Put(q)
				if j%50 == 0 {
					p.Trim()
				}
			}
		})
	}
	testnet.Within(t, "the goroutines", wg.Wait)
	open, idle := p.Count()
	if idle != open {
		t.Errorf("got %d idle of %d open, want all idle", idle, open)
	}
}
