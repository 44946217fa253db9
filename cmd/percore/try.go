package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/report"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/try"
)

// tryFlags is the command line of "percore try".
type tryFlags struct {
	program try.Program
	args    []string // of the program
	dir     string   // for what is built; "" for a temporary one
	urls    stringList
	http2   bool
	grpc    stringList
	message string            // of -grpc
	load    scenario.Scenario // what all targets share
	start   time.Duration
	cfg     bench.Config
	verbose bool // show what the program writes
}

const tryHelp = `percore try builds a program twice, as it is and with percore below it, without
touching its files, and says where both binaries lie. With -url it starts each in
turn, loads it, and compares them.

  percore try ./cmd/server                     build both
  percore try -url http://localhost:8080/ ./cmd/server -- -port 8080
  percore try -grpc localhost:50051/helloworld.Greeter/SayHello -message '{"name":"you"}' ./greeter
  percore try -url http://localhost:2015/ github.com/caddyserver/caddy/v2/cmd/caddy@latest -- \
      respond --listen :2015 hello

In the second build net.Listen returns percore's listeners, http.Server serves their
connections with httpadapter, and grpc.Server with grpcadapter.Wrap; with -client
http.DefaultTransport calls with httpadapter.NewTransport. It is for trying percore,
never for production: there you write percore.Listen. A program that needs a
*net.TCPListener, or wraps its listener, gets less or nothing of percore, and the
report says so.

The exit status is 0 if all was built and measured, 1 if not, and 2 if the command
line makes no sense.

Flags:
`

func runTry(args []string, stdout, stderr io.Writer) error {
	f, err := parseTry(args, stdout)
	if err != nil {
		return usageError{err}
	}
	ctx, stop := untilInterrupt()
	defer stop()
	return f.run(ctx, stdout, stderr)
}

func parseTry(args []string, stdout io.Writer) (*tryFlags, error) {
	f := &tryFlags{}
	fs := flag.NewFlagSet("try", flag.ContinueOnError)
	fs.StringVar(&f.program.Tags, "tags", "", "build tags, as the go command takes them")
	fs.StringVar(&f.dir, "dir", "", "an empty or new `directory` for the binaries; without it a temporary one, which\nis kept only if nothing is measured")
	fs.Var(&f.urls, "url", "measure the answers of a GET of this `URL`, http or https, which must be a 200;\nrepeatable")
	fs.BoolVar(&f.http2, "http2", false, "load over HTTP/2, https or in cleartext, instead of HTTP/1.1")
	fs.Var(&f.grpc, "grpc", "measure unary calls of the method at `HOST:PORT/SERVICE/METHOD`; repeatable")
	fs.StringVar(&f.message, "message", "", "the `message` of these calls: JSON, if the program has gRPC's reflection service, or\nprotocol buffers in base64; without it an empty one")
	fs.BoolVar(&f.program.Client, "client", false, "http.DefaultTransport is percore's as well, for what the program asks other servers")
	fs.IntVar(&f.load.Conns, "conns", 64, "connections of the load")
	fs.StringVar(&f.load.Tool, "load", "", "a `command` that loads the program instead of the builtin load: its CPU time is\ncompared (with -url, to know when it is ready)")
	fs.DurationVar(&f.start, "start", 10*time.Second, "how long the program may take until it accepts connections")
	fs.IntVar(&f.load.Idle, "idle", 2000, "idle connections whose memory is measured; 0 for none")
	fs.IntVar(&f.cfg.Rounds, "rounds", benchRounds, "how often each binary is started and measured")
	fs.DurationVar(&f.cfg.Duration, "duration", benchDuration, "length of a measured window")
	fs.DurationVar(&f.cfg.Warmup, "warmup", benchWarmup, "length of the warm-up before each window")
	fs.BoolVar(&f.verbose, "v", false, "show what the program writes")
	if err := parseFlags(fs, args, stdout, tryHelp); err != nil {
		return nil, err
	}
	if fs.NArg() == 0 {
		return nil, errors.New("name a program: percore try ./cmd/server (percore help try explains more)")
	}
	f.program.Package, f.args = fs.Arg(0), fs.Args()[1:]
	if len(f.args) > 0 && f.args[0] == "--" {
		f.args = f.args[1:]
	}
	f.cfg.Settle, f.cfg.Hung = time.Second, benchHung
	f.cfg.Arms = []bench.Arm{{Name: "percore"}, {Name: "net"}}
	switch {
	case f.cfg.Rounds < 1 || f.load.Conns < 1 || f.load.Idle < 0 || f.cfg.Duration <= 0 || f.cfg.Warmup <= 0:
		return nil, errors.New("-rounds and -conns must be 1 or more, -idle 0 or more, -duration and -warmup more than 0")
	case f.load.Tool != "" && len(f.urls)+len(f.grpc) != 1:
		return nil, errors.New("-load needs one -url or -grpc, to know when the program is ready")
	}
	f.load.Memory, f.load.Both = f.load.Idle > 0, true
	return f, f.setTargets()
}

