package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestPreviousRelease: the modules of the release before that importers combine with percore compile
// with this percore. It can't be the other way around, since a module requires percore of its own
// release. PERCORE_PREVIOUS names another commit than that of the newest tag.
func TestPreviousRelease(t *testing.T) {
	tr := loadTree(t)
	previous := os.Getenv("PERCORE_PREVIOUS")
	if previous == "" {
		tag, err := exec.Command("git", "-C", tr.root, "describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^").Output()
		if err != nil {
			t.Skip("there is no release before this commit; PERCORE_PREVIOUS=COMMIT compares with another one")
		}
		previous = strings.TrimSpace(string(tag))
	}
	old := checkOut(t, tr.root, previous)
	for _, module := range []string{"adapters/grpcadapter", "metrics/prometheus"} {
		buildWith(t, filepath.Join(old, module), tr.root)
	}
}

// checkOut writes a commit's files into a temporary folder. The repository's own work tree and index
// stay as they are.
func checkOut(t *testing.T, repository, commit string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("git", "--work-tree="+dir, "checkout", commit, "--", ".")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(t.TempDir(), "index"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git checkout %s: %v: %s", commit, err, out)
	}
	return dir
}

// buildWith compiles the module in dir with percore from another folder.
func buildWith(t *testing.T, dir, percore string) {
	t.Helper()
	temp := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		testnet.CopyFile(t, filepath.Join(dir, name), filepath.Join(temp, name))
	}
	mod := filepath.Join(temp, "go.mod")
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod -modfile=" + mod}
	testnet.GoCommand(t, env, "-C", dir, "mod", "edit", "-replace="+modulePath+"="+percore, mod)
	testnet.GoCommand(t, env, "-C", dir, "build", "./...")
}
