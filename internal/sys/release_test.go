package sys

import (
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestNoFaultsInRelease looks at the machine code of this package: without the tag percore_faults,
// no call checks whether it should fail.
func TestNoFaultsInRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no system calls in the package")
	}
	for tags, want := range map[string]bool{"": false, "percore_faults": true} {
		archive := goCommand(t, "list", "-tags", tags, "-export", "-f", "{{.Export}}", ".")
		code := goCommand(t, "tool", "objdump", strings.TrimSpace(archive))
		if !strings.Contains(code, "sys.Recv(SB)") {
			t.Fatalf("tags %q: objdump does not know Recv", tags)
		}
		if got := callOfInjected.MatchString(code); got != want {
			t.Errorf("tags %q: calls of injected: %t, want %t", tags, got, want)
		}
	}
}

// callOfInjected matches how objdump shows a call that the linker has yet to fill in.
var callOfInjected = regexp.MustCompile(`R_CALL\w*:\S*internal/sys\.injected`)

func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go %v: %v", args, err)
	}
	return string(out)
}
