package target

import (
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"text/template"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/selfsigned"
)

// Arguments returns the arguments of the program that order names: nginx, or nghttpd, which is nghttp2's
// server for HTTP/2. It makes the program's files in dir. The program serves at order.Addr with procs
// workers.
func Arguments(order *scenario.Order, dir string, procs int) (args []string, err error) {
	site := ""
	if order.TLS {
		if site, err = writeSelfSigned(dir); err != nil {
			return nil, err
		}
	}
	if order.Engine.Kind == scenario.Nginx {
		return nginxArguments(order, dir, site, procs)
	}
	return nghttpdArguments(order, dir, site, procs)
}

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

// nghttpdArguments makes nghttpd send the handler's answer as a file.
func nghttpdArguments(order *scenario.Order, dir, site string, procs int) ([]string, error) {
	h, err := new(server).handler(order)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(order.Addr)
	if err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	args := []string{"--address=" + host, "--htdocs=" + dir, "--workers=" + strconv.Itoa(procs)}
	if site == "" {
		args = append(args, "--no-tls", port)
	} else {
		args = append(args, port, site, site)
	}
	return args, os.WriteFile(filepath.Join(dir, "index.html"), rec.Body.Bytes(), 0o600)
}

//go:embed nginx.conf.tmpl
var nginxText string

var nginxConf = template.Must(template.New("nginx.conf").Parse(nginxText))

// nginxArguments makes nginx send an answer from its configuration, or be a proxy.
func nginxArguments(order *scenario.Order, dir, site string, procs int) ([]string, error) {
	conf := filepath.Join(dir, "nginx.conf")
	f, err := os.Create(conf)
	if err != nil {
		return nil, err
	}
	err = nginxConf.Execute(f, map[string]any{
		"Dir": dir, "Addr": order.Addr, "Site": site, "Behind": order.Behind, "Answer": string(helloBody),
		"Workers": procs, "Idle": idleMax,
	})
	return []string{"-p", dir, "-c", conf}, errors.Join(err, f.Close())
}
