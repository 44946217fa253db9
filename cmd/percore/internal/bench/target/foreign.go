package target

import (
	"bytes"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/selfsigned"
)

// foreign is a server written in C, where it is installed. It shows what HTTP costs one. It has a
// thread or a worker for each processor that Go would use.
type foreign struct {
	name      string
	arguments func(dir string, addr *net.TCPAddr) ([]string, error) // writes the files that they name
	pid       int                                                   // once it has started
}

// newForeign returns a server that runs a program.
func newForeign(name string, arguments func(dir string, addr *net.TCPAddr) ([]string, error)) (*server, error) {
	f := &foreign{name: name, arguments: arguments}
	return &server{serve: f.serve, foreign: f}, nil
}

// serve blocks until the program ends. It closes l: the program opens the same port anew.
func (f *foreign) serve(l net.Listener, ready func()) error {
	runtime.LockOSThread() // prctl(2): PR_SET_PDEATHSIG depends on the starting thread
	dir, err := os.MkdirTemp("", "percore-"+f.name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	addr := l.Addr().(*net.TCPAddr)
	args, err := f.arguments(dir, addr)
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	cmd := exec.Command(f.name, args...)
	cmd.Stderr = os.Stderr
	// SIGTERM ends nginx's workers, too. They would outlive a master that is killed.
	cmd.SysProcAttr = endsWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !accepts(addr) {
		select {
		case err := <-ended:
			return fmt.Errorf("%s ended: %v", f.name, err)
		case <-time.After(time.Millisecond):
		}
	}
	f.pid = cmd.Process.Pid
	if f.name == "nginx" {
		os.RemoveAll(dir) // it has read it; later this process may be killed
	}
	ready()
	return fmt.Errorf("%s ended: %v", f.name, <-ended)
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

// family returns the program's process and its children.
func (f *foreign) family() []int {
	all := []int{f.pid}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", f.pid, f.pid))
	for text := range strings.FieldsSeq(string(children)) {
		child, _ := strconv.Atoi(text)
		all = append(all, child)
	}
	return all
}

// usage returns the CPU time of the program, as user's. Nothing is known about a heap.
func (f *foreign) usage(u *scenario.Usage) (err error) {
	for _, pid := range f.family() {
		used, failure := CPU(pid)
		u.User += used
		err = errors.Join(err, failure)
	}
	return err
}

// memory returns the resident memory of the program.
func (f *foreign) memory(m *scenario.Memory) (err error) {
	for _, pid := range f.family() {
		n, failure := Resident(pid)
		m.Resident += n
		err = errors.Join(err, failure)
	}
	return err
}

// writeSelfSigned writes a private key and its certificate into a file.
func writeSelfSigned(dir string) (file string, err error) {
	cert, err := selfsigned.New("")
	if err != nil {
		return "", err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return "", err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})...)
	file = filepath.Join(dir, "site.pem")
	return file, os.WriteFile(file, text, 0o600)
}

// newNghttpd returns nghttp2's server for HTTP/2. It sends the handler's answer as a file.
func newNghttpd(order *scenario.Order) (*server, error) {
	h, err := new(server).handler(order)
	if err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	return newForeign("nghttpd", func(dir string, addr *net.TCPAddr) ([]string, error) {
		args := []string{"--address=" + addr.IP.String(), "--htdocs=" + dir, "--workers=" + strconv.Itoa(runtime.GOMAXPROCS(0))}
		err := os.WriteFile(filepath.Join(dir, "index.html"), rec.Body.Bytes(), 0o600)
		if err != nil || !order.TLS {
			return append(args, "--no-tls", strconv.Itoa(addr.Port)), err
		}
		site, err := writeSelfSigned(dir)
		return append(args, strconv.Itoa(addr.Port), site, site), err
	})
}

//go:embed nginx.conf.tmpl
var nginxText string

var nginxConf = template.Must(template.New("nginx.conf").Parse(nginxText))

// newNginx returns nginx, with an answer from its configuration or as a proxy.
func newNginx(order *scenario.Order) (*server, error) {
	return newForeign("nginx", func(dir string, addr *net.TCPAddr) (args []string, err error) {
		c := struct {
			Dir, Addr, Site, Behind, Answer string
			Workers, Idle                   int
		}{Dir: dir, Addr: addr.String(), Behind: order.Behind, Answer: string(helloBody), Workers: runtime.GOMAXPROCS(0), Idle: idleMax}
		if order.TLS {
			if c.Site, err = writeSelfSigned(dir); err != nil {
				return nil, err
			}
		}
		var text bytes.Buffer
		if err := nginxConf.Execute(&text, c); err != nil {
			return nil, err
		}
		conf := filepath.Join(dir, "nginx.conf")
		return []string{"-p", dir, "-c", conf}, os.WriteFile(conf, text.Bytes(), 0o600)
	})
}
