//go:build !percore_net

package http2

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestIdleBudget measures the memory of a connection that is idle after a request, here and in the
// engine. It is 304 bytes: 144 in loop.FD and 32 in its deadline's entry in the wheel, 48 in
// percore.Conn, and 80 in pool.Conn. Lists of connections come to that, and what a host takes. Over TLS
// there are 240 in link's session, and 5.9 KiB that crypto/tls keeps: half of them in two buffers, as
// long as the certificate makes them.
func TestIdleBudget(t *testing.T) {
	for _, test := range []struct {
		name         string
		overTLS      bool
		conns, hosts int
		heapBytesMax int
	}{
		{"one host", false, 5000, 1, 370},
		{"many hosts", false, 5000, 1000, 450},
		{"TLS", true, 1000, 1, 7000},
	} {
		t.Run(test.name, func(t *testing.T) {
			const few = 100 // to warm up
			if race.Enabled {
				t.Skip("the race detector allocates: run it without -race")
			}
			needDescriptors(t, 3*test.conns)
			scheme := "http"
			server, client := testnet.TLS(t)
			if test.overTLS {
				scheme = "https"
			} else {
				server = nil
			}
			port := answerOnce(t, server)
			leaveIdle := func(conns int) {
				t.Helper()
				tr := New(&http.Transport{MaxIdleConnsPerHost: conns, IdleConnTimeout: time.Hour, TLSClientConfig: client})
				t.Cleanup(tr.CloseIdleConnections)
				var bodies []io.ReadCloser // while they aren't read each request gets a connection of its own
				for i := range conns {
					host := i % test.hosts
					resp, err := tr.RoundTrip(newGet(t, fmt.Sprintf("%s://127.0.%d.%d:%d/", scheme, host/250, 1+host%250, port)))
					if err != nil {
						t.Fatal(err)
					}
					bodies = append(bodies, resp.Body)
				}
				for _, b := range bodies {
					if _, err := io.Copy(io.Discard, b); err != nil {
						t.Fatal(err)
					}
				}
				if got := tr.Stats().Idle; got != conns {
					t.Fatalf("%d connections are idle, want %d", got, conns)
				}
			}
			leaveIdle(few)
			goroutines, before := runtime.NumGoroutine(), testnet.HeapBytes()
			leaveIdle(test.conns)
			loops := max(0, runtime.GOMAXPROCS(0)-2) // few connections start two of them
			testnet.Eventually(t, "no goroutine more", func() bool { return runtime.NumGoroutine() <= goroutines+loops })
			each := (testnet.HeapBytes() - before) / test.conns
			t.Logf("%d bytes of heap per idle connection", each)
			if each > test.heapBytesMax {
				t.Errorf("got %d bytes of heap per idle connection, want at most %d", each, test.heapBytesMax)
			}
		})
	}
}

// needDescriptors skips a test if the process may not have as many descriptors.
func needDescriptors(t *testing.T, n int) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(n) {
		t.Skipf("needs %d open files, may have %d (%v): raise the limit with ulimit -n", n, limit.Cur, err)
	}
}

// answerOnce answers one request on each connection, over TLS if there is a configuration, and returns
// its port at all addresses. Its ends of the connections are raw descriptors, which cost nothing in the
// heap, and stay open until the test ends.
func answerOnce(t *testing.T, config *tls.Config) (port int) {
	t.Helper()
	ln, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	fds := []int{ln}
	if err := unix.Listen(ln, 100); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(ln)
	if err != nil {
		t.Fatal(err)
	}
	port = sa.(*unix.SockaddrInet4).Port
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := make([]byte, 4<<10)
		for {
			fd, _, err := unix.Accept(ln)
			if err != nil {
				t.Error(err)
				return
			}
			fds = append(fds, fd)
			var c io.ReadWriter = rawEnd{fd: fd}
			if config != nil {
				c = tls.Server(rawEnd{fd: fd}, config)
			}
			if _, err := c.Read(p); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		}
	}()
	t.Cleanup(func() {
		if c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			c.Close() // a connection without a request ends the server
		}
		<-done
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	return port
}

// rawEnd is a descriptor as far as crypto/tls needs a connection.
type rawEnd struct {
	net.Conn
	fd int
}

func (r rawEnd) Read(p []byte) (int, error) {
	n, err := unix.Read(r.fd, p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (r rawEnd) Write(p []byte) (int, error) { return unix.Write(r.fd, p) }
