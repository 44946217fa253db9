package loop_test

import (
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	g := newGroup(t, loop.Config{Loops: 1})
	l := g.Loop(0)
	timer := l.AfterFunc(time.Hour, func() {})
	defer timer.Stop()
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Group.Loop":     {Func: g.Loop},
		"Loop.AfterFunc": {Func: l.AfterFunc},
		"Loop.Submit":    {Func: l.Submit},
		"NewGroup": {Func: func(c loop.Config) error {
			g, err := loop.NewGroup(c)
			if err == nil {
				g.Close()
				<-g.Stopped()
			}
			return err
		}},
		"Timer.Reset": {Func: timer.Reset},
	})
	testnet.CheckNegatives(t, func(c loop.Config) error {
		_, err := loop.NewGroup(c)
		return err
	}, "")
}
