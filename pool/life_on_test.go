//go:build invariants

package pool_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/percore/percore/pool"
)

// These functions are looked for in the stacks of panics and leaks.
//
//go:noinline
func acquireHere(p *pool.Pool) *pool.Buffer { return p.Get(100) }

//go:noinline
func retainHere(b *pool.Buffer) { b.Retain() }

//go:noinline
func releaseHere(b *pool.Buffer) { b.Release() }

// mustMention fails the test unless a text contains all of want.
func mustMention(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// TestUseAfterRelease calls every method on a released buffer, at once and when its
// memory is in use again.
func TestUseAfterRelease(t *testing.T) {
	uses := map[string]func(b *pool.Buffer){
		"Bytes":       func(b *pool.Buffer) { b.Bytes() },
		"Len":         func(b *pool.Buffer) { b.Len() },
		"Cap":         func(b *pool.Buffer) { b.Cap() },
		"Retain":      (*pool.Buffer).Retain,
		"Release":     (*pool.Buffer).Release,
		"Slice":       func(b *pool.Buffer) { b.Slice(0, 0) },
		"SetLen":      func(b *pool.Buffer) { b.SetLen(0) },
		"Grow":        func(b *pool.Buffer) { b.Grow(0) },
		"Write":       func(b *pool.Buffer) { b.Write(nil) },
		"WriteString": func(b *pool.Buffer) { b.WriteString("") },
		"ReadFrom":    func(b *pool.Buffer) { b.ReadFrom(strings.NewReader("")) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, 100, func(t *testing.T, p *pool.Pool, b *pool.Buffer) {
				retainHere(b)
				b.Release()
				releaseHere(b)
				for _, when := range []string{"at once", "when in use again"} {
					message := panicOf(func() { use(b) })
					mustMention(t, when+": "+message, name+" of a released buffer", "retainHere", "releaseHere", "TestUseAfterRelease")
					again, done := kinds()[0].make(p, 100)
					defer done()
					defer again.Release()
				}
			})
		})
	}
}

func TestPanicNamesAcquire(t *testing.T) {
	p := pool.New(pool.Config{})
	b := acquireHere(p)
	b.Release()
	mustMention(t, panicOf(b.Release), "Get\n", "acquireHere", "life_on_test.go:")
}

// TestPoison looks at memory through a slice that it shouldn't have any more.
func TestPoison(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, p *pool.Pool, b *pool.Buffer) {
		stale := b.Bytes()
		copy(stale, pattern(7, 100))
		b.Release()
		if strings.Contains(t.Name(), "slice") {
			return // the memory is still held
		}
		checkBytes(t, "released memory", stale, bytes.Repeat([]byte{0xCC}, 100))
	})
}

// TestWriteAfterRelease: who gets the memory next finds out.
func TestWriteAfterRelease(t *testing.T) {
	for _, where := range []int{0, 99, 100, 1023} {
		if raceEnabled {
			t.Skip("the memory may not come back under the race detector")
		}
		p := pool.New(pool.Config{})
		found := false
		for range 100 { // a collection may take the memory before us
			b := acquireHere(p)
			stale := b.Bytes()[:1024]
			releaseHere(b)
			stale[where] = 1
			var b2 *pool.Buffer
			message := panicOf(func() { b2 = p.Get(1) })
			if message != "" {
				mustMention(t, message, "written to after its release", "acquireHere", "releaseHere")
				found = true
				break
			}
			b2.Release()
		}
		if !found {
			t.Errorf("a write to byte %d after Release was never found", where)
		}
	}
}

// TestWriteAfterReleaseGrowable is the same for what bytebufferpool keeps.
func TestWriteAfterReleaseGrowable(t *testing.T) {
	if raceEnabled {
		t.Skip("the memory may not come back under the race detector")
	}
	p := pool.New(pool.Config{})
	for range 100 {
		g := p.Growable()
		g.WriteString("hello")
		stale := g.Bytes()
		g.Release()
		stale[2] = 1
		message := panicOf(func() { g = p.Growable() })
		if message != "" {
			mustMention(t, message, "growable buffer was written to after its release")
			return
		}
		g.Release()
	}
	t.Error("a write after Release was never found")
}

func TestLeakStacks(t *testing.T) {
	p := pool.New(pool.Config{})
	b := acquireHere(p)
	retainHere(b)
	s := b.Slice(0, 1)
	g := p.Growable()
	raw := p.GetBytes(1)

	leaks := p.Leaks()
	if len(leaks) != 4 {
		t.Errorf("%d leaks, want 4: a buffer, its slice, a growable one, a bare slice: %v", len(leaks), leaks)
	}
	err := p.CheckLeaks()
	if err == nil {
		t.Fatal("CheckLeaks finds nothing")
	}
	mustMention(t, err.Error(), "1024 bytes, references left: 3", "acquireHere", "retainHere", "Slice\n", "Growable\n", "TestLeakStacks")

	s.Release()
	b.Release()
	b.Release()
	g.Release()
	p.PutBytes(raw)
	checkBalanced(t, p)
}

// TestEventsBounded: a buffer that is retained for ever doesn't collect stacks for
// ever, and never forgets who acquired it.
func TestEventsBounded(t *testing.T) {
	p := pool.New(pool.Config{})
	b := acquireHere(p)
	for range 1000 {
		b.Retain()
		b.Release()
	}
	retainHere(b)
	events := p.Leaks()[0].Events
	if len(events) > 40 {
		t.Errorf("%d events are kept, want a few dozen", len(events))
	}
	mustMention(t, events[0].String(), "acquireHere")
	mustMention(t, events[len(events)-1].String(), "retainHere")
	b.Release()
	b.Release()
	checkBalanced(t, p)
}
