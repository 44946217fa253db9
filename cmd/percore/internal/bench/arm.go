package bench

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// Arm is an engine and environment for servers, to be compared with others.
type Arm struct {
	Name       string          `json:"name"`
	Engine     scenario.Engine `json:"engine"`
	Env        []string        `json:"env,omitempty"`        // KEY=VALUE, added to the harness's
	Executable string          `json:"executable,omitempty"` // "" for the running executable

	// Program, if not nil, is the server under test. Otherwise it is one of package target's.
	Program *Program `json:"-"`

	// OtherBuildOf names the arm that differs from this one only in Executable; see AgainstBuild.
	OtherBuildOf string `json:"otherBuildOf,omitempty"`

	GOMAXPROCS int `json:"gomaxprocs"` // 0 until the first server of the arm reports it
}

// ParseArms reads a comma-separated list of the names of Engines. If an arm is named twice, the second
// is called "#2" and so on, which makes "net,net" a control.
func ParseArms(list string) ([]Arm, error) {
	var arms []Arm
	seen := map[string]int{}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		engine, err := scenario.EngineNamed(name)
		if err != nil {
			return nil, err
		}
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s#%d", name, seen[name])
		}
		arms = append(arms, Arm{Name: name, Engine: engine})
	}
	return arms, nil
}

// FindPrograms returns an error that names the first program that an arm needs and that isn't
// installed. It sets the executables of arms whose servers run in another program of this
// repository, unless they are set.
func FindPrograms(arms []Arm) error {
	for i := range arms {
		arm := &arms[i]
		program, how := arm.Engine.Kind, "install "+arm.Engine.Kind
		switch {
		case arm.Engine.Installed():
		case arm.Engine.Peer() && arm.Executable == "":
			program, how = "percore-peers", `go build -o "$(go env GOPATH)/bin/percore-peers" ./cmd/percore/peers`
		default:
			continue
		}
		path, err := exec.LookPath(program)
		if err != nil {
			return fmt.Errorf("arm %s: %w; %s", arm.Name, err, how)
		}
		if arm.Engine.Peer() {
			arm.Executable = path
		}
	}
	return nil
}

// SetEnv sets an environment variable for the servers of one arm, or of all arms: "ARM:KEY=VALUE"
// or "*:KEY=VALUE".
func SetEnv(arms []Arm, setting string) error {
	return set(arms, setting, "ARM:KEY=VALUE", func(a *Arm, kv string) { a.Env = append(a.Env, kv) })
}

// SetExecutable makes the servers of an arm run another build of this program: "ARM:PATH".
func SetExecutable(arms []Arm, setting string) error {
	return set(arms, setting, "ARM:PATH", func(a *Arm, path string) { a.Executable = path })
}

// set calls f for the arm that a setting names, or for all arms if the name is "*".
func set(arms []Arm, setting, form string, f func(a *Arm, value string)) error {
	name, value, _ := strings.Cut(setting, ":")
	if value == "" || strings.Contains(form, "=") && !strings.Contains(value, "=") {
		return fmt.Errorf("bad setting %q: want %s", setting, form)
	}
	found := false
	for i := range arms {
		if name == "*" || arms[i].Name == name {
			f(&arms[i], value)
			found = true
		}
	}
	if !found {
		return fmt.Errorf("no arm is called %q", name)
	}
	return nil
}
