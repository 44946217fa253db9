package bench

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/percore/percore/cmd/percore/internal/bench/load"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// Arm is an engine and environment for servers, to be compared with others.
type Arm struct {
	Name       string        `json:"name"`
	Engine     target.Engine `json:"engine"`
	Env        []string      `json:"env,omitempty"`        // KEY=VALUE, added to the harness's
	Executable string        `json:"executable,omitempty"` // "" for the running executable

	// OtherBuildOf names the arm that differs from this one only in Executable; see AgainstBuild.
	OtherBuildOf string `json:"otherBuildOf,omitempty"`

	// The first server of the arm reports this; 0 until then.
	GOMAXPROCS int `json:"gomaxprocs"`
	Loops      int `json:"loops"`
}

// DefaultArms returns the arms of a run if the user doesn't name any: the listener alone and net.
// Over HTTP and gRPC there are also the adapters.
func DefaultArms() []Arm {
	arms, err := ParseArms("percore+fastpath,percore,net")
	if err != nil {
		panic(err) // a constant
	}
	return arms
}

// ParseArms reads a comma-separated list of arms: "net", "net-nomptcp" (which is net with
// GODEBUG=multipathtcp=0) or "percore", with options as in "percore+thread+pin+loops=4".
// "percore+fastpath" has the adapters' servers of HTTP/1, HTTP/2 and gRPC, the latter below an
// unchanged grpc.Server; "percore+newserver" is grpcadapter.NewServer. With "detach" behind either,
// handlers that wait detach their answers; there are no other scenarios of that arm.
// "percore+fastpath+limit" limits the handlers in scenarios of an overload, and is in no others.
// "fasthttp" is the server of package fasthttp on net, and "percore+fasthttp" the same on percore; in
// scenarios of an HTTP client it is fasthttp's client, and "net+bare" and "percore+bare" write and
// read without HTTP, as client and as server. "nginx" is nginx, where it is installed, with an answer
// from its configuration or as a proxy. "nghttpd" is nghttp2's server for HTTP/2. "percore+reactor"
// uses event handlers in place of blocking code; "gnet", "nbio" and "netpoll" are the libraries of
// that name. If an arm is named twice, the second is called "#2" and so on, which makes "net,net" a
// control.
func ParseArms(list string) ([]Arm, error) {
	var arms []Arm
	seen := map[string]int{}
	for name := range strings.SplitSeq(list, ",") {
		arm, err := parseArm(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if seen[arm.Name]++; seen[arm.Name] > 1 {
			arm.Name = fmt.Sprintf("%s#%d", arm.Name, seen[arm.Name])
		}
		arms = append(arms, arm)
	}
	return arms, nil
}

// parseArm reads one arm.
func parseArm(name string) (Arm, error) {
	arm := Arm{Name: name}
	engine, options, _ := strings.Cut(name, "+")
	switch engine {
	case "net":
		arm.Engine.Name = target.EngineNet
	case "net-nomptcp":
		arm.Engine.Name, arm.Env = target.EngineNet, []string{"GODEBUG=multipathtcp=0"}
	case "percore":
		arm.Engine.Name = target.EnginePercore
	case "fasthttp":
		arm.Engine.Name, arm.Engine.FastHTTP = target.EngineNet, true
	case "nginx":
		arm.Engine.Name, arm.Engine.Nginx = target.EngineNet, true
	case "nghttpd":
		arm.Engine.Name, arm.Engine.Nghttpd = target.EngineNet, true
	case "gnet", "nbio", "netpoll":
		arm.Engine.Name, arm.Engine.Peer = target.EngineNet, engine
	default:
		return arm, fmt.Errorf("unknown arm %q: want net, net-nomptcp, fasthttp, nginx, nghttpd, gnet, nbio, netpoll or percore, with options after a +", name)
	}
	if err := arm.setOptions(options); err != nil {
		return arm, err
	}
	e := arm.Engine
	for _, rule := range []struct {
		broken bool
		why    string
	}{
		{e.FastHTTP && e.FastPath, "fasthttp has no adapter"},
		{e.Reactor && (e.FastHTTP || e.FastPath), "reactor is neither an adapter's nor fasthttp's"},
		{
			e.Bare && (engine != "net" && engine != "percore" || e.FastHTTP || e.Reactor || e.NewServer || e.FastPath),
			"bare calls have neither an adapter nor another package",
		},
		{e.NewServer && (e.FastHTTP || e.Reactor || e.FastPath), "newserver is gRPC's, and without another server or adapter"},
		{e.Detach && !e.FastPath && !e.NewServer, "detach goes with fastpath or newserver"},
		{e.Limit && !e.FastPath, "limit goes with fastpath"},
	} {
		if rule.broken {
			return arm, fmt.Errorf("arm %q: %s", name, rule.why)
		}
	}
	return arm, nil
}

// takesPart reports whether the run measures the arm in sc.
func (a *Arm) takesPart(sc Scenario) bool {
	spec := sc.spec
	spec.Engine = a.Engine
	readsHeader := !a.Engine.Bare && !a.Engine.Reactor // and closes the connection if it says so
	return spec.Exists() && (sc.waiting || !a.Engine.Detach) &&
		(sc.overload > 0 || !a.Engine.Limit) && (readsHeader || sc.job.Kind != load.KindHTTPClose) &&
		(sc.job.Odd == "" || readsHeader && !a.Engine.FastHTTP && !a.Engine.Nginx)
}

// setOptions applies an arm's options, which come after the first +.
func (a *Arm) setOptions(options string) error {
	if options == "" {
		return nil
	}
	for option := range strings.SplitSeq(options, "+") {
		if err := a.setOption(option); err != nil {
			return fmt.Errorf("arm %q: %w", a.Name, err)
		}
	}
	return nil
}

// setOption applies one option.
func (a *Arm) setOption(option string) error {
	key, value, _ := strings.Cut(option, "=")
	if a.Engine.Name == target.EngineNet && key != "bare" {
		return fmt.Errorf("unknown option %q: net has bare only", option)
	}
	e := &a.Engine
	switch key {
	case "loops":
		var err error
		e.Loops, err = strconv.Atoi(value)
		return err
	}
	flag, ok := map[string]*bool{
		"fastpath": &e.FastPath, "newserver": &e.NewServer, "detach": &e.Detach, "limit": &e.Limit, "fasthttp": &e.FastHTTP,
		"bare": &e.Bare, "reactor": &e.Reactor, "thread": &e.Thread, "pin": &e.Pin, "leastloaded": &e.LeastLoaded,
		"mptcp": &e.MPTCP, "netbuffers": &e.NetBuffers,
	}[key]
	if !ok {
		return fmt.Errorf("unknown option %q: percore has fastpath, newserver, detach, limit, fasthttp, bare, reactor, thread, pin, leastloaded, mptcp, netbuffers and loops=N", option)
	}
	*flag = true
	return nil
}

// peersProgram runs the servers of other libraries: cmd/percore/peers builds it.
const peersProgram = "percore-peers"

// FindPrograms returns an error that names the first program that an arm needs and that isn't
// installed. It sets the executables of arms whose servers run in another program of this
// repository, unless they are set.
func FindPrograms(arms []Arm) error {
	for i := range arms {
		arm := &arms[i]
		program, how := "", ""
		switch {
		case arm.Engine.Nginx:
			program, how = "nginx", "install nginx"
		case arm.Engine.Nghttpd:
			program, how = "nghttpd", "install nghttpd"
		case arm.Engine.Peer != "" && arm.Executable == "":
			program, how = peersProgram, `go build -o "$(go env GOPATH)/bin/percore-peers" ./cmd/percore/peers`
		default:
			continue
		}
		path, err := exec.LookPath(program)
		if err != nil {
			return fmt.Errorf("arm %s: %w; %s", arm.Name, err, how)
		}
		if arm.Engine.Peer != "" {
			arm.Executable = path
		}
	}
	return nil
}

// SetEnv sets an environment variable for the servers of one arm, or of all arms: "ARM:KEY=VALUE"
// or "*:KEY=VALUE".
func SetEnv(arms []Arm, setting string) error {
	name, kv, ok := strings.Cut(setting, ":")
	if !ok || !strings.Contains(kv, "=") {
		return fmt.Errorf("bad environment %q: want ARM:KEY=VALUE", setting)
	}
	return eachArm(arms, name, func(a *Arm) { a.Env = append(a.Env, kv) })
}

// SetExecutable makes the servers of an arm run another build of this program: "ARM:PATH".
func SetExecutable(arms []Arm, setting string) error {
	name, path, ok := strings.Cut(setting, ":")
	if !ok || path == "" {
		return fmt.Errorf("bad executable %q: want ARM:PATH", setting)
	}
	return eachArm(arms, name, func(a *Arm) { a.Executable = path })
}

// eachArm calls f for the arm with that name, or for all arms if the name is "*".
func eachArm(arms []Arm, name string, f func(*Arm)) error {
	found := false
	for i := range arms {
		if name == "*" || arms[i].Name == name {
			f(&arms[i])
			found = true
		}
	}
	if !found {
		return fmt.Errorf("no arm is called %q", name)
	}
	return nil
}
