// Command release prepares a checkout for a release, as docs/RELEASING.md says:
//
//	cd tools && GOWORK=off go run ./release v1.2.3
//
// The modules of the repository then require each other in that version, cmd/percore, which go install
// refuses otherwise, has no replace lines, and CHANGELOG.md has the date.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// modulePath is the path of the root module, with which those of all others begin.
const modulePath = "github.com/percore/percore"

// installed is the module that go install gets.
const installed = "cmd/percore"

// tagged are the folders of the modules that get a tag, each after those that it requires.
var tagged = []string{".", "adapters/grpcadapter", "metrics/prometheus", installed}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./release VERSION")
		os.Exit(2)
	}
	version := os.Args[1]
	if err := prepare("..", version, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Println("When .ci/run has passed and this is committed:")
	for _, dir := range tagged {
		fmt.Println("  git tag", tagOf(dir, version))
	}
}

func tagOf(dir, version string) string {
	if dir == "." {
		return version
	}
	return dir + "/" + version
}

// prepare rewrites all go.mod files below root, and its CHANGELOG.md.
func prepare(root, version string, date time.Time) error {
	if version == "" || semver.Canonical(version) != version {
		return fmt.Errorf("%q is no version such as v1.2.3", version)
	}
	if err := dateChanges(filepath.Join(root, "CHANGELOG.md"), version, date); err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return prepareModule(path, version, filepath.ToSlash(dir) == installed)
	})
}

// dateChanges puts the date of a version in the place of "(unreleased)".
func dateChanges(path, version string, date time.Time) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	heading := fmt.Sprintf("\n## %s (unreleased)\n", version)
	if strings.Count(string(text), heading) != 1 {
		return fmt.Errorf("%s: want one heading %q", path, strings.TrimSpace(heading))
	}
	dated := fmt.Sprintf("\n## %s (%s)\n", version, date.Format(time.DateOnly))
	return os.WriteFile(path, []byte(strings.Replace(string(text), heading, dated, 1)), 0o644)
}

// prepareModule rewrites one go.mod file, without its replace lines if bare is set.
func prepareModule(path, version string, bare bool) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		return err
	}
	for _, r := range file.Require {
		if r.Mod.Path == modulePath || strings.HasPrefix(r.Mod.Path, modulePath+"/") {
			if err := file.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	if bare {
		for _, r := range file.Replace {
			if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
		}
	}
	file.Cleanup()
	if data, err = file.Format(); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
