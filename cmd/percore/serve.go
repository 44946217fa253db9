package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
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
	"github.com/percore/percore/tlsfiles"
)

// The defaults of serve's flags. The addresses are on the loopback interface: serving a directory to the
// network must be the user's decision.
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
  curl -o /dev/null http://127.0.0.1:8080/download?size=4294967296
  curl --http2-prior-knowledge http://127.0.0.1:8080/echo
  curl http://` + defaultAdminAddress + `/metrics
  grpcurl -plaintext -d '{"payload":{"body":"aGVsbG8="}}' 127.0.0.1:9090 \
      grpc.testing.BenchmarkService/UnaryCall

Flags:
`

// serveOptions are the command line options of serve.
type serveOptions struct {
	httpAddress  string
	grpcAddress  string
	adminAddress string // "": no admin server
	dir          string
	tls          bool
	maxConns     int
	maxAge       time.Duration
	proxies      []netip.Prefix // nil: no PROXY headers
	drain        time.Duration
	drainDelay   time.Duration
	anyParent    bool
}

// parseServeFlags reads the command line of serve. The servers themselves refuse addresses, numbers and
// times that make no sense.
func parseServeFlags(args []string, stdout io.Writer) (o serveOptions, err error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&o.httpAddress, "http", defaultHTTPAddress, "`HOST:PORT` for HTTP; port 0 takes a free one")
	flags.StringVar(&o.grpcAddress, "grpc", defaultGRPCAddress, "`HOST:PORT` for gRPC; port 0 takes a free one")
	flags.StringVar(&o.adminAddress, "admin", defaultAdminAddress, "`HOST:PORT` for /metrics, /debug/percore and /debug/pprof; \"\" for none;\nkeep it from the network")
	flags.StringVar(&o.dir, "dir", ".", "the `directory` to serve; nothing outside it is reachable, by symbolic links neither")
	flags.BoolVar(&o.tls, "tls", false, "serve HTTPS, with HTTP/2, instead of HTTP, with a self-signed certificate that is made for\nthis run")
	flags.IntVar(&o.maxConns, "max-conns", 0, "let at most so many connections be open on each of the two; then those that have waited\nlongest between two requests are closed for new clients, which wait if all are busy;\n0: no limit")
	flags.DurationVar(&o.maxAge, "max-age", 0, "let clients open another connection when theirs is that old, give or take a tenth, so that\nload moves to machines that were added: by Connection: close in the next answer, or\nGOAWAY; 0: no limit")
	flags.Func("proxy-protocol", "connections begin with a PROXY header, of version 1 or 2, and come from these\n`networks` only (10.0.0.0/8,::1/128)", func(list string) error {
		for text := range strings.SplitSeq(list, ",") {
			network, err := netip.ParsePrefix(text)
			if err != nil {
				return err
			}
			o.proxies = append(o.proxies, network)
		}
		return nil
	})
	flags.DurationVar(&o.drain, "drain", defaultDrain, "how long requests under way may go on after Ctrl-C, or after a restart, which itself\ngives them up to 30 seconds")
	flags.DurationVar(&o.drainDelay, "drain-delay", 0, "after Ctrl-C, serve on for this long while /ready and gRPC's health service already say\nno, so that a load balancer goes elsewhere first; in the last second clients are told\nto, too: Connection: close, and GOAWAY")
	flags.BoolVar(&o.anyParent, "any-parent", false, "restart at SIGHUP whatever has started this process, and not only below systemd with\nType=notify or in an interactive shell")
	if err = parseFlags(flags, args, stdout, serveUsage); err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, err
}

func runServe(args []string, stdout, stderr io.Writer) error {
	opts, err := parseServeFlags(args, stdout)
	if err != nil {
		return usageError{fmt.Errorf("%w (percore serve -h lists the flags)", err)}
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	slog.SetDefault(log) // percore's warnings look like the other lines
	return serve(context.Background(), opts, stdout, log)
}

// serve runs the servers until ctx ends, a signal comes, one of them fails, or a successor has taken
// over.
func serve(ctx context.Context, opts serveOptions, stdout io.Writer, log *slog.Logger) error {
	d, err := newDemo(opts, log)
	if err != nil {
		return err
	}
	defer d.root.Close()
	err = d.run(ctx, stdout)
	switch {
	case d.started.IsZero() && errors.Is(err, context.Canceled):
		return nil // interrupted as it began
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; choose another address with -http, -grpc or -admin", err)
	case d.started.IsZero():
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

	root       *os.Root
	tls        *tlsfiles.Files // with -tls
	httpServer *httpadapter.Server
	clock      *sse.Hub
	webSockets *webSockets
	grpcServer *grpcadapter.Server
	health     *health.Server

	// set when the servers serve
	listeners []net.Listener // of HTTP, gRPC and, unless there is none, the admin server
	started   time.Time

	leaving atomic.Bool // the server is about to stop: /ready says so

	report string // what the live page said as it began to stop, before connections were closed
}

// newDemo makes the servers. It opens the directory first, because a wrong directory is the easiest
// mistake to make.
func newDemo(opts serveOptions, log *slog.Logger) (d *demo, err error) {
	d = &demo{opts: opts, log: log, webSockets: newWebSockets()}
	if d.root, err = os.OpenRoot(opts.dir); err != nil {
		return nil, fmt.Errorf("-dir: %w", err)
	}
	if opts.tls {
		host, _, _ := net.SplitHostPort(opts.httpAddress)
		made, err := selfsigned.New(host)
		if err == nil {
			d.tls, err = tlsfiles.Open(tlsfiles.Paths{Certificate: &made}, log)
		}
		if err != nil {
			return nil, errors.Join(err, d.root.Close())
		}
	}
	d.newHTTPServer()
	d.newGRPCServer()
	return d, nil
}

// run runs the servers from start to end, and prints where they are.
func (d *demo) run(ctx context.Context, stdout io.Writer) error {
	stopping := func(why string, args ...any) {
		d.report = cmp.Or(d.report, debug.Report(percore.ReadStats()))
		d.health.Shutdown() // clients that watch go elsewhere from now on
		d.log.Info(why, append(args, "limit", d.opts.drain)...)
	}
	service := handover.Service{
		Parts:      d.parts(),
		Restart:    syscall.SIGHUP,
		AnyParent:  d.opts.anyParent,
		DrainDelay: d.opts.drainDelay,
		Drain:      cmp.Or(d.opts.drain, 1), // 0 would be the default
		Conns:      &d.webSockets.conns,
		Ready: func(listeners []net.Listener) {
			d.listeners, d.started = listeners, time.Now()
			writeAtOnce(stdout, d.printAddresses)
		},
		Leaving: func() {
			d.leaving.Store(true)
			stopping("stopping", "delay", d.opts.drainDelay)
		},
		HandedOver: func(pid int) { stopping("stopping, since another process has taken over", "pid", pid) },
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go tick(running, d.clock)
	return service.Run(ctx)
}

// parts are the servers of the handover.Service. A successor that speaks TLS must not get the listener
// of one that doesn't, so the name says it.
func (d *demo) parts() []handover.Part {
	config := &percore.ListenConfig{MaxConns: d.opts.maxConns}
	if d.opts.proxies != nil {
		config.ProxyProtocol = &percore.ProxyProtocol{Trusted: d.opts.proxies}
	}
	web := handover.Part{Name: "http", Address: d.opts.httpAddress, Config: config, Server: d.httpServer}
	if d.opts.tls {
		web.Name = "https"
		web.Serve = func(l net.Listener) error { return d.httpServer.ServeTLS(l, "", "") }
		web.State, web.Restore = d.tls.State, d.tls.Restore
	}
	parts := []handover.Part{web, {Name: "grpc", Address: d.opts.grpcAddress, Config: config, Server: d.grpcServer}}
	if d.opts.adminAddress != "" {
		admin := newAdminServer(&d.leaving, d.log)
		parts = append(parts, handover.Part{
			Name: "admin", Address: d.opts.adminAddress, Server: admin,
			Serve: func(l net.Listener) error { return serveAdmin(admin, l) },
		})
	}
	return parts
}

func (d *demo) printAddresses(w io.Writer) {
	on := "package net"
	if l, ok := d.listeners[0].(*percore.Listener); ok && l.Stats().Sockets > 0 {
		on = "percore"
	}
	base := "http://" + d.listeners[0].Addr().String()
	if d.opts.tls {
		base = strings.Replace(base, "http", "https", 1)
	}
	fmt.Fprintf(w, "percore serve: process %d serves %s on %s\n\n", os.Getpid(), base, on)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, e := range httpEndpoints {
		fmt.Fprintf(table, "  HTTP\t%s%s\t%s\n", base, e.Path, e.About)
	}
	for _, s := range grpcServices {
		fmt.Fprintf(table, "  gRPC\t%s\t%s\n", d.listeners[1].Addr(), s)
	}
	for _, l := range d.listeners[2:] {
		for _, e := range adminEndpoints {
			fmt.Fprintf(table, "  admin\thttp://%s%s\t%s\n", l.Addr(), e.Path, e.About)
		}
	}
	table.Flush()
	if d.opts.tls {
		fmt.Fprintf(w, "\nThe certificate's SHA-256 is % X\n", sha256.Sum256(d.tls.Certificate().Certificate[0]))
	}
	// After a restart the shell doesn't know this process.
	fmt.Fprintf(w, "\nCtrl-C stops the servers and shows a summary, and so does kill %d.\n", os.Getpid())
}

// printSummary prints the totals since startup, and what the live page said last.
func (d *demo) printSummary(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nuptime\t%s\n", time.Since(d.started).Round(time.Millisecond))
	fmt.Fprintf(table, "requests\t%d over HTTP/1.1, %d over HTTP/2, %d calls of gRPC\n",
		d.httpServer.Stats().Requests, d.httpServer.HTTP2Stats().Requests, d.grpcServer.Stats().Started)
	fmt.Fprintf(table, "bytes by sendfile\t%d\n", percore.ReadStats().ZeroCopy.SendfileBytes)
	if d.report != "" {
		fmt.Fprintf(table, "\nwhen it began to stop\n%s", d.report)
	}
	table.Flush()
}
