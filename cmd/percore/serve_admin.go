package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/percore/percore/debug"
	"github.com/percore/percore/metrics/prometheus"
)

// defaultAdminAddress is on the loopback interface: the pages show the program's insides.
const defaultAdminAddress = "127.0.0.1:6060"

// adminEndpoints lists the pages for the people who run the server.
var adminEndpoints = []struct{ Path, About string }{
	{"/debug/percore", "the engine, live"},
	{"/metrics", "the same for Prometheus"},
	{"/debug/pprof/", "profiles of the process"},
	{predecessorPath + "/metrics", "the same of the process before, while it finishes; so for the others"},
	{"/ready", "for load balancers: 503 once the server is about to stop"},
}

// newAdminServer returns the server of these pages. It is an ordinary http.Server, on a loop of its own,
// because people need it when something is wrong with the others. isLocal says that it can be reached
// from this machine only. predecessor is the pid of the process that this one has taken over from; 0:
// none.
func newAdminServer(isLocal bool, predecessor int, leaving *atomic.Bool, log *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", serveAdminIndex)
	mux.Handle("GET /ready", serveReady(leaving))
	mux.Handle("GET /metrics", prometheus.Handler())
	mux.Handle("/debug/percore", debug.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	handler := debug.RefuseCrossOrigin(mux)
	if predecessor != 0 {
		mux.Handle(predecessorPath+"/", servePredecessor(predecessor, log))
	}
	if isLocal {
		handler = guardHost(handler)
	}
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// serveAdminIndex lists the pages.
func serveAdminIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!doctype html>\n<meta charset=\"utf-8\">\n<title>percore serve</title>\n<ul>\n")
	for _, e := range adminEndpoints {
		fmt.Fprintf(w, "<li><a href=%q>%s</a>: %s</li>\n", e.Path, e.Path, e.About)
	}
	fmt.Fprint(w, "</ul>\n")
}

// adminName names the admin listener for a successor. The name includes the address: a successor that
// wants another one must not get this listener.
func (o *serveOptions) adminName() string { return adminPrefix + o.adminAddress }

const adminPrefix = "admin "

// adminSocket returns the arguments for listening.
func (o *serveOptions) adminSocket() (network, address string) {
	if path, ok := strings.CutPrefix(o.adminAddress, unixPrefix); ok {
		return "unix", path
	}
	return "tcp", o.adminAddress
}

// unixPrefix begins an admin address that is the path of a unix socket.
const unixPrefix = "unix:"

