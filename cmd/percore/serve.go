package main

import (
	"bytes"
	"context"
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
	"github.com/percore/percore/handover"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/metrics/tcpinfo"
	"github.com/percore/percore/tlsfiles"
	"github.com/percore/percore/zerocopy"
)

// The defaults of serve's flags. The addresses are on the loopback interface: serving a directory
// to the network must be the user's decision.
const (
	defaultHTTPAddress  = "127.0.0.1:8080"
	defaultGRPCAddress  = "127.0.0.1:9090"
	defaultAdminAddress = "127.0.0.1:6060"
	defaultDir          = "."
)

// defaultDrain is how long Ctrl-C waits for requests in progress, unless -drain says otherwise. It is
// long enough for anything a person is watching, and short enough for that person to wait.
const defaultDrain = 10 * time.Second

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

  -http ADDR     HOST:PORT for HTTP (default ` + defaultHTTPAddress + `; port 0 takes a free one)
  -grpc ADDR     HOST:PORT for gRPC (default ` + defaultGRPCAddress + `; port 0 takes a free one)
  -dir DIR       the directory to serve (default ` + defaultDir + `); nothing outside it is
                 reachable, by symbolic links neither
  -loops N       event loops of the percore engine (default 0: one per GOMAXPROCS)
  -tls           serve HTTPS, with HTTP/2, instead of HTTP; without -cert and -key
                 with a self-signed certificate that is made for this run
  -cert FILE     the certificate for -tls, and those that it depends on, in PEM
  -key FILE      its private key, in PEM. Both files are watched, and a new certificate is
                 used without a restart
  -tls-ticket-keys FILE
                 secrets by which clients resume sessions at each machine that has the
                 file: one a line, from openssl rand -base64 32; the first makes new
                 tickets. It is watched, too. Without it the secret is made for this
                 run, and passed on to a successor
  -max-conns N   let at most so many connections be open on each of the two; then
                 those that have waited longest between two requests are closed for
                 new clients, which wait if all are busy (default 0: no limit)
  -sample-tcp N  count what the kernel knows of one in N connections, in the metrics
                 (default 0: of none)
  -max-age TIME  let clients open another connection when theirs is that old, give or take
                 a tenth, so that load moves to machines that were added: by Connection:
                 close in the next answer, or GOAWAY (default 0: no limit)
  -proxy-protocol NETS
                 connections begin with a PROXY header, of version 1 or 2, and come
                 from these networks only (10.0.0.0/8,::1/128)
  -drain TIME    how long requests under way may go on after Ctrl-C, or after a restart,
                 which itself gives them up to 30 seconds (default 10s)
  -drain-delay TIME
                 after Ctrl-C, serve on for this long while /ready and gRPC's health
                 service already say no, so that a load balancer goes elsewhere first;
                 in the last second clients are told to, too: Connection: close, and
                 GOAWAY (default 0)
  -any-parent    restart at SIGHUP whatever has started this process, and not only below
                 systemd with Type=notify or in an interactive shell
  -admin ADDR    HOST:PORT for /metrics, /debug/percore and /debug/pprof
                 (default ` + defaultAdminAddress + `; "" for none); keep it from the network
  -v             log every request and every call

Try:
  curl http://127.0.0.1:8080/
  curl -d hello http://127.0.0.1:8080/echo
  curl -N http://127.0.0.1:8080/clock
  curl -o /dev/null http://127.0.0.1:8080/download?size=4GiB
  curl --http2-prior-knowledge http://127.0.0.1:8080/echo
  curl http://` + defaultAdminAddress + `/metrics
  grpcurl -plaintext -d '{"message":"hello"}' 127.0.0.1:9090 percore.echo.v1.Echo/Unary
