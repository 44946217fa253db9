package http2_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// An upstream is a server that does something odd once: with a connection, or with a request.
type upstream struct {
	name  string
	stage string // of the connection: dialing and so on; "": with the request
	http1 string // what it sends; "-": the row is not about HTTP/1
	http2 func(p *frames.Peer, id uint32)
	cut   int    // so many of the last bytes are left out over HTTP/2
	call  string // method of the request; "": GET
}

// The stages of a connection in which an upstream is odd.
const (
	dialing     = "dialing"     // it isn't there yet
	accepted    = "accepted"    // it reads nothing
	handshaking = "handshaking" // it has got the beginning of the client's first record
	settings    = "settings"    // it sends no more than SETTINGS
)

// upstreams are the rows of the matrix. TestTransportSameAsNetHTTP, TestTransportHTTP2SameAsNetHTTP, and
// in package client TestSameResult and TestStall have where else an answer may be cut or wrong.
func upstreams() []upstream {
	begin := func(p *frames.Peer, id uint32) { p.Headers(id, false, ":status", "200", "content-length", "8") }
	half := func(p *frames.Peer, id uint32) {
		begin(p, id)
		p.Data(id, "hel", false)
	}
	goAway := func(p *frames.Peer, last byte) { p.Frame(frames.GoAway, 0, 0, []byte{last, 0, 0, 0, 0, 0, 0, 0}) }
	return []upstream{
		{name: "a dial", stage: dialing},
		{name: "at once", stage: accepted},
		{name: "HTTP in clear", stage: handshaking, http1: "HTTP/1.1 400 Bad Request\r\n\r\n"},
		{name: "garbage", stage: handshaking, http1: "garbage that is no record"},
		{name: "an alert", stage: handshaking, http1: "\x15\x03\x01\x00\x02\x02\x28"},
		{name: "in a record", stage: handshaking, http1: "\x16\x03\x03\x00\x40part"},
		{name: "before SETTINGS", stage: settings, http1: "-", cut: 18},
		{name: "in SETTINGS", stage: settings, http1: "-", cut: 12},
		{name: "behind SETTINGS", stage: settings, http1: "-"},
		{name: "behind the request", http1: "", http2: func(*frames.Peer, uint32) {}},
		{name: "in the header", http1: "HTTP/1.1 200 OK\r\nContent-Le", http2: begin, cut: 2},
		{name: "behind half a header", http1: "HTTP/1.1 200 OK\r\nA: b\r\n", http2: begin, cut: 1},
		{name: "behind the header", http1: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", http2: begin},
		{name: "in the body", http1: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", http2: half},
		{name: "in a chunk", http1: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"},
		{name: "reads nothing of a body", call: http.MethodPost, http2: func(*frames.Peer, uint32) {}},
		{name: "GOAWAY without the request", http1: "-", http2: func(p *frames.Peer, _ uint32) { goAway(p, 0) }},
		{name: "GOAWAY and half an answer", http1: "-", http2: func(p *frames.Peer, id uint32) {
			half(p, id)
			goAway(p, 1<<6)
		}},
		{name: "RST_STREAM", http1: "-", http2: func(p *frames.Peer, id uint32) { p.Reset(id, http2.RefusedStream) }},
		{name: "RST_STREAM behind half an answer", http1: "-", http2: func(p *frames.Peer, id uint32) {
			half(p, id)
			p.Reset(id, http2.Cancel)
		}},
	}
}

// A matrixCase is a cell of the matrix.
type matrixCase struct {
	*upstream
	isHTTP2, overTLS bool
	warm             bool   // the connection has had a request
	ending           string // what the upstream does then: "FIN", "RST", "farewell" of TLS, or what ends the call

	limit time.Duration // of timeouts
}

// isSilent reports whether the upstream says nothing more.
func (m *matrixCase) isSilent() bool {
	return !slices.Contains([]string{"FIN", "RST", "farewell"}, m.ending)
}

// sharesConn reports whether http.Transport makes other calls on the same connection, which are held up
// too.
func (m *matrixCase) sharesConn() bool {
	return m.isHTTP2 && (m.stage == settings || m.stage == accepted && !m.overTLS || m.stage == "" && m.cut > 0)
}

// matrix returns all cells.
func matrix() (all []matrixCase) {
	for _, u := range upstreams() {
		for i := range 8 {
			m := matrixCase{upstream: &u, isHTTP2: i&1 > 0, overTLS: i&2 > 0, warm: i&4 > 0}
			switch {
			case m.warm && u.stage != "", !m.overTLS && u.stage == handshaking, u.http1 == "-" && !m.isHTTP2,
				m.isHTTP2 && u.stage == "" && u.http2 == nil:
				continue
			}
			endings := []string{"FIN", "RST"}
			if m.overTLS && u.stage != accepted && u.stage != handshaking {
				endings = append(endings, "farewell")
			}
			if !m.warm {
				endings = append(endings, "cancel")
			}
			switch u.stage {
			case dialing:
				endings = []string{"cancel", "Client.Timeout", "Dialer.Timeout"}
			case accepted, handshaking, settings:
				endings = append(endings, "Client.Timeout", "ResponseHeaderTimeout")
				if m.overTLS && u.stage != settings {
					endings = append(endings, "TLSHandshakeTimeout")
				}
			}
			if u.call == http.MethodPost { // how much is sent is chance
				endings = []string{"cancel"}
			}
			for _, m.ending = range endings {
				all = append(all, m)
			}
		}
	}
	return all
}

func (m matrixCase) String() string {
	return fmt.Sprintf("%s, HTTP/2 %t, TLS %t, warm %t, %s", m.name, m.isHTTP2, m.overTLS, m.warm, m.ending)
}

// TestUpstreams: whatever a server does at any point of a connection and an answer, a call sees the same
// of it as with http.Transport, in clear and over TLS, with HTTP/1.1 and HTTP/2. Beside it and behind it
// calls to another server, and to the same one, get their answers, and nothing is left.
//
// Some cells depend on chance in http.Transport: ours does one of the things that it does there.
func TestUpstreams(t *testing.T) {
	testnet.NoLeaks(t)
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	var all sync.WaitGroup
	places := make(chan struct{}, 16)
	part := rand.IntN(4)
	for i, m := range matrix() {
		if (race.Enabled || testing.Short()) && i%4 != part {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			got, want := make(map[string]bool), make(map[string]bool)
			m.limit = 30 * time.Millisecond
			for range 6 {
				m.limit *= 2
				text := m.play(t, true)
				got[text] = true
				wanted := m.play(t, false)
				if want[wanted] = true; want[text] || got[wanted] {
					return
				}
			}
			t.Errorf("%v: got\n%s\nwant\n%s", m, keysOf(got), keysOf(want))
		})
	}
	all.Wait()
}

func keysOf(texts map[string]bool) (s string) {
	for text := range texts {
		s += text + "\n"
	}
	return s
}

// play plays a cell to ours, or to http.Transport, and returns what the program sees.
func (m *matrixCase) play(t *testing.T, isOurs bool) (seen string) {
	serverConfig, clientConfig := testnet.TLS(t)
	odd, other := m.serve(t, serverConfig, true), m.serve(t, serverConfig, false)
	dialer := &net.Dialer{ControlContext: func(ctx context.Context, _, addr string, _ syscall.RawConn) error {
		if m.stage == dialing && addr == odd.Addr().String() && odd.isFirst() {
			odd.reached <- struct{}{}
			select {
			case <-ctx.Done():
			case <-odd.release:
			}
			return errors.New("released")
		}
		return nil
	}}
	base := &http.Transport{Protocols: protocols(m.isHTTP2, m.overTLS), TLSClientConfig: clientConfig, DialContext: dialer.DialContext}
	all, giveUp := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer giveUp()
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	client := &http.Client{}
	if timeout := map[string]*time.Duration{
		"Client.Timeout": &client.Timeout, "ResponseHeaderTimeout": &base.ResponseHeaderTimeout,
		"TLSHandshakeTimeout": &base.TLSHandshakeTimeout, "Dialer.Timeout": &dialer.Timeout,
	}[m.ending]; timeout != nil {
		*timeout = m.limit
	}
	ours, others := httpadapter.NewTransport(base), http.Client{Transport: base}
	if client.Transport = base; isOurs {
		client.Transport, others.Transport = ours, ours
	}
	good := func(when string, s *matrixServer) {
		text := ""
		for range 10 { // a timeout that is meant for the odd call may end it, where the processor is busy
			if text = matrixCall(all, &others, "GET", s.url("/good"), false); !strings.Contains(text, "timeout true") {
				break
			}
		}
		seen += when + ": " + text + "\n"
	}
	if m.warm {
		good("before", odd)
	}
	result := make(chan string, 1)
	go func() { result <- "it: " + matrixCall(ctx, client, m.call, odd.url("/odd"), m.isHTTP2 && m.cut > 0) }()
	var text string
	select {
	case <-odd.reached:
	case text = <-result:
	case <-time.After(testnet.HangTimeout):
		t.Errorf("%v: nothing has come of the call", m)
	}
	good("another server", other)
	if m.isSilent() && !m.sharesConn() {
		good("beside it", odd)
	}
	if m.ending == "cancel" {
		cancel()
	}
	if text == "" {
		text = testnet.Receive(t, m.String(), result)
	}
	seen += text + "\n"
	if !m.isSilent() {
		testnet.Receive(t, m.String()+": the end of its connection", odd.gone)
	}
	if !m.isSilent() || !m.sharesConn() {
		good("behind it", odd)
	}
	close(odd.release)
	if !isOurs { // it may wait for the server
		odd.End()
	}
	testnet.Eventually(t, fmt.Sprintf("%v, ours %t: the end of all connections", m, isOurs), func() bool {
		client.CloseIdleConnections() // again: over HTTP/2 the server has to acknowledge the end of a call
		return odd.Open()+other.Open() == 0
	})
	odd.End()
	other.End()
	if isOurs {
		testnet.Eventually(t, "nothing is kept", func() bool { s := ours.Stats(); return s.Conns+s.Idle+s.Dialing+s.Waiting == 0 })
		if s := ours.Stats(); len(s.Declined) > 0 && s.Declined["engine"] == 0 {
			t.Errorf("%v: got %+v, want the requests served here", m, s)
		}
	}
	seen = testnet.WithoutPorts(seen)
	if m.ending == "RST" && (m.isHTTP2 || m.name == "behind half a header") { // http.Transport may take it for an end
		seen = strings.ReplaceAll(seen, resetText, io.ErrUnexpectedEOF.Error())
		seen = strings.ReplaceAll(seen, `is "connection reset by peer"`, `is "unexpected EOF"`)
		seen = strings.ReplaceAll(seen, "; timeout false, temporary false", "") // which an end doesn't have
	}
	return seen
}

// settles is time for a client to read what has come.
const settles = 5 * time.Millisecond

var longBody = strings.Repeat("x", 8<<20) // too long for the buffers of sockets

const resetText = "read tcp 127.0.0.1:port->127.0.0.1:port: read: connection reset by peer"

// matrixCall returns all that a program may look at of a call.
func matrixCall(ctx context.Context, client *http.Client, method, url string, isCut bool) string {
	var upload io.Reader
	if method == http.MethodPost {
		upload = strings.NewReader(longBody)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, upload)
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return describe(err)
	}
	body, err := io.ReadAll(resp.Body)
	if isCut {
		body = nil // it is chance how much of a frame comes
	}
	return fmt.Sprintf("%s %s length %d %q %v %s; close %v", resp.Proto, resp.Status, resp.ContentLength, body, resp.Trailer, describe(err), resp.Body.Close())
}

// describe returns all that a program may look at of an error.
func describe(err error) string {
	if err == nil {
		return "no error"
	}
	s := err.Error()
	if ne, ok := errors.AsType[net.Error](err); ok {
		//lint:ignore SA1019 programs still look at it
		s += fmt.Sprintf("; timeout %t, temporary %t", ne.Timeout(), ne.Temporary())
	}
	for _, sentinel := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, net.ErrClosed, os.ErrDeadlineExceeded,
		syscall.ECONNRESET, syscall.EPIPE, http.ErrBodyReadAfterClose, http.ErrServerClosed, errBodyFailing,
	} {
		if errors.Is(err, sentinel) {
			s += fmt.Sprintf(", is %q", sentinel)
		}
	}
	return s
}