func (f *tryFlags) setTargets() error {
	for _, text := range f.urls {
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("-url %s: want http://HOST:PORT/PATH or https://HOST:PORT/PATH", text)
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		s := f.load
		s.Name, s.App, s.HTTP2, s.TLS = text, scenario.AppHTTP, f.http2, u.Scheme == "https"
		s.Addr, s.Path = net.JoinHostPort(u.Hostname(), port), u.RequestURI()
		if f.http2 {
			s.Name += " over HTTP/2"
		}
		f.cfg.Own = append(f.cfg.Own, s)
	}
	var message []byte
	if !f.messageIsJSON() {
		var err error
		if message, err = base64.StdEncoding.DecodeString(f.message); err != nil {
			return fmt.Errorf("-message: want JSON in braces, or base64: %w", err)
		}
	}
	for _, text := range f.grpc {
		addr, method, ok := strings.Cut(text, "/")
		if _, _, err := net.SplitHostPort(addr); err != nil || !ok || strings.Count(method, "/") != 1 {
			return fmt.Errorf("-grpc %s: want HOST:PORT/SERVICE/METHOD", text)
		}
		s := f.load
		s.Name, s.App, s.Addr, s.Path, s.Message = text, scenario.AppMethod, addr, "/"+method, message
		f.cfg.Own = append(f.cfg.Own, s)
	}
	return nil
}

func (f *tryFlags) messageIsJSON() bool { return strings.HasPrefix(strings.TrimSpace(f.message), "{") }

// encode makes the message in JSON the one that the running program takes.
func (f *tryFlags) encode(ctx context.Context, load *scenario.Scenario) (err error) {
	if load.App == scenario.AppMethod && f.messageIsJSON() {
		load.Message, err = try.Message(ctx, load.Addr, load.Path, f.message)
	}
	return err
}

// run builds the program, and measures it if that was asked for.
func (f *tryFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	dir := f.dir
	switch {
	case dir == "":
		if dir, err = os.MkdirTemp("", "percore-try-"); err != nil {
			return err
		}
		defer func() {
			if err != nil || len(f.cfg.Own) > 0 {
				err = errors.Join(err, os.RemoveAll(dir))
			}
		}()
	default:
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			return errors.Join(err, fmt.Errorf("the directory %s is not empty", dir))
		}
	}
	fmt.Fprintln(stderr, "percore try: building", f.program.Package, "as it is, and with percore below it")
	binaries, err := try.Build(ctx, dir, f.program)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "net      %s\npercore  %s\n", binaries.Net, binaries.Percore)
	if len(f.cfg.Own) == 0 {
		return nil
	}
	return f.measure(ctx, binaries, stdout, stderr)
}

func (f *tryFlags) measure(ctx context.Context, binaries try.Binaries, stdout, stderr io.Writer) error {
	socket := filepath.Join(filepath.Dir(binaries.Percore), "s")
	notes := &tryNotes{socket: socket, served: make(map[string]served)}
	output := io.Writer(&notes.words)
	if f.verbose {
		output = io.MultiWriter(output, stderr)
	}
	for i, path := range []string{binaries.Percore, binaries.Net} {
		f.cfg.Arms[i].Program = &bench.Program{Path: path, Args: f.args, Output: output, Start: f.start, Ready: f.encode}
	}
	with := f.cfg.Arms[0].Program
	with.Env, with.Measured = []string{try.SocketVariable + "=" + socket}, notes.ask
	f.cfg.Progress = func(p bench.Progress) {
		fmt.Fprintf(stderr, "percore try: %s, %d of %d\n", p.Arm, p.Done+1, p.Total)
		_ = os.Remove(socket)
	}
	rep, err := bench.Run(ctx, f.cfg)
	if err == nil {
		err = report.Table(stdout, rep, false)
		notes.print(stdout, f.cfg.Own)
	}
	if err != nil {
		return errors.Join(err, notes.words.why())
	}
	return nil
}

