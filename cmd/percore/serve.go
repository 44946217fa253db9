package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/health"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/httpadapter/sse"
	"github.com/percore/percore/cmd/percore/internal/selfsigned"
	"github.com/percore/percore/debug"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/tlsfiles"
)

// The defaults of serve's flags. The addresses are on the loopback interface: serving a directory to the
// network must be the user's decision. The drain is long enough for anything a person is watching, and
// short enough for that person to wait.
const (
	defaultHTTPAddress  = "127.0.0.1:8080"
	defaultGRPCAddress  = "127.0.0.1:9090"
	defaultAdminAddress = "127.0.0.1:6060"
	defaultDrain        = 10 * time.Second
)

const serveUsage = `Usage: percore serve [flags]

Serves a directory over HTTP and an echo service over gRPC until Ctrl-C, then
finishes what is under way (for -drain at most; a second Ctrl-C stops at
once) and shows a summary. SIGHUP replaces the process by a new one, of the
program that is in its file by then: HTTP connections without TLS go on in it, and
requests are finished. systemd is told by sd_notify(3) which process serves, and
that its loops turn if WatchdogSec= is set. Sockets that systemd opens replace the
addresses of -http, -grpc and -admin by these names (FileDescriptorName=; https
with -tls). examples/production has a server of your own that does all of this.
With PERCOREDEBUG=engine=net in the environment the same servers run on package
net: percore bench compares.

Try:
  curl http://127.0.0.1:8080/
  curl -d hello http://127.0.0.1:8080/echo
  curl -N http://127.0.0.1:8080/clock
  curl -o /dev/null http://127.0.0.1:8080/download?size=4GiB
  curl --http2-prior-knowledge http://127.0.0.1:8080/echo
  curl http://` + defaultAdminAddress + `/metrics
  grpcurl -plaintext -d '{"message":"hello"}' 127.0.0.1:9090 percore.echo.v1.Echo/Unary

Flags:
`

// serveOptions are the command line options of serve.
type serveOptions struct {
	httpAddress  string
	grpcAddress  string
	adminAddress string // "": no admin server
	dir          string
	loops        int
	tls          bool
	files        tlsfiles.Paths
	maxConns     int
	maxAge       time.Duration
	proxies      []netip.Prefix // nil: no PROXY headers
	drain        time.Duration
	drainDelay   time.Duration
	anyParent    bool
}

// parseServeFlags reads the command line of serve. It returns a one-line error for people, or
// flag.ErrHelp once it has printed the help.
func parseServeFlags(args []string, stdout io.Writer) (o serveOptions, err error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller reports the error, in one line
	flags.StringVar(&o.httpAddress, "http", defaultHTTPAddress, "`HOST:PORT` for HTTP; port 0 takes a free one")
	flags.StringVar(&o.grpcAddress, "grpc", defaultGRPCAddress, "`HOST:PORT` for gRPC; port 0 takes a free one")
	flags.StringVar(&o.adminAddress, "admin", defaultAdminAddress, "`HOST:PORT` for /metrics, /debug/percore and /debug/pprof; \"\" for none;\nkeep it from the network")
	flags.StringVar(&o.dir, "dir", ".", "the `directory` to serve; nothing outside it is reachable, by symbolic links neither")
	flags.IntVar(&o.loops, "loops", 0, "event loops of the percore engine; 0: one per GOMAXPROCS")
	flags.BoolVar(&o.tls, "tls", false, "serve HTTPS, with HTTP/2, instead of HTTP; without -cert and -key with a self-signed\ncertificate that is made for this run")
	flags.StringVar(&o.files.Cert, "cert", "", "a `file` with the certificate for -tls, and those that it depends on, in PEM")
	flags.StringVar(&o.files.Key, "key", "", "a `file` with its private key, in PEM. Both files are watched, and a new certificate is\nused without a restart")
	flags.StringVar(&o.files.Secrets, "tls-ticket-keys", "", "a `file` of secrets by which clients resume sessions at each machine that has it: one a\nline, from openssl rand -base64 32; the first makes new tickets. It is watched, too.\nWithout it the secret is made for this run, and passed on to a successor")
	flags.IntVar(&o.maxConns, "max-conns", 0, "let at most so many connections be open on each of the two; then those that have waited\nlongest between two requests are closed for new clients, which wait if all are busy;\n0: no limit")
	flags.DurationVar(&o.maxAge, "max-age", 0, "let clients open another connection when theirs is that old, give or take a tenth, so that\nload moves to machines that were added: by Connection: close in the next answer, or\nGOAWAY; 0: no limit")
	flags.Func("proxy-protocol", "connections begin with a PROXY header, of version 1 or 2, and come from these\n`networks` only (10.0.0.0/8,::1/128)", func(list string) (err error) {
		o.proxies, err = parseNetworks(list)
		return err
	})
	flags.DurationVar(&o.drain, "drain", defaultDrain, "how long requests under way may go on after Ctrl-C, or after a restart, which itself\ngives them up to 30 seconds")
	flags.DurationVar(&o.drainDelay, "drain-delay", 0, "after Ctrl-C, serve on for this long while /ready and gRPC's health service already say\nno, so that a load balancer goes elsewhere first; in the last second clients are told\nto, too: Connection: close, and GOAWAY")
	flags.BoolVar(&o.anyParent, "any-parent", false, "restart at SIGHUP whatever has started this process, and not only below systemd with\nType=notify or in an interactive shell")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, serveUsage)
			flags.SetOutput(stdout)
			flags.PrintDefaults()
		}
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, o.check()
}

