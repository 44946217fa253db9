// Command fuzztargets lists the fuzz targets of the repository, so that no list of them has to be kept:
//
//	cd tools && GOWORK=off go run ./fuzztargets [-json]
//
// A line is a package's import path and the name of a target. With -json it prints an array for a matrix
// of GitHub's workflows, whose elements have the fields package, target and name.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// modulePath is the path of the root module, with which those of all others begin.
const modulePath = "github.com/percore/percore"

// fuzzTarget is one of them.
type fuzzTarget struct {
	Package string `json:"package"`
	Target  string `json:"target"`
	Name    string `json:"name"` // unique, for files and jobs
}

func main() {
	asJSON := flag.Bool("json", false, "print a JSON array")
	flag.Parse()
	targets, err := find("..")
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzztargets:", err)
		os.Exit(1)
	}
	if *asJSON {
		json.NewEncoder(os.Stdout).Encode(targets)
		return
	}
	for _, t := range targets {
		fmt.Println(t.Package, t.Target)
	}
}

var declaration = regexp.MustCompile(`^func (Fuzz[A-Z]\w*)\(\w+ \*testing\.F\)`)

// find returns the fuzz targets in the test files below root.
func find(root string) (targets []fuzzTarget, err error) {
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && name != root) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			found := declaration.FindStringSubmatch(lines.Text())
			if found == nil {
				continue
			}
			dir := filepath.ToSlash(dir)
			targets = append(targets, fuzzTarget{
				Package: path.Join(modulePath, dir),
				Target:  found[1],
				Name:    strings.ReplaceAll(path.Join(dir, found[1]), "/", "-"),
			})
		}
		return lines.Err()
	})
	return targets, err
}