// tryNotes are what percore itself says about its share of the work.
type tryNotes struct {
	socket string
	served map[string]served // by the target
	calls  served            // of http.DefaultTransport, in the last process
	conns  uint64            // that percore has accepted in the last process
	failed error             // the last failure to ask
	others []string
	words  words
}

// served says who has served the requests of a target.
type served struct{ percore, all uint64 }

// ask is a Program's Measured.
func (n *tryNotes) ask(target string, ops int64) {
	state, err := try.Ask(n.socket)
	if err != nil {
		n.failed = err
		return
	}
	s := n.served[target]
	s.percore += sum(&state.Stats, "http", "http1_requests_total") + sum(&state.Stats, "http2", "streams_total")
	s.all += uint64(ops)
	n.served[target], n.others, n.conns = s, state.Others, state.Stats.Accept.Accepted
	made := sum(&state.Stats, "client", "requests_total")
	n.calls = served{made, made + sum(&state.Stats, "client", "declined_total")}
}

// sum returns the sum of an adapter's metrics of one name.
func sum(s *percore.Stats, adapter, name string) (n uint64) {
	for _, a := range s.Adapters {
		for _, m := range a.Metrics {
			if a.Adapter == adapter && m.Name == name {
				n += uint64(m.Value)
			}
		}
	}
	return n
}

// print says which share of the requests percore has served, and why not all.
func (n *tryNotes) print(w io.Writer, targets []scenario.Scenario) {
	if n.failed != nil {
		fmt.Fprintln(w, "how much percore has served is unknown: the program didn't say:", n.failed)
	}
	for _, t := range targets {
		s := n.served[t.Name]
		switch {
		case s.all == 0:
			continue
		case s.percore == 0:
			fmt.Fprintf(w, "%s: percore has served NO request: %s\n", t.Name, n.whoElse())
		case s.percore < s.all:
			fmt.Fprintf(w, "%s: percore has served %.0f%% of the requests\n", t.Name, 100*float64(s.percore)/float64(s.all))
		default:
			fmt.Fprintf(w, "%s: percore has served all requests\n", t.Name)
		}
	}
	if n.conns > 0 {
		fmt.Fprintf(w, "percore has accepted %d connections in the last process\n", n.conns)
	}
	if n.calls.all > 0 {
		fmt.Fprintf(w, "http.DefaultTransport: percore has made %d of the %d calls of the last process\n", n.calls.percore, n.calls.all)
	}
	for _, what := range n.others {
		fmt.Fprintln(w, "the program has a", what)
	}
}

// whoElse says who has served the requests if percore has not.
func (n *tryNotes) whoElse() string {
	if n.conns > 0 && len(n.others) == 0 {
		return "its connections are percore's, and a library other than net/http and grpc-go reads them"
	}
	return "both columns are others' code"
}

// words keeps the end of what a program writes. It is safe for concurrent use.
type words struct {
	mu  sync.Mutex
	end []byte // guarded by mu
}

// wordsMax is how many bytes are kept.
const wordsMax = 4096

func (t *words) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	t.end = t.end[max(0, len(t.end)-wordsMax):]
	return len(p), nil
}

// why returns what a program has said in the end, and what it means if that is known.
func (t *words) why() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := bytes.TrimSpace(t.end)
	if len(said) == 0 {
		return nil
	}
	for _, needs := range []string{"not *net.TCPListener", "not *net.UnixListener", "not *net.TCPConn", "not *net.UnixConn"} {
		if bytes.Contains(said, []byte(needs)) {
			return fmt.Errorf("the program needs package net's own type (%s): it can't run on percore unchanged\n%s", strings.TrimPrefix(needs, "not "), said)
		}
	}
	return fmt.Errorf("the program's last words:\n%s", said)
}