// check finds the mistakes that it can know before anything is opened.
func (o *serveOptions) check() error {
	// The listener reports whether host and port exist.
	for _, f := range [][2]string{{"http", o.httpAddress}, {"grpc", o.grpcAddress}, {"admin", o.adminAddress}} {
		if _, _, err := net.SplitHostPort(f[1]); err != nil && (f[0] != "admin" || f[1] != "") {
			return fmt.Errorf("-%s %q: not of the form HOST:PORT", f[0], f[1])
		}
	}
	if o.maxConns < 0 {
		return fmt.Errorf("-max-conns %d: want 0 or more", o.maxConns)
	}
	for name, value := range map[string]time.Duration{"max-age": o.maxAge, "drain": o.drain, "drain-delay": o.drainDelay} {
		if value < 0 {
			return fmt.Errorf("-%s %v: want 0 or more", name, value)
		}
	}
	switch {
	case (o.files.Cert == "") != (o.files.Key == ""):
		return errors.New("-cert and -key belong together: give both, or none for a self-signed certificate")
	case o.files.Cert+o.files.Secrets != "" && !o.tls:
		return errors.New("-cert, -key and -tls-ticket-keys are for -tls: add it, or leave them out")
	}
	return nil
}

// parseNetworks reads networks, separated by commas.
func parseNetworks(list string) (networks []netip.Prefix, err error) {
	for text := range strings.SplitSeq(list, ",") {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", text)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// runServe runs the serve command and returns the exit status.
func runServe(args []string, stdout, stderr io.Writer) int {
	opts, err := parseServeFlags(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "percore serve: %v (percore serve -h lists the flags)\n", err)
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	slog.SetDefault(log) // percore's warnings look like the other lines
	if err := serve(context.Background(), opts, stdout, log); err != nil {
		fmt.Fprintf(stderr, "percore serve: %v\n", err)
		return exitFailure
	}
	return exitOK
}

// certificatePause is the time between two looks at the files of -tls. Kubernetes takes a minute to
// bring a new certificate into a container.
const certificatePause = 5 * time.Second

// serve runs the servers until ctx ends, a signal comes, one of them fails, or a successor has taken
// over.
func serve(ctx context.Context, opts serveOptions, stdout io.Writer, log *slog.Logger) error {
	d, err := newDemo(opts, log)
	if err != nil {
		return err
	}
	defer d.release()
	d.ready = func() { writeAtOnce(stdout, d.printAddresses) }
	err = d.run(ctx)
	if d.started.IsZero() {
		return err
	}
	writeAtOnce(stdout, d.printSummary)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests were cut off", "error", err)
		return nil
	}
	return err
}

// writeAtOnce writes the output of print with a single call. A process and its successor write to
// the same output at the same time. A pipe keeps the bytes of one call together, up to 4096
// (pipe(7)).
func writeAtOnce(w io.Writer, print func(io.Writer)) {
	var text bytes.Buffer
	print(&text)
	_, _ = w.Write(text.Bytes())
}

// demo is the servers of "percore serve" and the parts they use.
type demo struct {
	opts serveOptions
	log  *slog.Logger

	root  *os.Root
	tls   *tlsfiles.Files // with -tls
	group *loop.Group     // nil where percore runs on package net

	// The admin server has a loop of its own.
	config, adminConfig percore.ListenConfig

	httpServer  *httpadapter.Server
	clock       *sse.Hub
	webSockets  *webSockets
	grpcServer  *grpcadapter.Server
	health      *health.Server
	adminServer *http.Server

	// set when the servers serve
	httpListener, grpcListener net.Listener
	admin                      net.Listener // nil: no admin server
	started                    time.Time

	ready func() // is called then, if not nil

	httpRequests atomic.Uint64
	grpcRequests atomic.Uint64

	leaving atomic.Bool // the server is about to stop: /ready says so

	report atomic.Pointer[string] // what the live page said as it began to stop; nil: it hasn't
}

// newDemo makes the servers. It opens the directory first, because a wrong directory is the easiest
// mistake to make. On an error it closes everything again.
func newDemo(opts serveOptions, log *slog.Logger) (_ *demo, err error) {
	d := &demo{opts: opts, log: log}
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	if d.root, err = os.OpenRoot(opts.dir); err != nil {
		return nil, fmt.Errorf("-dir: %w", err)
	}
	if err = d.openLoops(); err != nil {
		return nil, err
	}
	if opts.tls {
		if err = d.openTLS(); err != nil {
			return nil, err
		}
	}
	d.webSockets = newWebSockets()
	d.newHTTPServer()
	d.adminServer = newAdminServer(&d.leaving, d.log)
	d.grpcServer, d.health = newGRPCServer(&d.grpcRequests, opts.maxAge)
	return d, nil
}

// openTLS reads the files of -tls. Without a certificate it makes one for this run.
func (d *demo) openTLS() error {
	paths := d.opts.files
	if paths.Cert == "" {
		host, _, _ := net.SplitHostPort(d.opts.httpAddress)
		made, err := selfsigned.New(host)
		if err != nil {
			return err
		}
		paths.Certificate = &made
	}
	var err error
	if d.tls, err = tlsfiles.Open(paths, d.log); err != nil {
		return fmt.Errorf("-tls: %w", err)
	}
	return nil
}

// openLoops makes the loops, and the options of the listeners.
func (d *demo) openLoops() (err error) {
	d.config.MaxConns = d.opts.maxConns
	if d.opts.proxies != nil {
		d.config.ProxyProtocol = &percore.ProxyProtocol{Trusted: d.opts.proxies}
	}
	d.group, err = loop.NewGroup(loop.Config{Loops: d.opts.loops, Name: "serve"})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err == nil {
		d.config.Group = d.group
		d.adminConfig.Group, err = loop.NewGroup(loop.Config{Loops: 1, Name: "admin"})
	}
	if err != nil {
		return fmt.Errorf("-loops %d: %w", d.opts.loops, err)
	}
	return nil
}

// run runs the servers from start to end.
func (d *demo) run(ctx context.Context) error {
	service := handover.Service{
		Parts:      d.parts(),
		AnyParent:  d.opts.anyParent,
		DrainDelay: d.opts.drainDelay,
		Drain:      max(d.opts.drain, 1), // 0 would be the default
		Conns:      &d.webSockets.conns,
		Ready:      d.serves,
		Leaving: func() {
			d.leaving.Store(true)
			d.takeReport()
			d.health.Shutdown() // clients that watch go elsewhere from now on
			d.log.Info("stopping", "delay", d.opts.drainDelay, "limit", d.opts.drain)
		},
		HandedOver: func(pid int) {
			d.takeReport()
			d.health.Shutdown()
			d.log.Info("stopping, since another process has taken over", "pid", pid, "limit", d.opts.drain)
		},
	}
	if d.group != nil {
		service.Restart = syscall.SIGHUP
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go tick(running, d.clock)
	if d.tls != nil {
		go d.tls.Watch(running, certificatePause)
	}
	err := service.Run(ctx)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("%w; choose another address with -http, -grpc or -admin", err)
	case d.started.IsZero() && errors.Is(err, context.Canceled):
		return nil // interrupted as it began
	}
	return err
}

// parts are the servers of the handover.Service. A successor that speaks TLS must not get the listener
// of one that doesn't, so the name says it.
func (d *demo) parts() []handover.Part {
	web := handover.Part{Name: "http", Address: d.opts.httpAddress, Config: &d.config, Server: d.httpServer}
	if d.opts.tls {
		web.Name = "https"
		web.Serve = func(l net.Listener) error { return d.httpServer.ServeTLS(l, "", "") }
		web.State, web.Restore = d.tls.State, d.tls.Restore
	}
	parts := []handover.Part{web, {Name: "grpc", Address: d.opts.grpcAddress, Config: &d.config, Server: d.grpcServer}}
	if d.opts.adminAddress != "" {
		parts = append(parts, handover.Part{
			Name: "admin", Address: d.opts.adminAddress, Config: &d.adminConfig, Server: d.adminServer,
			Serve: func(l net.Listener) error { return serveAdmin(d.adminServer, l) },
		})
	}
	return parts
}

// serves notes where the servers listen.
func (d *demo) serves(listeners []net.Listener) {
	d.started = time.Now()
	d.httpListener, d.grpcListener = listeners[0], listeners[1]
	if len(listeners) > 2 {
		d.admin = listeners[2]
	}
	if d.ready != nil {
		d.ready()
	}
}

// printAddresses prints where to find the servers.
func (d *demo) printAddresses(w io.Writer) {
	dir := d.opts.dir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	on := "package net"
	if _, ok := d.httpListener.(*percore.Listener); ok && d.group != nil {
		on = fmt.Sprintf("%d loops", d.group.Len())
	}
	fmt.Fprintf(w, "percore serve: directory %s, on %s\n\n", dir, on)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	base := baseURL(d.httpListener.Addr())
	if d.opts.tls {
		base = "https" + strings.TrimPrefix(base, "http")
	}
	for _, e := range httpEndpoints {
		fmt.Fprintf(table, "  HTTP\t%s%s\t%s\n", base, e.Path, e.About)
	}
	for _, s := range grpcServices {
		fmt.Fprintf(table, "  gRPC\t%s\t%s\n", dialAddress(d.grpcListener.Addr()), s)
	}
	if d.admin != nil {
		for _, e := range adminEndpoints {
			fmt.Fprintf(table, "  admin\t%s%s\t%s\n", baseURL(d.admin.Addr()), e.Path, e.About)
		}
	}
	table.Flush()
	if d.opts.tls {
		fmt.Fprintf(w, "\nThe certificate's SHA-256 is % X\n", sha256.Sum256(d.tls.Certificate().Certificate[0]))
	}
	// After a restart the shell doesn't know this process.
	fmt.Fprintf(w, "\nCtrl-C stops the servers and shows a summary, and so does kill %d.\n", os.Getpid())
}

// baseURL returns the URL of an HTTP server at addr, without a path.
func baseURL(addr net.Addr) string {
	return "http://" + dialAddress(addr)
}

// dialAddress returns an address that reaches a listener at addr from this machine. It is the
// listener's own address, localhost if it listens on all addresses, or gRPC's way to name a socket.
func dialAddress(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && (tcp.IP == nil || tcp.IP.IsUnspecified()) {
		return fmt.Sprintf("localhost:%d", tcp.Port)
	}
	if addr.Network() == "unix" { // one of systemd's
		return "unix:" + addr.String()
	}
	return addr.String()
}

// takeReport notes what the live page says, before the connections are closed.
func (d *demo) takeReport() {
	report := debug.Report(percore.ReadStats())
	d.report.CompareAndSwap(nil, &report)
}

// printSummary prints the totals since startup, and what the live page said last.
func (d *demo) printSummary(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	overHTTP, overGRPC := d.httpRequests.Load(), d.grpcRequests.Load()
	fmt.Fprintf(table, "\nuptime\t%s\n", time.Since(d.started).Round(time.Millisecond))
	fmt.Fprintf(table, "requests\t%d (%d HTTP, %d gRPC)\n", overHTTP+overGRPC, overHTTP, overGRPC)
	past, h2 := d.httpServer.Stats(), d.httpServer.HTTP2Stats()
	fmt.Fprintf(table, "past net/http\t%d over HTTP/1.1, %d over HTTP/2\n", past.Requests, h2.Requests)
	fmt.Fprintf(table, "bytes by sendfile\t%d\n", percore.ReadStats().ZeroCopy.SendfileBytes)
	if report := d.report.Load(); report != nil {
		fmt.Fprintf(table, "\nwhen it began to stop\n%s", *report)
	}
	table.Flush()
}

// release closes what newDemo has opened.
func (d *demo) release() {
	for _, g := range []*loop.Group{d.group, d.adminConfig.Group} {
		if g != nil {
			g.Close()
		}
	}
	if d.root != nil {
		_ = d.root.Close()
	}
}
