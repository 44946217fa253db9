package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/load"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// The available load generators.
const (
	ClientBuiltin = "builtin"
	ClientWrk     = "wrk"
	ClientH2load  = "h2load"
)

// Clients returns the names of all load generators.
func Clients() []string { return []string{ClientBuiltin, ClientWrk, ClientH2load} }

// CheckClient reports whether the load generator of that name can be used here.
func CheckClient(name string) error {
	if !slices.Contains(Clients(), name) {
		return fmt.Errorf("unknown client %q: want one of %s", name, strings.Join(Clients(), ", "))
	}
	if name == ClientBuiltin {
		return nil
	}
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("client %s is not installed: %w", name, err)
	}
	return nil
}

// clientCan returns the reason why a load generator can't serve sc, or nil.
func clientCan(client string, sc Scenario) error {
	if client == ClientBuiltin {
		return nil
	}
	plain := sc.job == load.Job{Kind: load.KindHTTP, Conns: sc.job.Conns, Path: sc.job.Path, Browser: sc.job.Browser}
	plain = plain && sc.spec.App != target.AppUpload
	if client == ClientH2load && sc.job.Kind == load.KindHTTP2 {
		plain = sc.job.Payload == 0
	}
	if !plain || sc.idle > 0 || sc.open() {
		return fmt.Errorf("%s can't make this load", client)
	}
	return nil
}

// external is a load generator from another project, run once per phase. It opens and closes its
// connections within the phase. So operations that are still open at the end of the phase, at most
// one per connection, cost the server something but don't count.
type external struct {
	client string
	on     processors
	job    load.Job
}

func newExternal(client string, on processors, job load.Job) *external {
	return &external{client, on, job}
}

func (g *external) stop() {}

// threads is how many threads an external client uses, if it has enough connections. It is small
// because the client shares the machine with the server.
const threads = 2

func (g *external) phase(ctx context.Context, ph load.Phase) (observed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ph.Duration+2*ph.Grace,
		fmt.Errorf("%s did not end %v after its time", g.client, 2*ph.Grace))
	defer cancel()
	cmd := exec.CommandContext(ctx, g.client, g.args(ph)...)
	cmd.SysProcAttr = childAttr()
	began := time.Now()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := startOn(g.on, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	out, elapsed := output.String(), time.Since(began)
	if ctx.Err() != nil {
		return observed{}, context.Cause(ctx)
	}
	if err != nil {
		return observed{}, fmt.Errorf("%s: %w: %s", g.client, err, lastLine(out))
	}
	parse := parseWrk
	if g.client == ClientH2load {
		parse = parseH2load
	}
	o, err := parse(out)
	if err != nil {
		return observed{}, fmt.Errorf("%s: %w", g.client, err)
	}
	if o.elapsed == 0 {
		o.elapsed = elapsed
	}
	o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return o, nil
}

// args returns the command line for a phase. Both clients only accept whole seconds.
func (g *external) args(ph load.Phase) []string {
	seconds := func(d time.Duration) string { return strconv.Itoa(max(1, int(d.Round(time.Second)/time.Second))) }
	conns, t := strconv.Itoa(g.job.Conns), strconv.Itoa(min(threads, g.job.Conns))
	url := scheme(g.job.TLS) + "://" + g.job.Addr + "/" + strings.TrimPrefix(g.job.Path, "/")
	args := []string{"-c", conns, "-t", t}
	fields := load.BrowserHeader
	switch {
	case g.client == ClientWrk:
		args = append(args, "-d", seconds(ph.Duration)+"s", "--timeout", seconds(ph.Grace)+"s", "--latency")
	case g.job.Kind == load.KindHTTP2:
		args = append(args, "-m", strconv.Itoa(max(1, g.job.Streams)), "-D", seconds(ph.Duration))
		if bits := strconv.Itoa(bits.Len(uint(g.job.Window))); g.job.Window > 0 {
			args = append(args, "-w", bits, "-W", bits)
		}
		fields = load.BrowserHeader2()
	default:
		args = append(args, "--h1", "-D", seconds(ph.Duration))
	}
	if g.job.Browser {
		for _, field := range fields { // both take -H
			args = append(args, "-H", field)
		}
	}
	return append(args, url)
}

var (
	wrkTotal    = regexp.MustCompile(`(\d+) requests in ([\d.]+\w+),`)
	wrkQuantile = regexp.MustCompile(`(?m)^\s+(50|90|99)%\s+([\d.]+\w+)`)
	wrkErrors   = regexp.MustCompile(`(?m)^\s*(Socket errors: .*|Non-2xx or 3xx responses: .*)$`)

	h2loadTotal  = regexp.MustCompile(`finished in ([\d.]+\w+),`)
	h2loadCount  = regexp.MustCompile(`requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout`)
	h2loadStatus = regexp.MustCompile(`status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx`)
)

// parseWrk parses the output of wrk.
func parseWrk(out string) (observed, error) {
	if m := wrkErrors.FindStringSubmatch(out); m != nil {
		return observed{}, errors.New(m[1])
	}
	total := wrkTotal.FindStringSubmatch(out)
	if total == nil {
		return observed{}, fmt.Errorf("can't read its output: %s", lastLine(out))
	}
	o := observed{metrics: map[string]float64{}}
	var err error
	if o.ops, err = strconv.ParseInt(total[1], 10, 64); err != nil {
		return observed{}, err
	}
	if o.elapsed, err = time.ParseDuration(total[2]); err != nil {
		return observed{}, err
	}
	for _, m := range wrkQuantile.FindAllStringSubmatch(out, -1) {
		d, err := time.ParseDuration(m[2])
		if err != nil {
			return observed{}, err
		}
		o.metrics["p"+m[1]+"-ns"] = float64(d)
	}
	return o, nil
}

// parseH2load parses the output of h2load, which doesn't have quantiles.
func parseH2load(out string) (observed, error) {
	total, count, status := h2loadTotal.FindStringSubmatch(out), h2loadCount.FindStringSubmatch(out), h2loadStatus.FindStringSubmatch(out)
	if total == nil || count == nil || status == nil {
		return observed{}, fmt.Errorf("can't read its output: %s", lastLine(out))
	}
	if count[2] != "0" || count[3] != "0" || count[4] != "0" || status[3] != "0" || status[4] != "0" {
		return observed{}, fmt.Errorf("%s; %s", count[0], status[0])
	}
	o := observed{metrics: map[string]float64{}}
	var err error
	if o.ops, err = strconv.ParseInt(count[1], 10, 64); err != nil {
		return observed{}, err
	}
	if o.elapsed, err = time.ParseDuration(total[1]); err != nil {
		return observed{}, err
	}
	return o, nil
}

// lastLine returns the last line that isn't blank.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