// A matrixServer is the server of a cell.
type matrixServer struct {
	*matrixCase
	*testnet.Server
	t       *testing.T
	config  *tls.Config
	reached chan struct{} // it is as odd as it will be
	gone    chan struct{} // its odd connection has ended, and the client has found that
	release chan struct{} // it need not be odd any more
	odd     atomic.Bool   // it will be
}

func (m *matrixCase) serve(t *testing.T, config *tls.Config, odd bool) *matrixServer {
	config.NextProtos = []string{"http/1.1"}
	if m.isHTTP2 {
		config.NextProtos = []string{"h2"}
	}
	s := &matrixServer{matrixCase: m, t: t, config: config, reached: make(chan struct{}, 1), gone: make(chan struct{}), release: make(chan struct{})}
	s.odd.Store(odd)
	ln, err := net.Listen("tcp4", "127.0.0.1:0") // testnet.Listen would keep a descriptor for each cell
	if err != nil {
		panic(err)
	}
	s.Server = testnet.Serve(t, ln, func(c net.Conn) { s.serveConn(c.(*net.TCPConn)) })
	return s
}

func (s *matrixServer) url(path string) string { return testnet.URL(s, s.overTLS, path) }

// isFirst reports, once, that it is time to be odd.
func (s *matrixServer) isFirst() bool { return s.odd.Swap(false) }

