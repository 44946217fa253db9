package clients

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// A proxied server is one that nginx passes calls or requests to.
type proxied struct {
	name    string
	door    door
	pass    string // nginx's directives; they call the server "upstream"
	clients []string
	plays   string // the names of the scenarios
}

var behindNginx = []proxied{
	{
		name: "grpc_pass", door: grpcDoors[1],
		pass:    "grpc_pass grpc://upstream; grpc_buffer_size 64k;",
		clients: []string{"grpcio", "grpc-js"},
		plays:   "unary up down both slow cancel deadline status metadata",
	},
	{
		// HTTP/1.1 on connections that are kept.
		name: "proxy_pass", door: webDoors[1],
		pass:    `proxy_pass http://upstream; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; proxy_buffering off;`,
		clients: []string{"curl", "Node http2"},
		plays:   "unary up down slow cancel deadline big",
	},
}

// TestNginx plays to percore's servers through nginx: it has requests and calls of its own, of several
// clients on one connection, and cancels them in its own way.
func TestNginx(t *testing.T) {
	if !full {
		t.Skip("set PERCORE_TEST_FULL=1 to run it")
	}
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not in PATH: " + install)
	}
	for _, p := range behindNginx {
		t.Run(p.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			server, _ := open(t, p.door, transports[0])
			front := startNginx(t, program, server, p.pass)
			for _, c := range clients {
				if slices.Contains(p.clients, c.name) {
					t.Run(c.name, func(t *testing.T) {
						c.prepare(t)
						scenarios := slices.DeleteFunc(c.scenariosOver(transports[2]), func(s scenario) bool {
							return !slices.Contains(strings.Fields(p.plays), s.name)
						})
						c.play(t, scenarios, 1000, false, front, "")
					})
				}
			}
		})
	}
}

// startNginx starts nginx in front of a server, on a unix socket. It returns what clients are told.
func startNginx(t *testing.T, program, server, pass string) (target string) {
	t.Helper()
	_, socket := testnet.Address(t, testnet.Unix)
	folder := t.TempDir()
	config := fmt.Sprintf(`
daemon off; master_process off; pid %[1]s/pid; error_log stderr warn;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	client_max_body_size 0; keepalive_requests 1000000; large_client_header_buffers 4 64k;
	upstream upstream { server %[2]s; keepalive 16; }
	server { listen unix:%[3]s http2; http2_max_concurrent_streams 1000; location / { %[4]s } }
}
`, folder, server, socket, pass)
	file := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(testnet.Log)
	cmd := exec.Command(program, "-e", "stderr", "-c", file)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nginx says:\n%s", log)
		}
	})
	testnet.Eventually(t, "nginx's socket", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return "unix:" + socket
}
