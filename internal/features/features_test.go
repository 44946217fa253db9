package features_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	testnet.Main(m, testnet.WithChild("features", func() { fmt.Print(on(features.All)) }))
}

// on lists the enabled features.
func on(features []*features.Feature) string {
	var names []string
	for _, f := range features {
		if f.On() {
			names = append(names, f.Name())
		}
		if f.On() != (f.WhyOff() == "") {
			names = append(names, "on and off: "+f.WhyOff())
		}
	}
	return strings.Join(names, " ")
}

func TestSettings(t *testing.T) {
	const all = "sendfile splice writev rawsyscall directwait"
	for _, c := range []struct{ settings, want, unknown string }{
		{"", all, ""},
		{"splice=0", "sendfile writev rawsyscall directwait", ""},
		{"splice=0,sendfile=0", "writev rawsyscall directwait", ""},
		{"sendfile=0,splice=0,writev=0,rawsyscall=0,directwait=0", "", ""},
		{"splice=1", all, ""},
		{"splice=0,splice=1", all, ""},
		{"splice=1,splice=0", "sendfile writev rawsyscall directwait", ""},
		{"splice", all, "splice"},
		{"splice=", all, "splice="},
		{"splice=false", all, "splice=false"},
		{"splice=00", all, "splice=00"},
		{"SPLICE=0", all, "SPLICE=0"},
		{"engine=net", all, ""},
		{"engine=percore,splice=0", "sendfile writev rawsyscall directwait", ""},
		{"engine=0", all, "engine=0"},
		{"engine", all, "engine"},
		{" splice=0", all, " splice=0"}, // GODEBUG doesn't trim spaces either
		{"future=0,writev=0,,=,a=b=c", "sendfile splice rawsyscall directwait", "future=0,=,a=b=c"},
	} {
		t.Run(c.settings, func(t *testing.T) {
			list := features.NewFeatures()
			unknown := strings.Join(features.Apply(c.settings, list), ",")
			if got := on(list); got != c.want || unknown != c.unknown {
				t.Errorf("PERCOREDEBUG=%s: got on: %q, unknown: %q, want %q, %q", c.settings, got, unknown, c.want, c.unknown)
			}
		})
	}
}

func TestEngineIsNet(t *testing.T) {
	for settings, want := range map[string]bool{
		"":                          false,
		"splice=0":                  false,
		"engine=net":                true,
		"splice=0,engine=net":       true,
		"engine=net,engine=percore": false,
		"engine=percore,engine=net": true,
		"engine=network":            false,
	} {
		t.Setenv("PERCOREDEBUG", settings)
		if got := features.EngineIsNet(); got != want {
			t.Errorf("%q: got %t, want %t", settings, got, want)
		}
	}
}

func TestRefuse(t *testing.T) {
	f := features.NewFeatures()[0]
	f.Refuse(syscall.ENOSYS)
	f.Refuse(syscall.EPERM)
	if want := "refused by the kernel: " + syscall.ENOSYS.Error(); f.On() || f.WhyOff() != want {
		t.Errorf("refused: got on %t, %q, want off, %q: the first reason stays", f.On(), f.WhyOff(), want)
	}
	restore := f.Force(true)
	if !f.On() {
		t.Errorf("forced on: got off, %q", f.WhyOff())
	}
	again := f.Force(false)
	if want := "switched off"; f.On() || f.WhyOff() != want {
		t.Errorf("forced off: got on %t, %q, want off, %q", f.On(), f.WhyOff(), want)
	}
	again()
	restore()
	if f.On() || !strings.Contains(f.WhyOff(), syscall.ENOSYS.Error()) {
		t.Errorf("restored: got on %t, %q, want off as before", f.On(), f.WhyOff())
	}
}

// TestEnvironment sets the variable in another process, as a user does.
func TestEnvironment(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("all features are Linux's")
	}
	for _, c := range []struct {
		settings, want string
		warnings       int
	}{
		{"splice=0,writev=0", "sendfile rawsyscall directwait", 0},
		{"splice=0,future=0,write=0,writev=0", "sendfile rawsyscall directwait", 1},
	} {
		child := testnet.StartChild(t, "features", "PERCOREDEBUG="+c.settings)
		out, err := io.ReadAll(child.Stdout)
		if got := string(out); got != c.want || err != nil {
			t.Errorf("on in a process with %s: got %q, %v, want %q", c.settings, got, err, c.want)
		}
		if err := child.Wait(); err != nil {
			t.Error(err)
		}
		got := child.Stderr()
		if strings.Count(got, "\n") != c.warnings || c.warnings > 0 && !strings.Contains(got, "unknown=\"future=0,write=0\"") {
			t.Errorf("standard error with %s: got %q, want %d lines that name the unknown settings", c.settings, got, c.warnings)
		}
	}
}
