package loop_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore"
	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/loop"
)

// newGroup returns a group that is closed at the end of the test, which waits for its end.
func newGroup(t *testing.T, c loop.Config) *loop.Group {
	t.Helper()
	g, err := loop.NewGroup(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Close()
		<-g.Stopped()
	})
	return g
}

// TestConfig: each field has its effect, and a mistake in one fails.
func TestConfig(t *testing.T) {
	g := newGroup(t, loop.Config{Loops: 3, Strategy: loop.Thread, Name: "workers"})
	if s := g.Stats(); s.Group != "workers" || s.Strategy != "thread" || s.Loops != 3 || g.Len() != 3 {
		t.Errorf("got the group %+v, want 3 loops with the strategy thread and the name workers", s)
	}
	if s := newGroup(t, loop.Config{Loops: 1}).Stats(); s.Group != "group" || s.Strategy != loop.Nested.String() {
		t.Errorf("got the group %+v, want the strategy nested and the name group", s)
	}
	for says, c := range map[string]loop.Config{
		"Config.Loops is -1":                            {Loops: -1},
		"Config.Loops is 1025":                          {Loops: 1025},
		"Config.Strategy is Strategy(2)":                {Strategy: loop.Thread + 1},
		"Config.Pin needs Config.Strategy to be Thread": {Pin: true},
	} {
		g, err := loop.NewGroup(c)
		if g != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, %v, want nil and an error that says %q", c, g, err, says)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "loop: ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%+v: error %q, want one line that begins with the package's name", c, err)
		}
	}
}

// TestStats: the metrics of loop, group and process are those of the engine.
func TestStats(t *testing.T) {
	g := newGroup(t, loop.Config{Loops: 2, Name: "counted"})
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range pair {
		fd, err := (*engine.Loop)(g.Loop(1)).NewFD(socket, engine.Plain)
		if err != nil {
			t.Fatal(err)
		}
		defer fd.Close()
	}
	ran := make(chan struct{})
	g.Loop(1).Submit(func() { close(ran) })
	<-ran

	s := g.Stats()
	if s.Descriptors != 2 || s.Registered != 2 || len(s.PerLoop) != 2 || s.PerLoop[1].Loop != 1 || s.PerLoop[1].Descriptors != 2 {
		t.Errorf("got %+v, want 2 descriptors, both on loop 1", s)
	}
	all := percore.ReadStats().Loops
	if len(all.Groups) != 1 || all.Groups[0].Group != "counted" || all.Descriptors != 2 || all.Registered < 2 {
		t.Errorf("got the process's %+v, want the group counted with 2 descriptors", all)
	}
}

// TestTimer: a timer of a loop fires, can be stopped, and set anew.
func TestTimer(t *testing.T) {
	l := newGroup(t, loop.Config{Loops: 1}).Loop(0)
	fired := make(chan struct{}, 1)
	timer := l.AfterFunc(time.Hour, func() { fired <- struct{}{} })
	if !timer.Stop() {
		t.Error("Stop of a waiting timer: got false, want true")
	}
	if timer.Reset(time.Hour) {
		t.Error("Reset of a stopped timer: got true, want false")
	}
	if !timer.Reset(0) {
		t.Error("Reset of a waiting timer: got false, want true")
	}
	<-fired
	if timer.Stop() {
		t.Error("Stop of a timer that has fired: got true, want false")
	}
}
