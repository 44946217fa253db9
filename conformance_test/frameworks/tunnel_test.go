package frameworks

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// serverOn is the environment variable that says what a child process serves on: "net" or "percore".
// If it has hubIdentity, too, it serves over TLS.
const serverOn = "PERCORE_TEST_SERVER_ON"

// serveChild serves in a process of its own, since net/http reads GODEBUG when a process starts. It
// prints the address.
func serveChild(handler http.Handler) (stop func(), err error) {
	srv := &http.Server{Handler: handler, Protocols: allProtocols()}
	listen, server := net.Listen, testnet.WebServer(srv)
	if os.Getenv(serverOn) == "percore" {
		listen, server = percore.Listen, httpadapter.Wrap(srv)
	}
	ln, err := listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	serve := func() error { return server.Serve(ln) }
	if identity := []byte(os.Getenv(hubIdentity)); len(identity) > 0 {
		cert, err := tls.X509KeyPair(identity, identity)
		if err != nil {
			return nil, err
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		serve = func() error { return server.ServeTLS(ln, "", "") }
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = serve() })
	fmt.Println(ln.Addr())
	return func() {
		server.Close()
		serving.Wait()
	}, nil
}

// startServer starts the child, with or without extended CONNECT. It returns the child, its output
// after the address, and the address.
func startServer(t *testing.T, child, on, identity string, extended bool) (*testnet.ChildProcess, *bufio.Reader, string) {
	t.Helper()
	process := testnet.StartChild(t, child, serverOn+"="+on, hubIdentity+"="+identity,
		fmt.Sprintf("GODEBUG=%s,http2xconnect=%d", os.Getenv("GODEBUG"), map[bool]int{true: 1}[extended]))
	lines := bufio.NewReader(process.Stdout)
	address, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the address of %s: %v", child, err)
	}
	return process, lines, strings.TrimSpace(address)
}

// runTunnel serves echoSocket until the end of its standard input.
func runTunnel() {
	stop, err := serveChild(http.HandlerFunc(echoSocket))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
}

// echoSocket sends WebSocket messages back, which come over HTTP/1.1 or HTTP/2 (RFC 8441). A text
// message is answered with the protocol. No library does that for a handler over HTTP/2, but gobwas
// works on any io.ReadWriter.
func echoSocket(w http.ResponseWriter, r *http.Request) {
	var rw io.ReadWriter
	if r.Method == http.MethodConnect && r.Header.Get(":protocol") == "websocket" {
		t := tunnel{r.Body, w, http.NewResponseController(w)}
		if t.c.Flush() != nil {
			return
		}
		rw = t
	} else {
		c, _, _, err := gobwas.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer c.Close()
		rw = c
	}
	for {
		message, op, err := wsutil.ReadClientData(rw)
		if err == nil && op == gobwas.OpText {
			message = []byte(r.Proto)
		}
		if err == nil {
			err = wsutil.WriteServerMessage(rw, op, message)
		}
		if err != nil {
			return
		}
	}
}

// tunnel is a stream as a handler has it. Each Write is sent at once.
type tunnel struct {
	io.Reader
	w io.Writer
	c *http.ResponseController
}

func (t tunnel) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if err == nil {
		err = t.c.Flush()
	}
	return n, err
}

// TestWebSocketHTTP2: a WebSocket library talks over HTTP/2, on several streams of a connection, on
// percore as on net/http's server. They are refused unless GODEBUG allows them.
func TestWebSocketHTTP2(t *testing.T) {
	identity, config := pemIdentity(t)
	config.NextProtos = []string{"h2"}
	for _, on := range []string{"net", "percore"} {
		for _, secure := range []bool{false, true} {
			for _, allowed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,TLS=%t,allowed=%t", on, secure, allowed), func(t *testing.T) {
					testnet.NoLeaks(t)
					id := identity
					if !secure {
						id = ""
					}
					child, _, address := startServer(t, "tunnel", on, id, allowed)
					nc, err := net.Dial("tcp", address)
					if err != nil {
						t.Fatal(err)
					}
					if secure {
						nc = tls.Client(nc, config)
						if err := nc.(*tls.Conn).HandshakeContext(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					client := h2.NewClient(h2.ClientConfig{})
					defer client.Close()
					conn, err := client.Attach(nc, nil)
					if err != nil {
						t.Fatal(err)
					}
					talkTunnel(t, conn, allowed)
					if err := child.Wait(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// talkTunnel sends messages on several sockets at once.
func talkTunnel(t *testing.T, conn *h2.Conn, allowed bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range 3 {
		var socket h2.Stream
		connect := h2.Request{Method: "CONNECT", Protocol: "websocket", Scheme: "https", Authority: "localhost", Path: "/"}
		err := conn.Open(t.Context(), &socket, &connect, h2.Message{})
		if err == nil {
			_, err = socket.Answer()
		}
		if (err == nil) != allowed {
			t.Errorf("CONNECT: got %v, want it allowed: %t", err, allowed)
		}
		if err != nil {
			socket.Close()
			continue
		}
		wg.Go(func() {
			defer socket.Close()
			for j, size := range []int{0, 10, 70_000, 1200 << 10} {
				message := bytes.Repeat([]byte{byte('a' + i), byte('a' + j)}, size/2)
				go func() { _ = wsutil.WriteClientBinary(&socket, message) }() // a full window may need the reads below
				got, err := wsutil.ReadServerBinary(&socket)
				if err != nil || !bytes.Equal(got, message) {
					t.Errorf("socket %d, message of %d bytes: got %d bytes, %v, want the same", i, size, len(got), err)
					return
				}
			}
			_ = wsutil.WriteClientMessage(&socket, gobwas.OpClose, gobwas.NewCloseFrameBody(gobwas.StatusNormalClosure, goodbye))
			h, err := gobwas.ReadHeader(&socket)
			code, endErr := io.ReadAll(&socket)
			if h.OpCode != gobwas.OpClose || err != nil || endErr != nil || !bytes.Equal(code, gobwas.NewCloseFrameBody(gobwas.StatusNormalClosure, "")) {
				t.Errorf("the end: got %+v, %v, then %q, %v, want the handshake's answer and nothing else", h, err, code, endErr)
			}
		})
	}
}
