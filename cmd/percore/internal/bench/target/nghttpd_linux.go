package target

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// nghttpdServer is nghttpd, nghttp2's server, where it is installed. It shows what HTTP/2 costs a
// server written in C. It sends the handler's answer as a file, and has a thread for each processor
// that Go would use.
type nghttpdServer struct {
	exe     string
	overTLS bool
	answer  []byte
	started chan struct{} // closed when nghttpd accepts connections
	process *os.Process
}

func newNghttpdServer(spec Spec) (server, error) {
	exe, err := exec.LookPath("nghttpd")
	if err != nil {
		return nil, fmt.Errorf("nghttpd is not installed: %w", err)
	}
	h, err := handler(spec)
	if err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	return &nghttpdServer{exe: exe, overTLS: spec.TLS, answer: rec.Body.Bytes(), started: make(chan struct{})}, nil
}

// Serve blocks until nghttpd ends. It closes l: nghttpd opens the same port anew.
func (s *nghttpdServer) Serve(l net.Listener) error {
	runtime.LockOSThread() // prctl(2): PR_SET_PDEATHSIG depends on the starting thread
	dir, err := os.MkdirTemp("", "percore-nghttpd-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args, err := s.write(dir)
	if err != nil {
		return err
	}
	addr := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		return err
	}
	cmd := exec.Command(s.exe, append([]string{
		"--address=" + addr.IP.String(), "--htdocs=" + dir, "--workers=" + strconv.Itoa(runtime.GOMAXPROCS(0)), strconv.Itoa(addr.Port),
	}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !accepts(addr) {
		select {
		case err := <-ended:
			return fmt.Errorf("nghttpd ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	s.process = cmd.Process
	close(s.started)
	return fmt.Errorf("nghttpd ended: %v", <-ended)
}

// write writes the files, and returns the arguments about TLS.
func (s *nghttpdServer) write(dir string) (args []string, err error) {
	if err := os.WriteFile(filepath.Join(dir, "index.html"), s.answer, 0o600); err != nil {
		return nil, err
	}
	if !s.overTLS {
		return []string{"--no-tls"}, nil
	}
	key, cert, err := writeSelfSigned(dir)
	return []string{key, cert}, err
}

// accepts reports whether a server accepts connections.
func accepts(addr net.Addr) bool {
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func (s *nghttpdServer) ready() <-chan struct{} { return s.started }

// usage returns what nghttpd has consumed. Nothing is known about a heap.
func (s *nghttpdServer) usage() (u Usage, err error) {
	<-s.started
	return u, u.addProcess(strconv.Itoa(s.process.Pid))
}

// memory returns the resident memory of nghttpd.
func (s *nghttpdServer) memory() (m Memory, err error) {
	<-s.started
	m.Resident, err = Resident(strconv.Itoa(s.process.Pid))
	return m, err
}
