package pool_test

import (
	"testing"

	"github.com/percore/percore"
	engine "github.com/percore/percore/internal/pool"
	"github.com/percore/percore/pool"
)

// TestOnePool: the public functions and percore itself use one pool and one set of metrics.
func TestOnePool(t *testing.T) {
	before := percore.ReadStats().Pool
	b := pool.Get(100)
	b.SetLen(200)
	if got := (*engine.Buffer)(b).Bytes(); len(got) != 200 || &got[0] != &b.Bytes()[0] {
		t.Errorf("the same buffer inside: got %d bytes at %p, want 200 at %p", len(got), &got[0], &b.Bytes()[0])
	}
	got := percore.ReadStats().Pool
	if got != pool.Stats(engine.Default().Stats()) {
		t.Errorf("got the metrics %+v, want those of percore's own pool, %+v", got, engine.Default().Stats())
	}
	if got.Gets != before.Gets+1 || got.BuffersInUse != before.BuffersInUse+1 {
		t.Errorf("with a buffer in use: got %+v, want one Get and one buffer more than %+v", got, before)
	}
	b.Retain()
	b.Release()
	if err := pool.CheckLeaks(); err == nil {
		t.Error("CheckLeaks with a buffer in use: got nil, want an error")
	}
	b.Release()
}

// TestConfigure: the limit arrives.
func TestConfigure(t *testing.T) {
	pool.Configure(pool.Config{KeptBytesMax: 12345})
	defer pool.Configure(pool.Config{})
	if got := engine.ReadStats().KeptBytesMax; got != 12345 {
		t.Errorf("got a limit of %d bytes inside, want 12345", got)
	}
}
