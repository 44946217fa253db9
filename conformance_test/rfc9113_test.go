package conformance

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// A rule is a rule of RFC 9113, or of RFC 7541, that h2spec doesn't check. send sends frames, and want
// is what must come back, in any order; besides that, nothing may. Fields, SETTINGS and WINDOW_UPDATE
// don't count. The rules of single frames are in internal/http2's tests.
type rule struct {
	name string
	send func(p *frames.Peer)
	want []string
}

const (
	typePushPromise    = 5
	typeContinuation   = 9
	typePriorityUpdate = 16
	flagPadded         = 8
	flagPriority       = 32
)

// Header blocks of a request, as bytes: :method GET or POST, :scheme http, :path /.
var (
	getBlock  = []byte{0x82, 0x86, 0x84}
	postBlock = []byte{0x83, 0x86, 0x84}
)

// headersWith returns HEADERS that end a request, with more bytes behind its block.
func headersWith(id uint32, more ...byte) func(*frames.Peer) {
	return func(p *frames.Peer) {
		p.Frame(frames.Headers, frames.EndHeaders|frames.End, id, append(bytes.Clone(getBlock), more...))
	}
}

func post(p *frames.Peer, id uint32) *frames.Peer {
	return p.Frame(frames.Headers, frames.EndHeaders, id, postBlock)
}

