package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/health"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/handover/systemd"
	"github.com/percore/percore/tlsfiles"
)

// The defaults of serve's flags. The addresses are on the loopback interface: serving a directory
// to the network must be the user's decision.
const (
	defaultHTTPAddress = "127.0.0.1:8080"
	defaultGRPCAddress = "127.0.0.1:9090"
	defaultDir         = "."
)

// defaultDrain is how long Ctrl-C waits for requests in progress, unless -drain says otherwise. It is
// long enough for anything a person is watching, and short enough for that person to wait.
const defaultDrain = 10 * time.Second

const serveUsage = `Usage: percore serve [flags]

Serves a directory over HTTP and an echo service over gRPC until Ctrl-C, then
finishes what is under way (for -drain at most; a second Ctrl-C stops at
once) and shows a summary. SIGHUP replaces the process by a new one, of the
program that is in its file by then: HTTP connections without TLS go on in it, and
requests are finished. Under nohup, which has SIGHUP ignored, -upgrade does so.
systemd is told by sd_notify(3) which process serves, and that its loops turn if
WatchdogSec= is set. Sockets that systemd opens replace the addresses of -http,
-grpc and -admin by these names (FileDescriptorName=). In a container, and below
other supervisors, give -supervise.

  -http ADDR     HOST:PORT for HTTP (default ` + defaultHTTPAddress + `; port 0 takes a free one)
  -grpc ADDR     HOST:PORT for gRPC (default ` + defaultGRPCAddress + `; port 0 takes a free one)
  -dir DIR       the directory to serve (default ` + defaultDir + `); nothing outside it is
                 reachable, by symbolic links neither
  -loops N       event loops of the percore engine (default 0: one per GOMAXPROCS)
  -engine NAME   percore, or net to run the very same servers on the net
                 package for comparison (default ` + enginePercore + `)
  -park TIME     park HTTP connections that have waited this long for their next
                 request: they hold no goroutine and no buffers (default 100ms)
  -net-http1     leave HTTP/1.1 to net/http, and park the connections that wait. Without
                 it the adapter serves plain requests itself, at less cost
  -net-http2     leave HTTP/2 to net/http. It is spoken with -tls, and in clear to clients
                 that know beforehand that the server speaks it
  -plain         run the same services straight on percore's listeners, without its
                 adapters: by net/http and grpc-go's transport; nothing is parked
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
                 new clients, which wait if all are busy, and with -plain
                 (default 0: no limit)
  -max-age TIME  let clients open another connection when theirs is that old, give or take
                 a tenth, so that load moves to machines that were added: by Connection:
                 close in the next answer, or GOAWAY (default 0: no limit)
  -max-requests N
                 the same after so many requests over HTTP (default 0: no limit)
  -proxy-protocol NETS
                 connections begin with a PROXY header, of version 1 or 2, and come
                 from these networks only (10.0.0.0/8,::1/128)
  -drain TIME    how long requests under way may go on after Ctrl-C, or after a handover,
                 which itself gives them up to 30 seconds (default 10s)
  -drain-delay TIME
                 after Ctrl-C, serve on for this long while /ready and gRPC's health
                 service already say no, so that a load balancer goes elsewhere first;
                 in the last second clients are told to, too: Connection: close, and
                 GOAWAY (default 0)
  -upgrade       take over from the percore serve that runs with the same -http and
                 -grpc: its listeners, and its connections between two requests
  -control NAME  the unix socket by which -upgrade finds it, in a folder that is
                 closed to other users (default auto: in $XDG_RUNTIME_DIR/percore,
                 /run/percore for root, or the directory for temporary files).
                 "@NAME" is abstract: visible to all of the network namespace.
                 "" for none
  -supervise     run the server as a child, and its successors, so that SIGHUP doesn't
                 end the process that a container or a supervisor watches: for Docker,
                 Kubernetes, tini, runit, s6 and supervisord
  -handover MODE whether SIGHUP and -upgrade replace this process: auto (default), if
                 the process that has started it doesn't take its end for the
                 service's (-supervise, systemd with Type=notify, an interactive
                 shell); always; or never
  -admin ADDR    HOST:PORT, or unix:PATH, for /metrics, /debug/percore and /debug/pprof
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
	httpAddress string
	grpcAddress string
	dir         string
	loops       int
	engine      string
	park        time.Duration
	netHTTP1    bool
	netHTTP2    bool
	plain       bool
	tls         bool
	certFile    string
	keyFile     string
	ticketKeys  string
	maxConns    int
	maxAge      time.Duration
	maxRequests int
	proxies     string // networks, separated by commas; "": no PROXY headers
	drain       time.Duration
	drainDelay  time.Duration
	upgrade     bool
	control     string // the socket's name for -upgrade; "": no socket
	handover    string // auto, always, never
	supervise   bool

	adminAddress string // "": no admin server
	verbose      bool

	sockets *openSockets // not of the command line: they replace the addresses
}

// parseServeFlags reads the command line of serve. It returns a one-line error for people, or
// flag.ErrHelp.
func parseServeFlags(args []string) (serveOptions, error) {
	var o serveOptions
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller reports the error, in one line
	flags.StringVar(&o.httpAddress, "http", defaultHTTPAddress, "")
	flags.StringVar(&o.grpcAddress, "grpc", defaultGRPCAddress, "")
	flags.StringVar(&o.dir, "dir", defaultDir, "")
	flags.IntVar(&o.loops, "loops", 0, "")
	flags.StringVar(&o.engine, "engine", enginePercore, "")
	flags.DurationVar(&o.park, "park", httpadapter.DefaultParkAfter, "")
	flags.BoolVar(&o.netHTTP1, "net-http1", false, "")
	flags.BoolVar(&o.netHTTP2, "net-http2", false, "")
	flags.BoolVar(&o.plain, "plain", false, "")
	flags.BoolVar(&o.tls, "tls", false, "")
	flags.StringVar(&o.certFile, "cert", "", "")
	flags.StringVar(&o.keyFile, "key", "", "")
	flags.StringVar(&o.ticketKeys, "tls-ticket-keys", "", "")
	flags.IntVar(&o.maxConns, "max-conns", 0, "")
	flags.DurationVar(&o.maxAge, "max-age", 0, "")
	flags.IntVar(&o.maxRequests, "max-requests", 0, "")
	flags.StringVar(&o.proxies, "proxy-protocol", "", "")
	flags.DurationVar(&o.drain, "drain", defaultDrain, "")
	flags.DurationVar(&o.drainDelay, "drain-delay", 0, "")
	flags.BoolVar(&o.upgrade, "upgrade", false, "")
	flags.StringVar(&o.control, "control", controlAuto, "")
	flags.StringVar(&o.handover, "handover", handoverAuto, "")
	flags.BoolVar(&o.supervise, "supervise", false, "")
	flags.StringVar(&o.adminAddress, "admin", defaultAdminAddress, "")
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
	if err := checkAddress("http", o.httpAddress); err != nil {
		return err
	}
	if err := checkAddress("grpc", o.grpcAddress); err != nil {
		return err
	}
	if o.adminAddress != "" {
		if network, address := o.adminSocket(); network == "tcp" {
			if err := checkAddress("admin", address); err != nil {
				return err
			}
		}
	}
	if o.loops < 0 || o.loops > loopsMax {
		return fmt.Errorf("-loops %d: want 0 (one per GOMAXPROCS) to %d", o.loops, loopsMax)
	}
	if o.engine != enginePercore && o.engine != engineNet {
		return fmt.Errorf("-engine %q: the engines are %s and %s", o.engine, enginePercore, engineNet)
	}
	if o.park < 0 {
		return fmt.Errorf("-park %v: want a time that is not negative (-plain parks nothing)", o.park)
	}
	if (o.netHTTP1 || o.netHTTP2) && (o.plain || o.engine == engineNet) {
		return fmt.Errorf("-net-http1 and -net-http2 are for the adapter, and without it net/http serves everything: leave them out with -plain and -engine %s", engineNet)
	}
	if o.maxConns < 0 {
		return fmt.Errorf("-max-conns %d: want 0, for no limit, or more", o.maxConns)
	}
	if o.maxAge < 0 || o.maxRequests < 0 {
		return fmt.Errorf("-max-age %v, -max-requests %d: want 0, for no limit, or more", o.maxAge, o.maxRequests)
	}
	if (o.maxAge > 0 || o.maxRequests > 0) && (o.plain || o.engine == engineNet) {
		return fmt.Errorf("-max-age and -max-requests are an adapter's: leave them out with -plain and -engine %s", engineNet)
	}
	if o.drain < 0 {
		return fmt.Errorf("-drain %v: want 0, to cut requests off at once, or more", o.drain)
	}
	if o.drainDelay < 0 {
		return fmt.Errorf("-drain-delay %v: want 0, for no delay, or more", o.drainDelay)
	}
	if _, err := parseNetworks(o.proxies); err != nil {
		return fmt.Errorf("-proxy-protocol: %w", err)
	}
	if o.engine == engineNet && (o.maxConns > 0 || o.proxies != "") {
		return fmt.Errorf("-max-conns and -proxy-protocol are percore's: leave them out with -engine %s", engineNet)
	}
	if o.upgrade && o.engine == engineNet {
		return fmt.Errorf("-upgrade: -engine %s can't take over: leave out one of them", engineNet)
	}
	switch o.handover {
	case handoverAuto, handoverAlways, handoverNever:
	default:
		return fmt.Errorf("-handover %q: want %s, %s or %s", o.handover, handoverAuto, handoverAlways, handoverNever)
	}
	if o.upgrade && o.control == "" {
		return errors.New("-upgrade finds the process that is to be replaced by -control: leave out one of them")
	}
	if o.upgrade && len(o.controlNames()) == 0 {
		return errors.New("-upgrade: give -http and -grpc the ports of the process that is to be replaced, instead of 0")
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("-cert and -key belong together: give both, or none for a self-signed certificate")
	}
	if o.certFile != "" && !o.tls {
		return errors.New("-cert and -key are for -tls: add it, or leave them out")
	}
	if o.ticketKeys != "" && !o.tls {
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

// checkAddress finds addresses without a port. The listener reports whether host and port exist.
func checkAddress(name, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("-%s %q: not of the form HOST:PORT", name, address)
	}
	return nil
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
	slog.SetDefault(newLogger(stderr, opts.verbose)) // percore's warnings look like the other lines
	if _, isSupervised := os.LookupEnv(supervisorVariable); opts.supervise && !isSupervised {
		status, err := supervise(append([]string{"serve"}, args...), stderr)
		if err != nil {
			fmt.Fprintf(stderr, "percore serve: %v\n", err)
		}
		return status
	}
	interrupted, stopListening := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stopListening()
	if err := serve(interrupted, stopListening, opts, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "percore serve: %v\n", err)
		return exitFailure
	}
	return exitOK
}

// serve runs the servers until interrupted is done or one of them fails. It calls rearm when
// interrupted is done, or a server has failed. After that the next signal has its default effect and
// kills the process at once.
func serve(interrupted context.Context, rearm func(), opts serveOptions, stdout, stderr io.Writer) error {
	hangups, terminal := watchHangups(), hasTerminal()
	parents := findParentage(terminal) // before the parent can end
	link, err := inheritParentLink()
	if err != nil {
		return err
	}
	if opts.sockets, err = inheritSockets(); err != nil {
		return err
	}
	defer opts.sockets.close()
	if err := opts.sockets.check(opts); err != nil {
		return err
	}
	predecessor, predecessorPID, isChild, err := takeOver(interrupted, opts)
	if err != nil {
		return err
	}
	d, err := newDemo(interrupted, opts, predecessor, predecessorPID, stderr)
	if err != nil {
		return err
	}
	parents.isChild, parents.isSupervised = isChild, link != nil
	d.parents = parents
	if d.link = link; link != nil {
		d.manager.Send = link.send
		go link.watch(interrupted, d.failed)
	}
	if d.watchdog, err = systemd.InheritWatchdog(); err != nil {
		d.log.Warn("the service manager's watchdog", "err", err)
	}
	d.manager.IsWatched = d.watchdog.Interval > 0
	watching, endWatch := context.WithCancel(context.Background())
	var watched sync.WaitGroup
	stopTLS := d.watchTLS()
	defer stopTLS()
	d.start()
	if err = d.becomeReady(interrupted); err == nil {
		// First: a reload that comes now is one that the service manager wants to hear of.
		if isChild {
			d.succeeded()
		} else {
			d.manager.Ready()
		}
		watched.Go(func() { d.watchdog.Run(watching, &d.manager, d.engine.group, d.engine.adminConfig.Group) })
		s := d.awaitSuccessors(interrupted, hangups, terminal)
		writeAtOnce(stdout, d.printAddresses)
		err = d.wait(interrupted, s)
	}
	if err == errHandedOver {
		// The first signal finds this process busy with what is wanted already: a service manager sends
		// it to all processes of a service, of which this one may still have a download to finish.
		context.AfterFunc(interrupted, rearm)
	} else {
		rearm()
	}
	d.manager.Stopping(opts.drainDelay + opts.drain)
	d.log.Info("stopping", "because", stopReason(interrupted, err), "delay", opts.drainDelay, "limit", opts.drain)
	if err == nil {
		d.delay(opts.drainDelay)
	}
	d.shutdown(opts.drain)
	writeAtOnce(stdout, d.printSummary)
	endWatch()
	watched.Wait()
	d.release()
	if err == errHandedOver {
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

// errHandedOver ends a process whose successor has everything.
var errHandedOver = errors.New("another process has taken over")

// stopReason says in words why wait returned.
func stopReason(interrupted context.Context, err error) error {
	if err != nil {
		return err
	}
	return context.Cause(interrupted)
}

// demo is the two servers of "percore serve" and the parts they use. One goroutine calls its
// methods, in the order in this file.
type demo struct {
	opts        serveOptions
	log         *slog.Logger
	predecessor *handover.Successor // nil: there is no predecessor
	isOrphan    bool                // the predecessor has crashed during the handover
	manager     systemd.Notifier
	link        *parentLink // nil: no percore serve -supervise
	parents     parentage
	watchdog    systemd.Watchdog
	executable  string // path at startup, where a newer version may be now; "" if unknown

	root         *os.Root
	engine       *serveEngine
	tls          *tlsfiles.Files // with -tls
	httpListener openListener
	grpcListener openListener
	admin        net.Listener // nil: no admin server

	httpServer  webServer
	webSockets  *webSockets
	grpcServer  callServer
	health      *health.Server
	adminServer *http.Server

	started time.Time
	serving sync.WaitGroup
	failed  chan error // a server's Serve returned before it was asked to

	httpRequests atomic.Uint64
	grpcRequests atomic.Uint64

	leaving    atomic.Bool // the server is about to stop: /ready says so
	handedOver bool        // another process has taken over
}

// newDemo opens the directory first, because a wrong directory is the easiest mistake to make, and
// then both listeners. On an error it closes everything again, and the predecessor continues to
// serve.
func newDemo(
	ctx context.Context, opts serveOptions, predecessor *handover.Successor, predecessorPID int, logTo io.Writer,
) (_ *demo, err error) {
	d := &demo{opts: opts, predecessor: predecessor, log: newLogger(logTo, opts.verbose), failed: make(chan error, 6)}
	d.manager.Log = d.log
	d.executable, _ = handover.Executable()
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	if d.root, err = openDir(opts.dir); err != nil {
		return nil, err
	}
	if d.engine, err = newServeEngine(opts); err != nil {
		return nil, err
	}
	if d.httpListener, err = d.listen(ctx, "http", opts.httpAddress); err != nil {
		return nil, err
	}
	if d.grpcListener, err = d.listen(ctx, "grpc", opts.grpcAddress); err != nil {
		return nil, err
	}
	if err = d.takeAdmin(); err != nil {
		return nil, err
	}
	if err = d.listenAdmin(ctx); err != nil && !(d.predecessor != nil && errors.Is(err, syscall.EADDRINUSE)) {
		return nil, err // or the predecessor still has the address, until the handover ends
	}
	d.webSockets = newWebSockets()
	if d.predecessor != nil {
		d.predecessor.Carry(&d.webSockets.conns)
	}
	site := newHTTPServer(d.root, d.webSockets, &d.httpRequests, &d.leaving, d.log)
	if opts.tls {
		if err = d.openTLS(); err != nil {
			return nil, err
		}
		site.TLSConfig = d.tls.Config()
	}
	d.httpServer = d.engine.runHTTP(site, opts)
	d.adminServer = newAdminServer(d.isAdminLocal(), predecessorPID, &d.leaving, d.log)
	d.grpcServer, d.health = newGRPCServer(&d.grpcRequests, d.log, d.engine)
	return d, nil
}

// newLogger returns a logger that writes to w; if verbose is set, it includes every request.
func newLogger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// openDir opens the directory to serve. Files below it are only opened through the os.Root, which
// doesn't follow any path or link out of it.
func openDir(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return nil, fmt.Errorf("-dir %s: %w", dir, pathErr.Err)
	}
	return root, err
}

// listen opens the listener of the server that the flag called name configures.
func (d *demo) listen(ctx context.Context, name, address string) (openListener, error) {
	if d.predecessor != nil && name == "http" {
		return d.engine.inherit(d.predecessor, d.opts.listenerName())
	}
	if d.predecessor != nil {
		return d.engine.inherit(d.predecessor, name)
	}
	if l, err := d.opts.sockets.listen(name, d.engine.config()); err != nil {
		return openListener{}, err
	} else if l != nil {
		return d.engine.open(l), nil
	}
	l, err := d.engine.listen(ctx, address)
	return l, listenError(name, address, err)
}

// listenError returns an error of listening in the words for the user.
func listenError(name, address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is already in use; choose another address with -%s (%w)", address, name, err)
	}
	if err != nil {
		return fmt.Errorf("-%s: %w", name, err)
	}
	return nil
}

// start lets the servers accept connections and returns at once.
func (d *demo) start() {
	d.started = time.Now()
	serveHTTP := d.httpServer.Serve
	if d.opts.tls {
		serveHTTP = func(l net.Listener) error { return d.httpServer.ServeTLS(l, "", "") }
	}
	d.serve("HTTP", serveHTTP, d.httpListener)
	d.serve("gRPC", d.grpcServer.Serve, d.grpcListener)
	d.startAdmin()
}

// startAdmin starts the admin server if its listener is there.
func (d *demo) startAdmin() {
	if d.admin != nil {
		d.serve("admin", d.adminServer.Serve, openListener{Listener: d.admin})
	}
}

// serve runs one server's Serve on l in its own goroutine.
func (d *demo) serve(name string, serveOn func(net.Listener) error, l openListener) {
	d.serving.Go(func() {
		err := serveOn(l.Listener)
		// grpc returns nil and net/http ErrServerClosed after an orderly stop.
		if err != nil && !errors.Is(err, http.ErrServerClosed) {
			d.failed <- fmt.Errorf("%s server: %w", name, err)
		}
	})
}

// printAddresses prints where to find the servers.
func (d *demo) printAddresses(w io.Writer) {
	dir := d.opts.dir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	fmt.Fprintf(w, "percore serve: directory %s, engine %s\n\n", dir, d.engine)
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
	how := "Ctrl-C"
	if d.predecessor != nil { // the shell may not know this process
		how = fmt.Sprintf("kill %d", os.Getpid())
	}
	fmt.Fprintf(w, "\n%s stops the servers and shows a summary.\n", how)
}

// baseURL returns the URL of an HTTP server at addr, without a path.
func baseURL(addr net.Addr) string {
	u := url.URL{Scheme: "http", Host: dialAddress(addr)}
	return u.String()
}

// dialAddress returns an address that reaches a listener at addr from this machine. It is the
// listener's own address, or localhost if it listens on all addresses.
func dialAddress(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && (tcp.IP == nil || tcp.IP.IsUnspecified()) {
		return fmt.Sprintf("localhost:%d", tcp.Port)
	}
	return addr.String()
}

// wait blocks until interrupted is done, and then returns nil. If a server fails or a successor has
// taken over, it returns the reason instead. In each case a successor that is ready has taken over.
func (d *demo) wait(interrupted context.Context, s *successors) (err error) {
	select {
	case <-interrupted.Done():
	case err = <-d.failed:
	case <-s.handed:
	}
	s.close()
	select {
	case <-s.handed:
		d.handedOver = true
		if d.movesAdmin() {
			d.startPrivateAdmin()
		} else {
			_ = d.adminServer.Close() // the successor may wait for the address
		}
		if err == nil {
			err = errHandedOver
		}
	default:
	}
	return err
}

// drainLimit is how long HTTP clients are told that their connections end before those that wait are
// closed. It is more than most clients that are at work wait between two requests.
const drainLimit = time.Second

// delay serves on for a while after it has made the readiness checks fail, so that load balancers find
// that out before connections are refused. In the end it drains HTTP connections. It ends early if a
// server fails.
func (d *demo) delay(limit time.Duration) {
	d.leaving.Store(true)
	d.health.Shutdown() // clients that watch go elsewhere from now on
	if limit == 0 {
		return
	}
	// One wait after the other, with no timer for both: a process that was stopped for so long finds both
	// times over, and drains nevertheless.
	if !d.serveFor(max(limit-drainLimit, 0)) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var draining sync.WaitGroup
	draining.Go(func() { d.drainHTTP(ctx) })
	d.serveFor(min(limit, drainLimit)) // new connections come until then, even if none is left for a moment
	cancel()
	draining.Wait()
}

// serveFor serves on for a while. It reports false, before that, if a server fails.
func (d *demo) serveFor(limit time.Duration) bool {
	select {
	case <-time.After(limit):
		return true
	case err := <-d.failed:
		d.log.Error("a server failed before the end of the delay", "err", err)
		return false
	}
}

// drainHTTP makes clients that use HTTP open their next connections elsewhere, until ctx ends or no
// connection is left. Plain net/http can't do that.
func (d *demo) drainHTTP(ctx context.Context) {
	if s, ok := d.httpServer.(handover.Drainer); ok {
		_ = s.Drain(ctx)
	}
}

// shutdown stops accepting and gives requests in progress at most limit to finish, then cuts them
// off. When it returns, no server is running. After a handover it drains the HTTP connections that are
// left first: those over TLS can't move.
func (d *demo) shutdown(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() {
		if d.handedOver {
			some, cancel := context.WithTimeout(ctx, min(drainLimit, limit/2))
			d.drainHTTP(some)
			cancel()
		}
		d.shutdownHTTP(ctx)
	})
	stopping.Go(func() { d.shutdownGRPC(ctx) })
	stopping.Go(func() { _ = d.webSockets.conns.Shutdown(ctx) })
	stopping.Wait()
	// Once more, for those that handlers have upgraded in the meantime. Those that were cut off are still
	// there.
	if err := d.webSockets.conns.Shutdown(ctx); err != nil {
		d.log.Warn("WebSockets cut off", "err", err)
	}
	_ = d.adminServer.Close() // last, because it shows what the others wait for
	d.serving.Wait()
}

func (d *demo) shutdownHTTP(ctx context.Context) {
	if err := d.httpServer.Shutdown(ctx); err != nil {
		d.log.Warn("HTTP requests cut off", "err", err)
		_ = d.httpServer.Close() // its error says that the listener is already closed
	}
}

func (d *demo) shutdownGRPC(ctx context.Context) {
	d.health.Shutdown() // clients that watch go elsewhere from now on
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		d.grpcServer.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		d.log.Warn("gRPC calls cut off", "err", ctx.Err())
		d.grpcServer.Stop() // makes GracefulStop return
		<-graceful
	}
}

// printSummary prints the totals since startup.
func (d *demo) printSummary(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nuptime\t%s\n", time.Since(d.started).Round(time.Millisecond))
	printCount(table, "connections", d.httpListener.accepted(), d.grpcListener.accepted())
	printCount(table, "requests", d.httpRequests.Load(), d.grpcRequests.Load())
	fmt.Fprintf(table, "parked\t%s\n", d.engine.parked(d.httpServer))
	fmt.Fprintf(table, "fast path\t%s\n", d.engine.fastPath(d.httpServer))
	fmt.Fprintf(table, "HTTP/2\t%s\n", d.engine.http2(d.httpServer))
	fmt.Fprintf(table, "gRPC\t%s\n", d.engine.calls(d.grpcServer))
	fmt.Fprintf(table, "not copied\t%s\n", d.engine.zeroCopied())
	fmt.Fprintf(table, "events per wake-up\t%s\n", d.engine.eventsPerWakeup())
	table.Flush()
}

// printCount prints a line of the summary: the sum and its parts.
func printCount(w io.Writer, name string, overHTTP, overGRPC uint64) {
	fmt.Fprintf(w, "%s\t%d (%d HTTP, %d gRPC)\n", name, overHTTP+overGRPC, overHTTP, overGRPC)
}

// release closes everything that newDemo has opened so far. If the servers ran, they have already
// closed their listeners.
func (d *demo) release() {
	for _, l := range []openListener{d.httpListener, d.grpcListener, {Listener: d.admin}} {
		if l.Listener != nil {
			_ = l.Close()
		}
	}
	if d.predecessor != nil {
		_ = d.predecessor.Close()
	}
	if d.engine != nil {
		d.engine.close()
	}
	if d.root != nil {
		_ = d.root.Close()
	}
}
