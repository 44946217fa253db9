package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/report"
)

// The defaults of the flags.
const (
	benchRounds   = 5 // with fewer, a median has no useful interval
	benchDuration = 2 * time.Second
	benchWarmup   = 500 * time.Millisecond
	benchIdle     = 10_000
	benchSettle   = time.Second
	benchHung     = 10 * time.Second
)

// benchQuick has -quick's values, for all flags that the command line doesn't set.
var benchQuick = map[string]string{"rounds": "3", "duration": "250ms", "warmup": "100ms", "idle": "1000", "settle": "300ms"}

// benchFlags is the command line of "percore bench".
type benchFlags struct {
	cfg     bench.Config
	list    bool
	all     bool   // print all metrics
	against string // another build to compare with, or ""
	json    string // the file to write everything to, or ""
}

const benchHelp = `percore bench compares percore with the net package on this machine.

Each sample runs the same server on one of them, in a process of its own; they
take turns. A difference is called better or worse only if the spread of the
rounds leaves no doubt. More in docs/BENCHMARKS.md.

The exit status is 0 if everything that was run was measured, 1 if a scenario
failed, the run was stopped or there was nothing that this machine can run, and 2
if the command line makes no sense.

Flags:
`

const benchArmsUsage = `what to compare, the first with each other (default percore+fastpath,percore,net,
with -against without net); net,net is a control:
net and percore, the listeners alone; percore+fastpath, the adapters' servers of
HTTP/1, HTTP/2 and gRPC, and their clients, and percore+newserver,
grpcadapter.NewServer; both also with +detach, where handlers that wait detach
their answers;
fasthttp, percore+fasthttp (package fasthttp's server) and nginx (where installed),
where the answer is a short text, nginx also as a proxy; nghttpd (where installed),
over HTTP/2; in scenarios of a client fasthttp's;
percore+reactor, event handlers on the loops, and the libraries gnet, nbio and
netpoll (which need percore-peers, see docs/BENCHMARKS.md), for echo, broadcast and
resp`

// benchScaleNote is printed after the table of -scale.
const benchScaleNote = `The load has the processors that the server leaves, and shares them where the server has all.
Figures of a machine with many processors are welcome: run it again with -json FILE, and send the
file to https://github.com/percore/percore/issues, with the kind of machine.`

func runBench(args []string, stdout, stderr io.Writer) error {
	f, err := parseBench(args, stdout)
	if err != nil {
		return usageError{err}
	}
	if f.list {
		listScenarios(stdout, f.cfg)
		return nil
	}
	var out *os.File // it is created before the run spends minutes on measuring
	if f.json != "" {
		if out, err = os.Create(f.json); err != nil {
			return err
		}
	}
	ctx, stop := untilInterrupt()
	defer stop()
	noteProgress(&f.cfg, stderr)
	rep, err := bench.Run(ctx, f.cfg)
	if rep == nil {
		return err
	}
	err = errors.Join(err, f.print(stdout, rep))
	if out != nil {
		err = errors.Join(err, report.JSON(out, rep), out.Close())
	}
	if f.cfg.Scale {
		fmt.Fprintln(stdout, benchScaleNote)
	}
	return err
}

// print writes the report. It fails if another build is better.
func (f *benchFlags) print(w io.Writer, rep *bench.Report) error {
	if f.against == "" {
		return report.Table(w, rep, f.all)
	}
	worse, err := report.Changes(w, rep, f.all)
	if err == nil && worse > 0 {
		err = fmt.Errorf("%d figures are worse than those of %s", worse, f.against)
	}
	return err
}