`

// serveOptions are the command line options of serve.
type serveOptions struct {
	httpAddress  string
	grpcAddress  string
	adminAddress string // "": no admin server
	dir          string
	loops        int
	tls          bool
	certFile     string
	keyFile      string
	ticketKeys   string
	maxConns     int
	sampleTCP    int
	maxAge       time.Duration
	proxies      string // networks, separated by commas; "": no PROXY headers
	drain        time.Duration
	drainDelay   time.Duration
	anyParent    bool
	verbose      bool
}

// parseServeFlags reads the command line of serve. It returns a one-line error for people, or
// flag.ErrHelp.
func parseServeFlags(args []string) (serveOptions, error) {
	var o serveOptions
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller reports the error, in one line
	flags.StringVar(&o.httpAddress, "http", defaultHTTPAddress, "")
	flags.StringVar(&o.grpcAddress, "grpc", defaultGRPCAddress, "")
	flags.StringVar(&o.adminAddress, "admin", defaultAdminAddress, "")
	flags.StringVar(&o.dir, "dir", defaultDir, "")
	flags.IntVar(&o.loops, "loops", 0, "")
	flags.BoolVar(&o.tls, "tls", false, "")
	flags.StringVar(&o.certFile, "cert", "", "")
	flags.StringVar(&o.keyFile, "key", "", "")
	flags.StringVar(&o.ticketKeys, "tls-ticket-keys", "", "")
	flags.IntVar(&o.maxConns, "max-conns", 0, "")
	flags.IntVar(&o.sampleTCP, "sample-tcp", 0, "")
	flags.DurationVar(&o.maxAge, "max-age", 0, "")
	flags.StringVar(&o.proxies, "proxy-protocol", "", "")
	flags.DurationVar(&o.drain, "drain", defaultDrain, "")
	flags.DurationVar(&o.drainDelay, "drain-delay", 0, "")
	flags.BoolVar(&o.anyParent, "any-parent", false, "")
	flags.BoolVar(&o.verbose, "v", false, "")
	if err := flags.Parse(args); err != nil {
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
	_, networks := parseNetworks(o.proxies)
	switch {
	case o.maxConns < 0:
		return fmt.Errorf("-max-conns %d: want 0, for no limit, or more", o.maxConns)
	case o.sampleTCP < 0:
		return fmt.Errorf("-sample-tcp %d: want 0, for none, or more", o.sampleTCP)
	case o.maxAge < 0:
		return fmt.Errorf("-max-age %v: want 0, for no limit, or more", o.maxAge)
	case o.drain < 0:
		return fmt.Errorf("-drain %v: want 0, to cut requests off at once, or more", o.drain)
	case o.drainDelay < 0:
		return fmt.Errorf("-drain-delay %v: want 0, for no delay, or more", o.drainDelay)
	case networks != nil:
		return fmt.Errorf("-proxy-protocol: %w", networks)
	case (o.certFile == "") != (o.keyFile == ""):
		return errors.New("-cert and -key belong together: give both, or none for a self-signed certificate")
	case o.certFile != "" && !o.tls:
		return errors.New("-cert and -key are for -tls: add it, or leave them out")
	case o.ticketKeys != "" && !o.tls:
		return errors.New("-tls-ticket-keys is for -tls: add it, or leave it out")
	}
	return nil
}

// parseNetworks reads networks, separated by commas.
func parseNetworks(list string) (networks []netip.Prefix, err error) {
	if list == "" {
		return nil, nil
	}
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
	opts, err := parseServeFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, serveUsage)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "percore serve: %v (percore serve -h lists the flags)\n", err)
		return exitUsage
	}
	log := newLogger(stderr, opts.verbose)
	slog.SetDefault(log) // percore's warnings look like the other lines
	if err := serve(context.Background(), opts, stdout, log); err != nil {
		fmt.Fprintf(stderr, "percore serve: %v\n", err)
		return exitFailure
	}
	return exitOK
}

// newLogger returns a logger that writes to w; if verbose is set, it includes every request.
func newLogger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

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
	d.webSockets = newWebSockets()
	site := newHTTPServer(d.root, d.webSockets, &d.httpRequests, &d.leaving, d.log)
	if opts.tls {
		if err = d.openTLS(); err != nil {
			return nil, err
		}
		site.TLSConfig = d.tls.Config()
	}
	d.httpServer = d.wrap(site)
	d.adminServer = newAdminServer(&d.leaving, d.log)
	d.grpcServer, d.health = newGRPCServer(&d.grpcRequests, d.log, opts.maxAge)
	return d, nil
}

// openLoops makes the loops, and the options of the listeners.
func (d *demo) openLoops() (err error) {
	tcpinfo.Sample(d.opts.sampleTCP)
	d.config.MaxConns = d.opts.maxConns
	if networks, _ := parseNetworks(d.opts.proxies); networks != nil {
		d.config.ProxyProtocol = &percore.ProxyProtocol{Trusted: networks}
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

// wrap returns the server that runs srv.
func (d *demo) wrap(srv *http.Server) *httpadapter.Server {
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	var options []httpadapter.Option
	if d.opts.maxAge > 0 {
		options = append(options, httpadapter.MaxAge(d.opts.maxAge, 0))
	}
	return httpadapter.Wrap(srv, options...)
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
			d.health.Shutdown() // clients that watch go elsewhere from now on
			d.log.Info("stopping", "delay", d.opts.drainDelay, "limit", d.opts.drain)
		},
		HandedOver: func(pid int) {
			d.health.Shutdown()
			d.log.Info("stopping, since another process has taken over", "pid", pid, "limit", d.opts.drain)
		},
	}
	if d.group != nil {
		service.Restart = syscall.SIGHUP
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if d.tls != nil {
		go d.tls.Watch(watching, certificatePause)
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
		fmt.Fprintf(w, "\nThe certificate's SHA-256 is %s\n", fingerprint(d.tls.Certificate()))
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

// printSummary prints the totals since startup. The live page has more.
func (d *demo) printSummary(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	overHTTP, overGRPC := d.httpRequests.Load(), d.grpcRequests.Load()
	fmt.Fprintf(table, "\nuptime\t%s\n", time.Since(d.started).Round(time.Millisecond))
	fmt.Fprintf(table, "requests\t%d (%d HTTP, %d gRPC)\n", overHTTP+overGRPC, overHTTP, overGRPC)
	past, h2 := d.httpServer.HTTP1Stats(), d.httpServer.HTTP2Stats()
	fmt.Fprintf(table, "past net/http\t%d over HTTP/1.1, %d over HTTP/2\n", past.Requests, h2.Requests)
	fmt.Fprintf(table, "connections waiting\t%d\n", d.httpServer.Stats().Parked)
	fmt.Fprintf(table, "bytes by sendfile\t%d\n", zerocopy.ReadStats().SendfileBytes)
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
