//go:build invariants

package pool_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/race"
)

func TestUseAfterRelease(t *testing.T) {
	p := pool.New(pool.Config{})
	b := p.Get(10)
	memory := b.Bytes()
	b.Release()
	if bytes.Count(memory, []byte{0xcc}) != len(memory) {
		t.Errorf("released memory: got % x, want cc throughout", memory)
	}
	mustPanic(t, "Bytes of a released buffer", func() { b.Bytes() })
	mustPanic(t, "SetLen of a released buffer", func() { b.SetLen(1) })
}

// getUntilPanic gets buffers until the pool finds one that was written to.
func getUntilPanic(get func()) string {
	for range 100 {
		if message := panicOf(get); message != "" {
			return message
		}
	}
	return ""
}

func TestWriteAfterRelease(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has sync.Pool drop things at random: run it without -race")
	}
	withoutGC(t)
	p := pool.New(pool.Config{})
	b := p.Get(10)
	memory := b.Bytes()
	b.Release()
	memory[3] = 'x'
	if got := getUntilPanic(func() { p.Get(10) }); !strings.Contains(got, "written to after its release") {
		t.Errorf("Get: got the panic %q", got)
	}
	raw := p.GetBytes(10)
	memory = *raw
	p.PutBytes(raw)
	memory[3] = 'x'
	if got := getUntilPanic(func() { p.GetBytes(10) }); !strings.Contains(got, "written to after its release") {
		t.Errorf("GetBytes: got the panic %q", got)
	}
}

func TestPutTwice(t *testing.T) {
	p := pool.New(pool.Config{})
	raw := p.GetBytes(10)
	p.PutBytes(raw)
	mustPanic(t, "put already", func() { p.PutBytes(raw) })
}
