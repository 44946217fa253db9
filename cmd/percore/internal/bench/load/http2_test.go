package load

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/internal/testnet"
)

// http2Server serves h over HTTP/2, in clear or over TLS, and returns its address.
func http2Server(t *testing.T, tls bool, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Config.Protocols.SetHTTP2(true)
	if tls {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// openHTTP2 opens a session of a job.
func openHTTP2(t *testing.T, job scenario.Scenario) *http2Session {
	t.Helper()
	s, err := http2Sessions(&job)(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	s.setDeadline(time.Now().Add(testnet.HangTimeout))
	return s.(*http2Session)
}

// TestHTTP2 sends requests of each kind to net/http's server, which must see all of them, and
// nothing else.
func TestHTTP2(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 200<<10)
	for _, c := range []struct {
		name string
		job  scenario.Scenario
	}{
		{"one at a time", scenario.Scenario{}},
		{"many", scenario.Scenario{Streams: 50}},
		{"TLS", scenario.Scenario{Streams: 2, TLS: true}},
		{"a browser", scenario.Scenario{Browser: true}},
		{"uploads", scenario.Scenario{Payload: 300 << 10, Streams: 7, Path: "/up"}},
		{"small uploads over TLS", scenario.Scenario{Payload: 1, TLS: true}},
		{"downloads", scenario.Scenario{Path: "/long", Streams: 3}},
		{"small windows", scenario.Scenario{Path: "/long", Streams: 3, Window: 1 << 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			var requests atomic.Int64
			var addr string
			addr = http2Server(t, c.job.TLS, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				body, err := io.ReadAll(r.Body)
				if err != nil || len(body) != c.job.Payload || r.ProtoMajor != 2 || r.Host != addr {
					t.Errorf("got %s for %s with %d bytes, %v; want %d", r.Proto, r.Host, len(body), err, c.job.Payload)
				}
				if browser := r.Header.Get("User-Agent") != ""; browser != c.job.Browser || browser && len(r.Header) != 11 {
					t.Errorf("got the fields %q", r.Header)
				}
				if r.URL.Path == "/long" {
					w.Write(long)
				}
			})
			c.job.Addr = addr
			s := openHTTP2(t, c.job)
			for range 2 {
				if err := s.op(); err != nil {
					t.Fatal(err)
				}
			}
			left, recorded := 20, 0
			stop := func() bool { left--; return left < 0 }
			record := func(d time.Duration) {
				if recorded++; d < 0 || d > testnet.HangTimeout {
					t.Errorf("a request took %v", d)
				}
			}
			if err := s.loop(stop, record); err != nil {
				t.Fatal(err)
			}
			if err := s.send(); err != nil {
				t.Fatal(err)
			}
			if err := s.receive(); err != nil {
				t.Fatal(err)
			}
			if recorded != 21 { // the first is not for stop to decide
				t.Errorf("%d requests were recorded, want 21", recorded)
			}
			if got, want := requests.Load(), int64(2+21+max(1, c.job.Streams)); got != want {
				t.Errorf("%d requests, want %d", got, want)
			}
		})
	}
}

// TestHTTP2Refusals: a server that doesn't speak HTTP/2, or not over TLS, is an error.
func TestHTTP2Refusals(t *testing.T) {
	testnet.NoLeaks(t)
	if err := openHTTP2(t, scenario.Scenario{Addr: answering(t, "")}).op(); !says(err, "read answer") {
		t.Errorf("error %v, want one about reading", err)
	}
	inClear := scenario.Scenario{Addr: http2Server(t, false, nil), TLS: true}
	if _, err := http2Sessions(&inClear)(0); !says(err, "TLS handshake") {
		t.Errorf("TLS with a server in clear: error %v", err)
	}
}

// TestHTTP2Frames: what a server may send that net/http's doesn't, and must not. The frames are answers
// to one request each.
func TestHTTP2Frames(t *testing.T) {
	good := func(f *http2.Framer, id uint32, block ...byte) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: append(block, 0x88), EndHeaders: true, EndStream: true})
	}
	for _, c := range []struct {
		name    string
		answers []func(f *http2.Framer)
		want    string
	}{
		{"table sizes", []func(*http2.Framer){
			func(f *http2.Framer) { good(f, 1, 0x20) },
			func(f *http2.Framer) { good(f, 3, 0x20, 0x3f, 0xe1, 0x1f) },
		}, ""},
		{"a ping, and an unknown frame", []func(*http2.Framer){func(f *http2.Framer) {
			f.WritePing(false, [8]byte{1})
			f.WriteRawFrame(0xee, 0, 0, make([]byte, 2000))
			good(f, 1)
		}}, ""},
		{"status", []func(*http2.Framer){func(f *http2.Framer) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x8d}, EndHeaders: true, EndStream: true})
		}}, "unexpected answer 404"},
		{"reset", []func(*http2.Framer){func(f *http2.Framer) { f.WriteRSTStream(1, http2.ErrCodeInternal) }}, "has reset stream 1: INTERNAL_ERROR"},
		{"another stream", []func(*http2.Framer){func(f *http2.Framer) { good(f, 3) }}, "HEADERS of stream 3"},
		{"data of another", []func(*http2.Framer){func(f *http2.Framer) { f.WriteData(3, true, nil) }}, "DATA of stream 3"},
		{"no header", []func(*http2.Framer){func(f *http2.Framer) { f.WriteData(1, true, nil) }}, "without a header"},
		{"goaway", []func(*http2.Framer){func(f *http2.Framer) { f.WriteGoAway(0, 11, []byte("no")) }}, `goes away: ENHANCE_YOUR_CALM, "no"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			ours, theirs := net.Pipe()
			done := make(chan struct{})
			defer func() {
				ours.Close()
				<-done
			}()
			go func() {
				defer close(done)
				defer theirs.Close()
				io.ReadFull(theirs, make([]byte, len(http2.ClientPreface)))
				var out bytes.Buffer
				in := http2.NewFramer(nil, theirs)
				for n := 0; ; {
					frame, err := in.ReadFrame()
					if err != nil {
						return
					}
					if _, ok := frame.(*http2.HeadersFrame); ok {
						c.answers[n](http2.NewFramer(&out, nil))
						go theirs.Write(bytes.Clone(out.Bytes())) // the client may be writing
						out.Reset()
						n++
					}
				}
			}()
			job := &scenario.Scenario{Addr: "h:1"}
			s := newHTTP2Session(job, ours, http2Fields(job), nil)
			s.setDeadline(time.Now().Add(testnet.HangTimeout))
			for range c.answers {
				if err := s.op(); !says(err, c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			}
		})
	}
}