var rules = []rule{
	{"4.1 the reserved bit of a stream's number", func(p *frames.Peer) { p.Frame(frames.Headers, 5, 1<<31|1, getBlock) },
		[]string{"headers 1 end"}},
	{"4.1 flags that have no meaning", func(p *frames.Peer) {
		p.Frame(frames.Headers, 0xd2|frames.EndHeaders, 1, postBlock).Frame(frames.Data, 0xf7, 1, []byte("a"))
	}, []string{"headers 1", `data 1 "a" end`}},
	{"4.3 unknown frame within a header block", func(p *frames.Peer) {
		p.Frame(frames.Headers, frames.End, 1, getBlock[:1]).Frame(0xbe, 0, 1, []byte("x"))
	}, []string{"goaway 0 PROTOCOL_ERROR", "end"}},
	{"RFC 9218, 7.1 PRIORITY_UPDATE within a header block", func(p *frames.Peer) {
		p.Frame(frames.Headers, frames.End, 1, getBlock[:1]).Frame(typePriorityUpdate, 0, 0, []byte{0, 0, 0, 1, 'u', '=', '1'})
	}, []string{"goaway 0 PROTOCOL_ERROR", "end"}},
	{"RFC 9218, 7.1 PRIORITY_UPDATE and unknown frames between others", func(p *frames.Peer) {
		post(p, 1).Frame(typePriorityUpdate, 0, 0, []byte{0, 0, 0, 1, 'u', '=', '1'}).Frame(0xbe, 0xff, 1, []byte("x")).Data(1, "a", true)
	}, []string{"headers 1", `data 1 "a" end`}},
	{"5.1.1 a stream that was jumped over is closed", func(p *frames.Peer) { headersWith(5)(p); p.Window(3, 1).Reset(1, h2.Cancel) },
		[]string{"headers 5 end"}},
	{"5.4.1 frames behind an error of the connection", func(p *frames.Peer) { p.Data(0, "", false); headersWith(1)(p) },
		[]string{"goaway 0 PROTOCOL_ERROR", "end"}},
	{"6.1 empty DATA frames", func(p *frames.Peer) {
		post(p, 1).Data(1, "", false).Data(1, "a", false).Data(1, "", false).Data(1, "", true)
	},
		[]string{"headers 1", `data 1 "a" end`}},
	{"6.2 empty HEADERS and CONTINUATION", func(p *frames.Peer) {
		p.Frame(frames.Headers, frames.End, 1, nil).Frame(typeContinuation, 0, 1, getBlock).Frame(typeContinuation, frames.EndHeaders, 1, nil)
	}, []string{"headers 1 end"}},
	{"6.2 all of the payload is padding", func(p *frames.Peer) { p.Frame(frames.Headers, flagPadded|5, 1, []byte{3, 0, 0, 0}) },
		[]string{"reset 1 PROTOCOL_ERROR"}},
	{"6.2 padding as long as its frame", func(p *frames.Peer) { p.Frame(frames.Headers, flagPadded|5, 1, []byte{4, 0, 0, 0}) },
		[]string{"goaway 0 PROTOCOL_ERROR", "end"}},
	{"6.6 PUSH_PROMISE on a stream of the client", func(p *frames.Peer) {
		post(p, 1).Frame(typePushPromise, frames.EndHeaders, 1, append([]byte{0, 0, 0, 2}, getBlock...))
	}, []string{"goaway 1 PROTOCOL_ERROR", "end"}},
	{"6.8 the client's GOAWAY leaves its streams alone", func(p *frames.Peer) {
		post(p, 1).Frame(frames.GoAway, 0, 0, make([]byte, 8)).Data(1, "a", true)
	}, []string{"goaway 1 NO_ERROR", "headers 1", `data 1 "a" end`, "end"}},
	{"6.9 a window of nothing holds back bodies only", func(p *frames.Peer) {
		p.Frame(frames.Settings, 0, 0, []byte{0, 4, 0, 0, 0, 0})
		post(p, 1).Data(1, "abc", true).Request(3, true).Window(1, 1).Window(1, 2)
	}, []string{"headers 1", "headers 3 end", `data 1 "abc" end`}},
	{"6.9.2 a window that has become negative", func(p *frames.Peer) {
		p.Frame(frames.Settings, 0, 0, []byte{0, 4, 0, 0, 0, 2})
		post(p, 1).Data(1, "abcdef", true).Frame(frames.Settings, 0, 0, []byte{0, 4, 0, 0, 0, 0}).Window(1, 2).Window(1, 2)
	}, []string{"headers 1", `data 1 "abcd"`}},
	{"6.9.1 credit beyond the largest window", func(p *frames.Peer) { post(p, 1).Window(1, 1<<31-1) },
		[]string{"reset 1 FLOW_CONTROL_ERROR"}},
	{"8.1.1 more body than content-length", func(p *frames.Peer) {
		p.Headers(1, false, ":method", "POST", ":scheme", "http", ":path", "/", "content-length", "3").Data(1, "ab", false).Data(1, "cd", true)
	}, []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.2.1 upper case in trailers", func(p *frames.Peer) {
		post(p, 1).Frame(frames.Headers, 5, 1, append([]byte{0, 3}, "X-A\x01b"...))
	}, []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.2.1 line end in a value", headersWith(1, append([]byte{0, 1, 'a', 3}, "b\nc"...)...), []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.2.1 empty name", headersWith(1, 0, 0, 1, 'b'), []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.2.1 colon in a name", headersWith(1, append([]byte{0, 3}, "a:b\x01c"...)...), []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.2.2 upgrade", func(p *frames.Peer) { p.Request(1, true, "upgrade", "websocket") }, []string{"headers 1", "reset 1 PROTOCOL_ERROR"}},
	{"8.2.2 keep-alive", func(p *frames.Peer) { p.Request(1, true, "keep-alive", "5") }, []string{"headers 1", "reset 1 PROTOCOL_ERROR"}},
	{"8.2.2 transfer-encoding", func(p *frames.Peer) { p.Request(1, false, "transfer-encoding", "chunked") }, []string{"headers 1", "reset 1 PROTOCOL_ERROR"}},
	{"8.2.2 proxy-connection", func(p *frames.Peer) { p.Request(1, true, "proxy-connection", "close") }, []string{"headers 1", "reset 1 PROTOCOL_ERROR"}},
	{"8.3 pseudo-header field in trailers", func(p *frames.Peer) { post(p, 1).Headers(1, true, ":path", "/") }, []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.3 empty pseudo-header field", func(p *frames.Peer) { p.Headers(1, true, ":method", "", ":scheme", "http", ":path", "/") }, []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.3.1 :authority twice", func(p *frames.Peer) { p.Request(1, true, ":authority", "b") }, []string{"reset 1 PROTOCOL_ERROR"}},
	{"8.5 CONNECT", func(p *frames.Peer) {
		p.Headers(1, false, ":method", "CONNECT", ":authority", "a:1").Data(1, "abc", true)
	},
		[]string{"headers 1", `data 1 "abc" end`}},
	{"8.5 CONNECT with a scheme", func(p *frames.Peer) { p.Headers(1, true, ":method", "CONNECT", ":authority", "a:1", ":scheme", "http") },
		[]string{"reset 1 PROTOCOL_ERROR"}},
	{"RFC 7541, 2.3.3 a name's index beyond the tables", headersWith(1, 0x7f, 0x07, 0x00), []string{"goaway 0 COMPRESSION_ERROR", "end"}},
	{"RFC 7541, 4.2 two size updates at the beginning", func(p *frames.Peer) {
		p.Frame(frames.Headers, 5, 1, append([]byte{0x20, 0x3f, 0xe1, 0x1f}, getBlock...))
	}, []string{"headers 1 end"}},
	{"RFC 7541, 4.2 size update behind a field", headersWith(1, 0x20), []string{"goaway 0 COMPRESSION_ERROR", "end"}},
	{"RFC 7541, 4.2 size update beyond the setting", func(p *frames.Peer) {
		p.Frame(frames.Headers, 5, 1, append([]byte{0x3f, 0xe2, 0x1f}, getBlock...))
	}, []string{"goaway 0 COMPRESSION_ERROR", "end"}},
	{"RFC 7541, 4.4 an entry larger than the table is not in it", func(p *frames.Peer) {
		p.Frame(frames.Headers, 5, 1, []byte{0x20, 0x82, 0x86, 0x84, 0x40, 1, 'a', 1, 'b', 0xbe})
	}, []string{"goaway 0 COMPRESSION_ERROR", "end"}},
	{"RFC 7541, 5.1 a number that overflows", headersWith(1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01), []string{"goaway 0 COMPRESSION_ERROR", "end"}},
	{"RFC 7541, 5.2 a string that its block doesn't end", headersWith(1, 0, 9, 'a'), []string{"goaway 0 COMPRESSION_ERROR", "end"}},
}

