package frameworks

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// haproxyWays are the server options with which haproxy announces its clients in different ways.
var haproxyWays = []string{
	"send-proxy",
	"send-proxy-v2",
	"send-proxy-v2 proxy-v2-options crc32c,unique-id",
	"send-proxy check inter 50",            // its checks send a header, too: UNKNOWN,
	"send-proxy-v2 check inter 50",         // or LOCAL
	"send-proxy-v2 check inter 50 port %d", // no header: its checks connect and leave
}

// TestHAProxy runs haproxy, where it is installed, in front of an http.Server. haproxy announces
// the clients in each way and checks the server's health at the same time.
func TestHAProxy(t *testing.T) {
	program, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not in PATH: install it to run this test")
	}
	testnet.NoLeaks(t)
	lc := percore.ListenConfig{ProxyProtocol: &percore.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}}
	ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	testnet.ServeWeb(t, httpadapter.Wrap(&http.Server{Handler: whoAmI}), ln, false)
	fronts, log := startHAProxy(t, program, ln.Addr().(*net.TCPAddr))
	for i, front := range fronts {
		for range 3 {
			c := testnet.Dial(t, front)
			get := testnet.KeepAlive(t, c)
			for _, path := range []string{"/a", "/b"} {
				if got, want := get(path), c.LocalAddr().String()+" "+path; got != want {
					t.Errorf("%s: got %q, want %q", haproxyWays[i], got, want)
				}
			}
			c.Close()
		}
	}
	for i, way := range haproxyWays {
		if strings.Contains(way, "check") {
			testnet.Eventually(t, "a check of "+way, func() bool {
				return log.Has(fmt.Sprintf("Health check for server b%d/s succeeded", i))
			})
		}
	}
	if s := ln.(*percore.Listener).Stats(); s.BadHeaders != 0 || log.Has("failed") {
		t.Errorf("percore counts %d bad headers, and haproxy says:\n%s", s.BadHeaders, log)
	}
}

// startHAProxy starts a haproxy with a listener for each way. It returns the listeners and what
// haproxy logs.
func startHAProxy(t *testing.T, program string, server *net.TCPAddr) (fronts []net.Listener, log *testnet.Log) {
	t.Helper()
	log = new(testnet.Log)
	cmd := exec.Command(program, "-db", "-f", filepath.Join(t.TempDir(), "haproxy.cfg"))
	var config bytes.Buffer
	fmt.Fprintln(&config, "global\n log stderr format raw local0 info")
	fmt.Fprintln(&config, "defaults\n mode tcp\n log global\n option log-health-checks")
	fmt.Fprintln(&config, " timeout connect 30s\n timeout client 60s\n timeout server 60s\n timeout check 30s")
	for i, way := range haproxyWays {
		if strings.Contains(way, "%d") {
			way = fmt.Sprintf(way, server.Port)
		}
		ln := testnet.Listen(t, net.Listen, testnet.TCP4)
		file, err := ln.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		fronts, cmd.ExtraFiles = append(fronts, ln), append(cmd.ExtraFiles, file)
		fmt.Fprintf(&config, "frontend f%d\n bind fd@%d\n unique-id-format %%ci:%%cp\n default_backend b%d\n", i, 3+i, i)
		fmt.Fprintf(&config, "backend b%d\n server s %v %s\n", i, server, way)
	}
	if err := os.WriteFile(cmd.Args[len(cmd.Args)-1], config.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy says:\n%s", log)
		}
	})
	return fronts, log
}
