//go:build !percore_net

package reactor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// BenchmarkPingPong is one client on one connection, 64 bytes there and back, with nothing else to do:
// the median latency of event handlers with each strategy, beside blocking code, package net and a
// bare epoll loop in C. Each server is a process of its own. The client blocks in the kernel, so that
// no scheduler but the server's takes part. The servers take turns in a benchmark's rounds only by
// -count: compare medians of several.
func BenchmarkPingPong(b *testing.B) {
	for _, server := range []string{"C", "thread+pin", "thread", "nested", "blocking", "net"} {
		b.Run(server, func(b *testing.B) {
			port := startPingPong(b, server)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			fd := dialBlocking(b, port)
			defer unix.Close(fd)
			message := make([]byte, 64)
			var latencies []time.Duration
			for b.Loop() {
				begin := time.Now()
				pingPong(b, fd, message)
				latencies = append(latencies, time.Since(begin))
			}
			slices.Sort(latencies)
			b.ReportMetric(float64(latencies[len(latencies)/2].Nanoseconds()), "p50-ns")
		})
	}
}

func dialBlocking(b *testing.B, port int) int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err != nil {
		b.Fatal(err)
	}
	return fd
}

func pingPong(b *testing.B, fd int, message []byte) {
	if _, err := unix.Write(fd, message); err != nil {
		b.Fatal(err)
	}
	for got := 0; got < len(message); {
		n, err := unix.Read(fd, message[got:])
		if n <= 0 && err != unix.EINTR {
			b.Fatalf("got %d of %d bytes, %v", got, len(message), err)
		}
		got += max(n, 0)
	}
}

// startPingPong starts a server, until the benchmark ends, and returns its port.
func startPingPong(b *testing.B, server string) int {
	var out io.Reader
	if server == "C" {
		out = startC(b)
	} else {
		child := testnet.StartChild(b, "pingpong", "PINGPONG="+server)
		b.Cleanup(func() {
			if err := child.Wait(); err != nil {
				b.Error(err)
			}
		})
		out = child.Stdout
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		b.Fatal(err)
	}
	return port
}

// startC compiles and starts the server in C, if there is a compiler.
func startC(b *testing.B) io.Reader {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		b.Skip("there is no C compiler")
	}
	program := filepath.Join(b.TempDir(), "pingpong")
	if text, err := exec.Command(compiler, "-O2", "-o", program, "testdata/pingpong.c").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, text)
	}
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return out
}

func init() { children = append(children, testnet.WithChild("pingpong", runPingPong)) }

// runPingPong is a server in a process of its own, until its standard input ends.
func runPingPong() {
	kind := os.Getenv("PINGPONG")
	ln, err := listenPingPong(kind)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr().(*net.TCPAddr).Port)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if kind == "net" || kind == "blocking" {
			serveBlocking(ln)
			return
		}
		_ = Serve(ln, echoAll{}, Config{})
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	ln.Close()
	<-done
}

func listenPingPong(kind string) (net.Listener, error) {
	config := loop.Config{Loops: 1}
	switch kind {
	case "net":
		return net.Listen("tcp4", "127.0.0.1:0")
	case "thread":
		config.Strategy = loop.Thread
	case "thread+pin":
		config.Strategy, config.Pin = loop.Thread, true
	}
	group, err := loop.NewGroup(config)
	if err != nil {
		return nil, err
	}
	defer group.Close() // the listener has it
	lc := percore.ListenConfig{Group: group}
	return lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
}

// serveBlocking echoes on a goroutine per connection.
func serveBlocking(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 4096)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// echoAll sends back all that comes.
type echoAll struct{}

func (echoAll) Open(*Conn)         {}
func (echoAll) Close(*Conn, error) {}

func (echoAll) Data(c *Conn, p []byte) int {
	c.Write(p)
	return len(p)
}