// TestRFC9113 checks the rules on percore's servers, in clear.
func TestRFC9113(t *testing.T) {
	for name, serve := range map[string]func(l net.Listener) (stop func() error){
		"h2": func(l net.Listener) func() error {
			server := h2.New(h2.HandlerFunc(func(s *h2.Stream, _ *h2.Request) {
				body, err := io.ReadAll(s)
				if err == nil {
					_ = s.Send(h2.Message{Status: 200, Body: body, End: true})
				}
			}), h2.Config{BeginTimeout: testnet.HangTimeout})
			go func() { _ = server.Serve(l) }()
			return server.Close
		},
		"httpadapter": func(l net.Listener) func() error {
			srv := &http.Server{Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
			srv.Protocols.SetUnencryptedHTTP2(true)
			srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err == nil {
					_, _ = w.Write(body)
				}
			})
			server := httpadapter.Wrap(srv)
			go func() { _ = server.Serve(l) }()
			return server.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "httpadapter" && percoreIsNet() {
				t.Skip("there is no engine in this build, and net/http serves: run it without the build tag percore_net")
			}
			l := testnet.Listen(t, percore.Listen, testnet.TCP4)
			stop := serve(l)
			defer stop()
			for _, r := range rules {
				t.Run(r.name, func(t *testing.T) { r.check(t, l) })
			}
		})
	}
}

// check plays a rule on a connection of its own. A PING ends the frames that are waited for, unless the
// server ends the connection.
func (r *rule) check(t *testing.T, l net.Listener) {
	c := testnet.Dial(t, l)
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	p := frames.NewPeer(t, c)
	r.send(p)
	p.Flush()
	var got []string
	for len(got) < len(r.want) && !slices.Contains(got, "end") {
		got = append(got, next(p))
	}
	if !slices.Contains(got, "end") {
		if f := next(p.Frame(frames.Ping, 0, 0, []byte("the last")).Flush()); f != "pong" {
			got = append(got, f)
		}
	}
	want := slices.Clone(r.want)
	slices.Sort(want) // streams are answered in any order
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// next returns the next frame, without fields, that is neither SETTINGS nor WINDOW_UPDATE, nor the text
// that a malformed request is answered with.
func next(p *frames.Peer) string {
	for {
		f := p.Next()
		kind, rest, _ := strings.Cut(f, " ")
		switch {
		case kind == "settings", kind == "window", strings.HasPrefix(f, `data 1 "request header`):
			continue
		}
		switch kind {
		case "pong":
			return kind
		case "headers":
			id, _, _ := strings.Cut(rest, " ")
			if strings.HasSuffix(f, " end") {
				id += " end"
			}
			return kind + " " + id
		}
		return f
	}
}