// takeAdmin takes the predecessor's admin listener, if that has the address that this process wants, and
// drops any other.
func (d *demo) takeAdmin() error {
	if d.predecessor == nil {
		return nil
	}
	for _, name := range d.predecessor.Names() {
		var err error
		switch {
		case !strings.HasPrefix(name, adminPrefix):
		case d.opts.adminAddress != "" && name == d.opts.adminName():
			d.admin, err = d.predecessor.Listener(name, &d.engine.adminConfig)
		default:
			err = d.predecessor.Drop(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listenAdmin opens the listener of the admin server, unless the admin server is turned off, or there is
// one already.
func (d *demo) listenAdmin(ctx context.Context) (err error) {
	if d.opts.adminAddress == "" || d.admin != nil {
		return nil
	}
	lc := d.engine.config()
	if lc != nil {
		lc = &d.engine.adminConfig
	}
	if d.admin, err = d.opts.sockets.listen("admin", lc); d.admin != nil || err != nil {
		return err
	}
	network, address := d.opts.adminSocket()
	d.admin, err = d.engine.listenAdmin(ctx, network, address)
	return listenError("admin", d.opts.adminAddress, err)
}

// While a predecessor finishes what is under way, its successor has the admin address. The predecessor's
// pages are then at a unix socket with its pid in the name, in a folder that is closed to other users,
// and the successor shows them below this path. If that predecessor has one, too, they are there below
// its own.
const predecessorPath = "/predecessor"

// privateAdmins returns the paths that the socket of the process with that pid may have, best first.
func privateAdmins(pid int) (paths []string) {
	for _, folder := range controlFolders() {
		paths = append(paths, filepath.Join(folder, privateAdminPrefix+strconv.Itoa(pid)))
	}
	return paths
}

// privateAdminPrefix begins the names of these sockets; the pid follows.
const privateAdminPrefix = "admin-"

// removeAbandonedAdmins removes the sockets in a folder that processes have left that were killed. A
// process that exists may be about to listen. One of another pid namespace doesn't seem to exist: it
// listens.
func removeAbandonedAdmins(folder string) {
	entries, _ := os.ReadDir(folder) // there are none if it can't be read
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), privateAdminPrefix)
		if pid, err := strconv.Atoi(digits); ok && err == nil && !processExists(pid) {
			removeAbandoned(filepath.Join(folder, e.Name()))
		}
	}
}

// processExists reports whether there is a process with that pid.
func processExists(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer p.Release()
	return !errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// startPrivateAdmin shows this process's pages to its successor, which has the admin listener now.
func (d *demo) startPrivateAdmin() {
	d.adminServer.SetKeepAlivesEnabled(false) // clients of the address connect again, to the successor
	for _, path := range privateAdmins(os.Getpid()) {
		if os.MkdirAll(filepath.Dir(path), 0o700) != nil || !isPrivate(filepath.Dir(path)) {
			continue
		}
		removeAbandonedAdmins(filepath.Dir(path))
		_ = os.Remove(path) // of an earlier process with the same pid
		if l, err := net.Listen("unix", path); err == nil {
			d.serve("admin", d.adminServer.Serve, openListener{Listener: l})
			return
		}
	}
	d.log.Warn("the successor will not show the pages of this process")
}

// isPrivate reports whether a folder belongs to this user and is closed to others.
func isPrivate(folder string) bool {
	info, err := os.Lstat(folder)
	return err == nil && info.IsDir() && info.Mode().Perm()&0o077 == 0 && isOwn(folder)
}

// servePredecessor returns a handler for the pages of the process with that pid.
func servePredecessor(pid int, log *slog.Logger) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "localhost"
		},
		Transport: &http.Transport{
			DisableKeepAlives: true, // a process that ends must not wait for this one
			DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
				var d net.Dialer
				for _, path := range privateAdmins(pid) {
					if !isPrivate(filepath.Dir(path)) {
						continue
					}
					if c, err = d.DialContext(ctx, "unix", path); err == nil {
						return c, nil
					}
					removeAbandonedAdmins(filepath.Dir(path))
				}
				return nil, errNoPredecessor
			},
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, errNoPredecessor) {
				http.Error(w, "The predecessor has ended.", http.StatusNotFound)
				return
			}
			log.Warn("the predecessor's pages", "pid", pid, "err", err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.StripPrefix(predecessorPath, proxy)
}

var errNoPredecessor = errors.New("the predecessor has ended")

// guardHost refuses requests whose Host is a name, unless it is localhost: an attacker's name may lead
// to this machine, and his page in an operator's browser could then read the answers (DNS rebinding). A
// request without Host is no browser's.
func guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" && r.Host != "" {
			http.Error(w, "Use localhost or an address instead of this host name.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isAdminLocal reports whether the admin server can be reached from this machine only, by addresses that
// are not names. A unix socket can be reached through a port of an operator's machine (ssh -L), and
// there by a name, too.
func (d *demo) isAdminLocal() bool {
	if d.admin == nil { // the predecessor has the address
		network, address := d.opts.adminSocket()
		host, _, _ := net.SplitHostPort(address)
		return network == "unix" || isLocal(host)
	}
	tcp, ok := d.admin.Addr().(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// isLocal reports whether a host of a flag is on the loopback interface.
func isLocal(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
