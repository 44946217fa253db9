package frameworks

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gobwas "github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// tunnelSetup is the environment variable that says how the process "tunnel" runs its server: "net"
// or "percore", and after a comma "tls".
const tunnelSetup = "PERCORE_TEST_TUNNEL"

// tunnelServer sends WebSocket messages back that come over HTTP/2 (RFC 8441). No library does
// that for a handler, but gobwas works on any io.ReadWriter.
type tunnelServer struct{ ended chan string }

func (s *tunnelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ended" {
		select {
		case why := <-s.ended:
			fmt.Fprint(w, why)
		case <-r.Context().Done():
		}
		return
	}
	if r.Method != http.MethodConnect || r.Header.Get(":protocol") != "websocket" {
		fmt.Fprintf(w, "%s %s", r.Method, r.Proto)
		return
	}
	t := tunnel{r.Body, w, http.NewResponseController(w)}
	if err := t.c.Flush(); err != nil {
		s.ended <- err.Error()
		return
	}
	for {
		message, op, err := wsutil.ReadClientData(t)
		if err == nil {
			err = wsutil.WriteServerMessage(t, op, message)
		}
		if err != nil {
			s.ended <- err.Error()
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

// runTunnel runs a server in its own process, since net/http reads GODEBUG when a process starts. It
// prints its address, and exits at the end of its standard input.
func runTunnel() {
	setup := strings.Split(os.Getenv(tunnelSetup), ",")
	srv := &http.Server{Handler: &tunnelServer{make(chan string, 100)}, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	listen, server := net.Listen, testnet.WebServer(srv)
	if setup[0] == "percore" {
		listen, server = percore.Listen, httpadapter.Wrap(srv)
	}
	ln, err := listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error, 1)
	if slices.Contains(setup, "tls") {
		identity := []byte(os.Getenv(hubIdentity))
		cert, err := tls.X509KeyPair(identity, identity)
		if err != nil {
			fmt.Println(err)
			return
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		go func() { served <- server.ServeTLS(ln, "", "") }()
	} else {
		go func() { served <- server.Serve(ln) }()
	}
	fmt.Println(ln.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.Close()
	<-served
}

// TestWebSocketHTTP2: WebSockets over HTTP/2, several on a connection that has other streams too,
// as on net/http's server. They are refused unless GODEBUG allows them.
func TestWebSocketHTTP2(t *testing.T) {
	var want [2][]string
	for _, setup := range []string{"net", "percore", "net,tls", "percore,tls"} {
		t.Run(setup, func(t *testing.T) {
			testnet.NoLeaks(t)
			for i, allowed := range []bool{false, true} {
				got := playTunnel(t, setup, allowed)
				t.Logf("allowed %t: %q", allowed, got)
				if setup == "net" {
					want[i] = got
				}
				if !slices.Equal(got, want[i]) || len(got) == 0 {
					t.Errorf("allowed %t: got\n%q\nwant what net/http does,\n%q", allowed, got, want[i])
				}
			}
		})
	}
}

// playTunnel returns what a client sees that can be compared.
func playTunnel(t *testing.T, setup string, allowed bool) (notes []string) {
	identity, config := pemIdentity(t)
	child := testnet.StartChild(t, "tunnel", tunnelSetup+"="+setup, hubIdentity+"="+identity,
		fmt.Sprintf("GODEBUG=%s,http2xconnect=%d", os.Getenv("GODEBUG"), map[bool]int{true: 1}[allowed]))
	address, err := bufio.NewReader(child.Stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the server's address: %v", err)
	}
	if !strings.Contains(setup, "tls") {
		config = nil
	}
	c := dialStreams(t, strings.TrimSpace(address), config)
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }

	first := c.connect("/socket")
	note("offered %t, status %q, error %v", c.offered(), first.status, first.err)
	note("another stream: %s", c.get("/other"))
	if allowed {
		socket := struct {
			io.Reader
			io.Writer
		}{bufio.NewReader(first), first}
		note("ping: %v", wsutil.WriteClientMessage(socket, gobwas.OpPing, []byte("are you there?")))
		code, payload, err := readFrame(socket)
		note("pong: %v %q %v", code, payload, err)
		note("close: %v", wsutil.WriteClientMessage(socket, gobwas.OpClose, gobwas.NewCloseFrameBody(gobwas.StatusNormalClosure, goodbye)))
		code, payload, err = readFrame(socket)
		note("close: %v %q %v", code, payload, err)
		rest, err := io.ReadAll(socket)
		note("rest: %q %v, reset: %v", rest, err, first.resetCode(c))
		note("handler: %s", c.get("/ended"))
		echoOnEach(t, c, 3)

		half := c.connect("/socket")
		c.end(half)
		rest, err = io.ReadAll(half)
		note("our end: %q %v", rest, err)
		note("handler: %s", c.get("/ended"))

		gone := c.connect("/socket")
		c.reset(gone)
		why := c.get("/ended") // from its Read, or from the Flush that it may not have returned from
		note("handler: %t", why == fmt.Sprintf("stream error: stream ID %d; CANCEL", gone.id) || why == "http2: stream closed")
	}
	c.close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	return notes
}

// readFrame reads a frame of a WebSocket.
func readFrame(r io.Reader) (code gobwas.OpCode, payload []byte, err error) {
	h, err := gobwas.ReadHeader(r)
	if err != nil {
		return 0, nil, err
	}
	payload, err = io.ReadAll(io.LimitReader(r, h.Length))
	return h.OpCode, payload, err
}

// echoOnEach sends messages on n sockets at once.
func echoOnEach(t *testing.T, c *streamsClient, n int) {
	var wg sync.WaitGroup
	for i := range n {
		st := c.connect("/socket")
		wg.Go(func() {
			for j, size := range []int{0, 10, 70_000, 1200 << 10} {
				message := bytes.Repeat([]byte{byte('a' + i), byte('a' + j)}, size/2)
				go func() { _ = wsutil.WriteClientBinary(st, message) }() // a full window may need the reads below
				got, err := wsutil.ReadServerBinary(struct {
					io.Reader
					io.Writer
				}{st, st})
				if err != nil || !bytes.Equal(got, message) {
					t.Errorf("socket %d, message of %d bytes: got %d bytes, %v, want the same", i, size, len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A streamsClient is a small HTTP/2 client whose streams are tunnels: no client of Go's has those.
type streamsClient struct {
	t    *testing.T
	nc   net.Conn
	done chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	changed *sync.Cond

	// guarded by mu
	fr       *http2.Framer // its writes; its reads are the reader's
	enc      *hpack.Encoder
	block    bytes.Buffer
	nextID   uint32
	streams  map[uint32]*clientStream
	window   int64 // of the connection
	initial  int64 // of a stream
	settled  bool
	extended bool
}

// A clientStream is a stream of a streamsClient.
type clientStream struct {
	c  *streamsClient
	id uint32

	// guarded by c.mu
	status string
	in     []byte
	window int64
	ended  bool
	reset  bool
	code   http2.ErrCode
	err    error // of a stream that has got no answer
}

// dialStreams connects to a server, over TLS if config isn't nil.
func dialStreams(t *testing.T, address string, config *tls.Config) *streamsClient {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2"}
		nc = tls.Client(nc, config)
	}
	c := &streamsClient{t: t, nc: nc, done: make(chan struct{}), nextID: 1, streams: make(map[uint32]*clientStream), window: 65535, initial: 65535}
	c.changed = sync.NewCond(&c.mu)
	c.fr = http2.NewFramer(nc, bufio.NewReader(nc))
	c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.enc = hpack.NewEncoder(&c.block)
	_, err = io.WriteString(nc, http2.ClientPreface)
	if err = errors.Join(err, c.fr.WriteSettings(), c.fr.WriteWindowUpdate(0, 1<<30)); err != nil {
		t.Fatal(err)
	}
	go c.read()
	return c
}

// read applies the server's frames.
func (c *streamsClient) read() {
	defer close(c.done)
	for {
		f, err := c.fr.ReadFrame()
		c.mu.Lock()
		if err != nil {
			for _, st := range c.streams {
				st.ended, st.err = true, err
			}
			c.settled = true
			c.changed.Broadcast()
			c.mu.Unlock()
			return
		}
		c.apply(f)
		c.changed.Broadcast()
		c.mu.Unlock()
	}
}

// apply is called with mu held.
func (c *streamsClient) apply(f http2.Frame) {
	st := c.streams[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for _, st := range c.streams {
				st.window += int64(v) - c.initial
			}
			c.initial = int64(v)
		}
		v, _ := f.Value(http2.SettingEnableConnectProtocol)
		c.settled, c.extended = true, v == 1
		_ = c.fr.WriteSettingsAck()
	case *http2.PingFrame:
		if !f.IsAck() {
			_ = c.fr.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if st != nil {
			st.window += int64(f.Increment)
		} else if f.StreamID == 0 {
			c.window += int64(f.Increment)
		}
	case *http2.MetaHeadersFrame:
		st.status, st.ended = f.PseudoValue("status"), f.StreamEnded()
	case *http2.DataFrame:
		st.in = append(st.in, f.Data()...)
		st.ended = f.StreamEnded()
		if n := f.Length; n > 0 && !st.ended {
			_ = c.fr.WriteWindowUpdate(f.StreamID, n)
		}
	case *http2.RSTStreamFrame:
		st.reset, st.ended, st.code = true, true, f.ErrCode
	}
}

// open sends a request.
func (c *streamsClient) open(end bool, fields ...string) *clientStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.settled {
		c.changed.Wait()
	}
	st := &clientStream{c: c, id: c.nextID, window: c.initial}
	c.nextID += 2
	c.streams[st.id] = st
	c.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: end})
	for st.status == "" && !st.ended {
		c.changed.Wait()
	}
	if st.reset {
		st.err = fmt.Errorf("reset: %v", st.code)
	}
	return st
}

// connect opens a WebSocket.
func (c *streamsClient) connect(path string) *clientStream {
	return c.open(false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":path", path, ":authority", "localhost", "sec-websocket-version", "13")
}

// get returns a body.
func (c *streamsClient) get(path string) string {
	st := c.open(true, ":method", "GET", ":scheme", "https", ":path", path, ":authority", "localhost")
	b, err := io.ReadAll(st)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// offered reports whether the server offers extended CONNECT.
func (c *streamsClient) offered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.extended
}

// Read implements io.Reader.
func (st *clientStream) Read(p []byte) (int, error) {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	for len(st.in) == 0 && !st.ended {
		st.c.changed.Wait()
	}
	if n := copy(p, st.in); n > 0 {
		st.in = st.in[n:]
		return n, nil
	}
	if st.err != nil {
		return 0, st.err
	}
	return 0, io.EOF
}

// Write implements io.Writer. It waits for windows.
func (st *clientStream) Write(p []byte) (n int, err error) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		for min(st.window, c.window) <= 0 && !st.ended {
			c.changed.Wait()
		}
		if st.ended {
			return n, io.ErrClosedPipe
		}
		m := min(int64(len(p)), st.window, c.window, 16<<10)
		if err := c.fr.WriteData(st.id, false, p[:m]); err != nil {
			return n, err
		}
		st.window -= m
		c.window -= m
		n += int(m)
		p = p[m:]
	}
	return n, nil
}

// end ends our side of a stream.
func (c *streamsClient) end(st *clientStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.fr.WriteData(st.id, true, nil)
}

// reset resets a stream.
func (c *streamsClient) reset(st *clientStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.fr.WriteRSTStream(st.id, http2.ErrCodeCancel)
}

// resetCode returns the code of a reset behind the end of the answer, which it waits for.
func (st *clientStream) resetCode(c *streamsClient) http2.ErrCode {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !st.reset && st.err == nil {
		c.changed.Wait()
	}
	return st.code
}

// close ends the connection.
func (c *streamsClient) close() {
	c.nc.Close()
	<-c.done
}
