// Command harness compiles a fuzz target of the repository to an archive for libFuzzer:
//
//	cd tools && GOWORK=off go run ./oss-fuzz/harness -o FuzzWheel.a PACKAGE FuzzWheel
//
// The tests of the package become a part of it, in an overlay of the checkout, with a type F of its own
// in the place of testing.F. So a target may use whatever the tests of its package have: other files,
// benchmarks, unexported names, a real testing.T. The entry is LLVMFuzzerTestOneInput.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// modulePath is the path of the root module, with which those of all others begin.
const modulePath = "github.com/percore/percore"

// runner is the source of package ossfuzz. It is no Go file here, since it belongs to the root module.
//
//go:embed ossfuzz/f.go.txt
var runner []byte

func main() {
	output := flag.String("o", "", "the archive")
	instrument := flag.Bool("libfuzzer", true, "instrument the code for libFuzzer")
	flag.Parse()
	if flag.NArg() != 2 || *output == "" {
		fmt.Fprintln(os.Stderr, "usage: harness -o FILE PACKAGE TARGET")
		os.Exit(2)
	}
	if err := build(flag.Arg(0), flag.Arg(1), *output, *instrument); err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		os.Exit(1)
	}
}

var (
	clause   = regexp.MustCompile(`(?m)^package (\w+)$`)
	external = regexp.MustCompile(`(?m)^package \w+_test$`)
)

func build(pkg, target, output string, instrument bool) error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if output, err = filepath.Abs(output); err != nil {
		return err
	}
	dir := filepath.Join(root, strings.TrimPrefix(pkg, modulePath))
	temp, err := os.MkdirTemp("", "harness")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)

	o := overlay{temp: temp, Replace: make(map[string]string)}
	if err := o.add(filepath.Join(root, "internal", "ossfuzz", "f.go"), runner); err != nil {
		return err
	}
	tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return err
	}
	in := pkg // the package that has the target after all
	for _, name := range tests {
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, "ossfuzz_"+strings.TrimSuffix(filepath.Base(name), "_test.go")+".go")
		if external.Match(source) {
			to = filepath.Join(dir, "ossfuzz_external", filepath.Base(to))
			source = external.ReplaceAll(source, []byte("package ossfuzz_external"))
			if bytes.Contains(source, []byte("func "+target+"(")) {
				in = pkg + "/ossfuzz_external"
			}
		}
		if bytes.Contains(source, []byte("*testing.F")) {
			source = bytes.ReplaceAll(source, []byte("*testing.F"), []byte("*ossfuzz.F"))
			source = clause.ReplaceAll(source, []byte("package $1\n\nimport \""+modulePath+"/internal/ossfuzz\""))
		}
		if err := o.add(to, source); err != nil {
			return err
		}
	}
	// cgo works in the folder of its package, so this one can't be in the overlay.
	main := filepath.Join(dir, "ossfuzz_main")
	if err := os.Mkdir(main, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(main)
	source := fmt.Appendf(nil, entry, modulePath, in, target)
	if err := os.WriteFile(filepath.Join(main, "main.go"), source, 0o644); err != nil {
		return err
	}
	file, err := o.write()
	if err != nil {
		return err
	}
	args := []string{"build", "-overlay=" + file, "-buildmode=c-archive", "-o", output}
	if instrument {
		args = append(args, "-tags=libfuzzer", "-gcflags=all=-d=libfuzzer") // the tag is for package runtime
	}
	cmd := exec.Command("go", append(args, "./ossfuzz_main")...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"), "CGO_ENABLED=1")
	return cmd.Run()
}

// entry is the program's source.
const entry = `package main

// #include <stddef.h>
import "C"

import (
	"unsafe"

	"%[1]s/internal/ossfuzz"
	target %[2]q
)

//export LLVMFuzzerTestOneInput
func LLVMFuzzerTestOneInput(data *C.char, size C.size_t) C.int {
	ossfuzz.Run(target.%[3]s, C.GoBytes(unsafe.Pointer(data), C.int(size)))
	return 0
}

func main() {}
`

// overlay has files that the go command is to see (go help build, -overlay).
type overlay struct {
	temp    string
	Replace map[string]string
}

func (o *overlay) add(name string, data []byte) error {
	to := filepath.Join(o.temp, fmt.Sprint(len(o.Replace))+".go")
	o.Replace[name] = to
	return os.WriteFile(to, data, 0o644)
}

func (o *overlay) write() (file string, err error) {
	data, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	file = filepath.Join(o.temp, "overlay.json")
	return file, os.WriteFile(file, data, 0o644)
}
