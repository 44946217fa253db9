//go:build !percore_net

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore/cmd/percore/internal/echopb"
	"github.com/percore/percore/internal/testnet"
)

// unit is a .socket unit of systemd's: sockets that stay open while the service ends and begins.
type unit struct {
	files []*os.File
	names []string
	addrs map[string]net.Addr // by name
}

// listen adds sockets with a name. All have one address.
func (u *unit) listen(t *testing.T, name string, count int) {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		ctlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		if err == nil {
			err = ctlErr
		}
		return err
	}}
	address := "127.0.0.1:0"
	for range count {
		l, err := lc.Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		address = l.Addr().String()
		f, err := l.(*net.TCPListener).File()
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		u.files = append(u.files, f)
		u.names = append(u.names, name)
		if u.addrs == nil {
			u.addrs = make(map[string]net.Addr)
		}
		u.addrs[name] = l.Addr()
	}
}

// start is for generations.prepare: the process gets the sockets as systemd passes them.
func (u *unit) start(cmd *exec.Cmd) {
	// Only the process itself knows its pid before it runs.
	cmd.Args = append([]string{"sh", "-c", `export LISTEN_PID=$$; exec "$@"`, "sh"}, cmd.Args...)
	cmd.Path = "/bin/sh"
	cmd.ExtraFiles = append([]*os.File{}, u.files...)
	cmd.Env = append(cmd.Env, fmt.Sprint("LISTEN_FDS=", len(u.files)), "LISTEN_FDNAMES="+strings.Join(u.names, ":"))
}

// mustServe fails the test unless all sockets are served.
func (u *unit) mustServe(t *testing.T) {
	t.Helper()
	for range 16 { // both sockets of HTTP get some of these
		resp, body := fetchOnce(t, nil, "http://"+u.addrs["http"].String()+"/")
		if resp.StatusCode != http.StatusOK {
			t.Errorf("HTTP: got %s, %q", resp.Status, body)
		}
	}
	cc, err := grpc.NewClient(u.addrs["grpc"].String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	if _, err := echopb.NewEchoClient(cc).Unary(ctx, &echopb.EchoRequest{Message: "hello"}); err != nil {
		t.Errorf("gRPC: %v", err)
	}
	wantGuard(t, u.addrs["admin"], "/ready")
}

// Sockets that a service manager has opened are served, by the first process and by its successors;
// while no process is there their connections wait.
func TestServeSockets(t *testing.T) {
	u := new(unit)
	u.listen(t, "http", 2)
	u.listen(t, "grpc", 1)
	u.listen(t, "admin", 1)
	g := newGenerations(t)
	g.prepare = u.start
	args := []string{"-admin", ":0"} // neither this address is used, nor the others
	g.startFirst(args...)
	u.mustServe(t)
	for range 2 {
		g.restart()
		u.mustServe(t)
	}
	if _, err := net.Dial("tcp", g.httpAddress); err == nil {
		t.Errorf("the server listens on %s, too", g.httpAddress)
	}
	g.stop()

	waiting, err := net.Dial("tcp", u.addrs["http"].String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	_ = waiting.SetDeadline(time.Now().Add(testnet.HangTimeout))
	io.WriteString(waiting, "GET / HTTP/1.0\r\n\r\n")
	g.startFirst(args...)
	answer := make([]byte, len("HTTP/1.0 200"))
	if _, err := io.ReadFull(waiting, answer); err != nil || !strings.HasSuffix(string(answer), " 200") {
		t.Errorf("a connection that has waited for the service: got %q, %v", answer, err)
	}
	g.stop()
	if g.count("panic") > 0 {
		t.Errorf("the processes say:\n%s", g.output)
	}
}

// Sockets that make no sense are refused, in a line that says why.
func TestServeSocketsRefused(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	packetFile, err := packets.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer packetFile.Close()
	for _, test := range []struct {
		name   string
		args   []string
		packet bool
		want   string
	}{
		{"mail", nil, false, `a socket named "mail"`},
		{"http", []string{"-tls"}, false, `a socket named "http"`},
		{"admin", nil, false, `a socket named "admin"`},
		{"x.socket", nil, true, `part "http"`},
	} {
		u := new(unit)
		u.listen(t, test.name, 1)
		if test.packet {
			u.files[0] = packetFile
		}
		g := newGenerations(t)
		g.prepare = u.start
		cmd := g.start(test.args...)
		if _ = waitFor(t, cmd); cmd.ProcessState.ExitCode() != exitFailure {
			t.Errorf("%s %q: got %v, want status %d", test.name, test.args, cmd.ProcessState, exitFailure)
		}
		testnet.Within(t, "reading the process's output", g.printing.Wait)
		if g.count(test.want) != 1 {
			t.Errorf("%s %q: got\n%s\nwant %q", test.name, test.args, g.output, test.want)
		}
	}
}
