package target

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// nginxServer is nginx, where it is installed, with an answer from its configuration or as a proxy. It
// shows what HTTP/1.1 costs a server written in C. It has a worker for each processor that Go would use.
type nginxServer struct {
	exe     string
	overTLS bool
	backend string        // "": it answers itself
	started chan struct{} // closed when master is running
	master  *exec.Cmd
}

func newNginxServer(spec Spec) (server, error) {
	exe, err := exec.LookPath("nginx")
	if err != nil {
		return nil, fmt.Errorf("nginx is not installed: %w", err)
	}
	s := &nginxServer{exe: exe, overTLS: spec.TLS, started: make(chan struct{})}
	if spec.App == AppProxyHTTP {
		s.backend = spec.Backend
	}
	return s, nil
}

// nginxConf is the configuration. Its limits are higher than any scenario needs, and a connection
// stays open as it does with net/http.
const nginxConf = `daemon off;
worker_processes %[4]d;
pid %[1]s/pid;
error_log stderr error;
events { worker_connections 65536; }
http {
	access_log off;
	server_tokens off;
	default_type text/plain;
	keepalive_timeout 1h;
	keepalive_requests 4294967295;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	proxy_max_temp_file_size 0;
	proxy_http_version 1.1;
	proxy_set_header Connection "";
	%[5]s
	server {
		listen %[2]s;
		location / { %[3]s; }
	}
}
`

// nginxUpstream is the part about the server behind a proxy. Its connections stay open, too.
const nginxUpstream = `upstream backend {
		server %s;
		keepalive %d;
		keepalive_timeout 1h;
		keepalive_requests 4294967295;
	}
`

// write writes the configuration for a server on addr, and what it names. It returns its file.
func (s *nginxServer) write(dir string, addr net.Addr) (conf string, err error) {
	listen, upstream := addr.String(), ""
	does := fmt.Sprintf(`return 200 "%s"`, strings.ReplaceAll(string(helloBody), "\n", `\n`))
	if s.backend != "" {
		upstream, does = fmt.Sprintf(nginxUpstream, s.backend, proxyIdleMax), "proxy_pass http://backend"
	}
	if s.overTLS {
		key, cert, err := writeSelfSigned(dir)
		if err != nil {
			return "", err
		}
		listen += fmt.Sprintf(" ssl; ssl_protocols TLSv1.3; ssl_certificate_key %s; ssl_certificate %s", key, cert)
	}
	conf = filepath.Join(dir, "nginx.conf")
	return conf, os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, listen, does, runtime.GOMAXPROCS(0), upstream), 0o600)
}

// Serve blocks until nginx ends. nginx inherits the socket of l in the same way as when it replaces
// itself.
func (s *nginxServer) Serve(l net.Listener) error {
	runtime.LockOSThread() // prctl(2): PR_SET_PDEATHSIG depends on the starting thread
	dir, err := os.MkdirTemp("", "percore-nginx-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd, err := s.start(dir, l)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for { // nginx writes its pid when it has read its configuration and made its folders
		select {
		case err := <-ended:
			return fmt.Errorf("nginx ended: %v", err)
		case <-time.After(time.Millisecond):
		}
		if text, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil && len(text) > 0 {
			break
		}
	}
	os.RemoveAll(dir) // nginx has read it; later this process may be killed
	s.master = cmd
	close(s.started)
	return fmt.Errorf("nginx ended: %v", <-ended)
}

func (s *nginxServer) start(dir string, l net.Listener) (*exec.Cmd, error) {
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	conf, err := s.write(dir, l.Addr())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.exe, "-p", dir, "-c", conf)
	cmd.Env = append(os.Environ(), "NGINX=3;") // the first of ExtraFiles
	cmd.ExtraFiles = []*os.File{socket}
	cmd.Stderr = os.Stderr
	// SIGTERM ends the workers too. They would outlive a master that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// Start has made the socket blocking (File.Fd), and nginx doesn't change an inherited socket. A
	// worker would block there if another worker accepts the connection first, and its clients
	// would wait with it.
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) { err = syscall.SetNonblock(int(fd), true) })
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return cmd, nil
}

// usage returns what the workers have consumed. Nothing is known about a heap.
func (s *nginxServer) usage() (u Usage, err error) {
	workers, err := s.workers()
	for _, pid := range workers {
		err = errors.Join(err, u.addProcess(pid))
	}
	return u, err
}

// memory returns the resident memory of the workers.
func (s *nginxServer) memory() (m Memory, err error) {
	workers, err := s.workers()
	for _, pid := range workers {
		rss, failure := Resident(pid)
		m.Resident += rss
		err = errors.Join(err, failure)
	}
	return m, err
}

// workers returns the pids of the master's children.
func (s *nginxServer) workers() ([]string, error) {
	<-s.started
	pid := s.master.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	return strings.Fields(string(children)), err
}
