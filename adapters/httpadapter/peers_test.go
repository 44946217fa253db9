package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestPeersLeave: clients that leave at any point of a request, in clear and over TLS, with HTTP/1.1 and
// HTTP/2, beside net/http's server. The calls of others go on, an answer that lasts is not cut, and
// nothing is kept: Shutdown returns, and the server counts no connection.
func TestPeersLeave(t *testing.T) {
	h2 := func(build func(p *frames.Peer)) []byte {
		p := frames.NewPeer(t, nil)
		build(p)
		return p.Out
	}
	field := []string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/wait"}
	headers := h2(func(p *frames.Peer) { p.Headers(1, true, field...) })
	peers := []struct {
		name, protocol string
		sends          []byte
	}{
		{"at once", "", nil},
		{"in the request line", "http/1.1", []byte("GET / HT")},
		{"in the header", "http/1.1", []byte("GET / HTTP/1.1\r\nHost: a\r\nX-A: b")},
		{"behind the header", "http/1.1", []byte("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")},
		{"in the body", "http/1.1", []byte("POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")},
		{"in a chunk", "http/1.1", []byte("POST /wait HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")},
		{"in a detached answer", "http/1.1", []byte("GET /detach HTTP/1.1\r\nHost: a\r\n\r\n")},
		{"in a detached answer to HEAD", "http/1.1", []byte("HEAD /detach HTTP/1.1\r\nHost: a\r\n\r\n")},
		{"in the preface", "h2", []byte(http2.Preface[:20])},
		{"behind SETTINGS", "h2", h2(func(*frames.Peer) {})},
		{"in HEADERS", "h2", headers[:len(headers)-3]},
		{"behind HEADERS", "h2", headers},
		{"before DATA", "h2", h2(func(p *frames.Peer) { p.Headers(1, false, field...) })},
		{"in DATA", "h2", h2(func(p *frames.Peer) {
			p.Headers(1, false, field...).Data(1, "abc", false)
			p.Out = p.Out[:len(p.Out)-2]
		})},
		{"in a detached answer to HEAD of HTTP/2", "h2", h2(func(p *frames.Peer) {
			p.Headers(1, true, append([]string{":method", "HEAD"}, append(field[2:7:7], "/detach")...)...)
		})},
		{"in a detached answer of HTTP/2", "h2", h2(func(p *frames.Peer) { p.Headers(1, true, append(field[:7:7], "/detach")...) })},
	}
	eachHTTP2(t, func(t *testing.T, start func(configure func(*http.Server)) *side) {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		mux.HandleFunc("/wait", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		streams := make(chan *Answer, 2*len(peers)+1)
		mux.HandleFunc("/detach", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_ = Detach(w, r, func(s *Answer) { streams <- s })
		})
		f := start(func(srv *http.Server) { srv.Handler = mux })
		lasting, err := f.http2Client().Get(f.url("/detach"))
		if err != nil {
			t.Fatal(err)
		}
		defer lasting.Body.Close()
		lasts := testnet.Receive(t, "the answer that lasts", streams)
		other := f.http2Client()
		for _, peer := range peers {
			for _, closes := range []func(net.Conn){
				func(c net.Conn) { c.Close() },
				func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() },
			} {
				nc, err := net.Dial("tcp", f.ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				out := nc
				if f.client != nil && peer.protocol != "" {
					config := f.client.Clone()
					config.NextProtos = []string{peer.protocol}
					out = tls.Client(nc, config)
				}
				if _, err := out.Write(peer.sends); err != nil && len(peer.sends) > 0 {
					t.Errorf("%s: %v", peer.name, err)
				}
				if strings.HasPrefix(peer.name, "in a detached") {
					testnet.Receive(t, "the Answer", streams) // or it may leave before the handler is called
				}
				closes(nc)
				if got := f.get(other, "/"); got != "hello" {
					t.Errorf("%s: another client got %q", peer.name, got)
				}
			}
		}
		_, _ = lasts.Write([]byte("still there\n"))
		lasts.Flush()
		if line, err := bufio.NewReader(lasting.Body).ReadString('\n'); line != "still there\n" {
			t.Errorf("got %q and %v in the answer that lasts", line, err)
		}
		lasts.Close()
		ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
		defer cancel()
		if err := f.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if s := f.ours; s != nil {
			testnet.Eventually(t, "the end of all connections", func() bool {
				return s.HTTP2Stats().Conns == 0 && s.HTTP2Stats().Streams == 0 && s.Stats().Detached == 0
			})
		}
	})
}