func (s *matrixServer) serveConn(raw *net.TCPConn) {
	isOdd := s.stage != "" && s.stage != dialing && s.isFirst()
	if isOdd && s.stage != settings {
		if s.stage == handshaking {
			_, _ = io.ReadFull(raw, make([]byte, 5))
			_, _ = io.WriteString(raw, s.http1)
		}
		s.endOrWait(raw, raw)
		return
	}
	var c net.Conn = raw
	if s.overTLS {
		c = tls.Server(raw, s.config)
	}
	if s.isHTTP2 {
		s.serveHTTP2(c, raw, isOdd)
		return
	}
	for br := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if req.URL.Path == "/odd" && s.isFirst() {
			_, _ = io.WriteString(c, s.http1)
			if s.end(c, raw) {
				return
			}
			if req.Method == http.MethodPost {
				<-s.release
				return
			}
			continue
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	}
}

func (s *matrixServer) serveHTTP2(c net.Conn, raw *net.TCPConn, isOdd bool) {
	p, err := frames.NewServerPeer(s.t, c)
	if err != nil {
		return
	}
	send := func(cut int) {
		_, _ = c.Write(p.Out[:max(0, len(p.Out)-cut)])
		p.Out = p.Out[:0]
	}
	if isOdd {
		send(s.cut)
		s.endOrWait(c, raw)
		return
	}
	for send(0); ; {
		line := p.Next()
		var id uint32
		if _, err := fmt.Sscanf(line, "headers %d", &id); err != nil {
			if line == "end" || strings.HasPrefix(line, "error: ") {
				return
			}
			continue
		}
		if strings.Contains(line, ":path=/odd") && s.isFirst() {
			s.http2(p, id)
			send(s.cut)
			if s.end(c, raw) {
				return
			}
			continue
		}
		p.Headers(id, false, ":status", "200").Data(id, "hello", true)
		send(0)
	}
}

func (s *matrixServer) endOrWait(c net.Conn, raw *net.TCPConn) {
	if !s.end(c, raw) {
		_, _ = io.Copy(io.Discard, raw)
	}
}

// end ends the connection as the cell says, if it does, when the client has had time to read what was
// sent. It waits for the client's end then.
func (s *matrixServer) end(c net.Conn, raw *net.TCPConn) bool {
	s.reached <- struct{}{}
	if s.isSilent() {
		return false
	}
	defer close(s.gone)
	time.Sleep(settles)
	switch s.ending {
	case "farewell":
		_ = c.(*tls.Conn).CloseWrite()
		fallthrough
	case "FIN":
		testnet.HangUp(raw, false)
	case "RST":
		testnet.HangUp(raw, true)
		time.Sleep(settles) // until the client has found it
	}
	return true
}