func parseBench(args []string, stdout io.Writer) (*benchFlags, error) {
	f := &benchFlags{}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	var (
		arms  = fs.String("arms", "", benchArmsUsage)
		run   = fs.String("run", "", "only scenarios whose name matches this `regexp`; without it the core set")
		full  = fs.Bool("full", false, "all scenarios instead of the core set")
		quick = fs.Bool("quick", false, "a first impression in about two minutes: short windows, three rounds, a tenth of\nthe idle connections")
		env   stringList
		exe   stringList
	)
	fs.IntVar(&f.cfg.Rounds, "rounds", benchRounds, "samples per scenario and arm")
	fs.DurationVar(&f.cfg.Duration, "duration", benchDuration, "length of a measured window")
	fs.DurationVar(&f.cfg.Warmup, "warmup", benchWarmup, "length of the warm-up before each window")
	fs.IntVar(&f.cfg.Idle, "idle", benchIdle, "connections of the scenarios about idle ones")
	fs.DurationVar(&f.cfg.Settle, "settle", benchSettle, "how long connections are idle before their memory is measured")
	fs.BoolVar(&f.cfg.SplitCPUs, "split-cpus", false, "half of the processors for the server, the other half for the load, as if they\nwere two machines")
	fs.BoolVar(&f.cfg.Scale, "scale", false, "how the cost of a request changes with the number of processors: servers of\n1, 2, 4, ... of them")
	fs.StringVar(&f.against, "against", "", "compare with another build of this program, at `path`, by what hardly depends on the\nmachine: allocations, memory of idle connections, context switches, and\ninstructions and system calls where perf_event_open is allowed; the exit status is 1 if a\nfigure is worse by more than 2 %; system calls 10, calls of epoll 20, context switches\nand calls of futex 50")
	fs.BoolVar(&f.list, "list", false, "list the scenarios, the core set marked by a *")
	fs.BoolVar(&f.all, "v", false, "print all metrics, not only those a scenario is about")
	fs.Var(&env, "env", "set an environment variable for an arm's servers, `ARM:KEY=VALUE` (* for all arms);\nrepeatable")
	fs.Var(&exe, "exe", "run an arm's servers from another build of this program, `ARM:PATH`; repeatable")
	fs.StringVar(&f.json, "json", "", "write everything, latency histograms included, to this `file`")
	if err := parseFlags(fs, args, stdout, benchHelp); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	f.cfg.Hung = benchHung
	if *quick {
		set := map[string]bool{}
		fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
		for name, value := range benchQuick {
			if !set[name] {
				fs.Set(name, value)
			}
		}
	}
	if *run != "" || *full {
		var err error
		if f.cfg.Match, err = regexp.Compile(*run); err != nil {
			return nil, fmt.Errorf("bad -run: %w", err)
		}
	}
	if f.against != "" {
		if _, err := os.Stat(f.against); err != nil {
			return nil, err
		}
		f.cfg.Counts = true
		*arms = cmp.Or(*arms, "percore+fastpath,percore")
	}
	if err := setArms(&f.cfg, cmp.Or(*arms, "percore+fastpath,percore,net"), env, exe); err != nil {
		return nil, err
	}
	if f.against != "" {
		f.cfg.Arms = bench.AgainstBuild(f.cfg.Arms, f.against)
	}
	return f, f.cfg.Check()
}

func setArms(cfg *bench.Config, list string, env, exe []string) error {
	var err error
	if cfg.Arms, err = bench.ParseArms(list); err != nil {
		return err
	}
	for _, s := range env {
		if err := bench.SetEnv(cfg.Arms, s); err != nil {
			return err
		}
	}
	for _, s := range exe {
		if err := bench.SetExecutable(cfg.Arms, s); err != nil {
			return err
		}
	}
	return bench.FindPrograms(cfg.Arms)
}

func listScenarios(w io.Writer, cfg bench.Config) {
	for _, s := range cfg.AllScenarios() {
		mark := " "
		if s.Core {
			mark = "*"
		}
		if cfg.Match == nil || cfg.Match.MatchString(s.Name) {
			fmt.Fprintln(w, mark, s.Name)
		}
	}
}

// noteProgress makes the run say how far it is: a line for each scenario.
func noteProgress(cfg *bench.Config, stderr io.Writer) {
	cfg.Skipped = func(scenario, why string) {
		fmt.Fprintf(stderr, "percore bench: not running %s: %s\n", scenario, why)
	}
	scenario := ""
	cfg.Progress = func(p bench.Progress) {
		if p.Scenario != scenario {
			scenario = p.Scenario
			fmt.Fprintf(stderr, "%d of %d samples, now %s\n", p.Done, p.Total, p.Scenario)
		}
	}
}

// stringList is a flag that may be given several times.
type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, " ") }
func (l *stringList) Set(s string) error { *l = append(*l, s); return nil }
