package http2

import (
	"strings"
	"testing"
)

const request1 = "request 1 GET http://example.com/"

// TestRules has a case for each rule of RFC 9113 (or of the RFC that is named) that a client can
// break or use, by section.
func TestRules(t *testing.T) {
	const protocol, size, flow = "> goaway 0 PROTOCOL_ERROR", "> goaway 0 FRAME_SIZE_ERROR", "> goaway 0 FLOW_CONTROL_ERROR"
	const errProtocol, errSize, errFlow = "error http2: PROTOCOL_ERROR", "error http2: FRAME_SIZE_ERROR", "error http2: FLOW_CONTROL_ERROR"
	for _, test := range []struct {
		name string
		send func(p *peer)
		want []string
	}{
		{"4.1 unknown type", func(p *peer) { p.frame(0xbe, 0xff, 7, []byte("x")) }, nil},
		{"4.1 reserved bit", func(p *peer) { p.frame(typePing, 0, 1<<31, make([]byte, 8)) }, []string{"> ping true 0000000000000000"}},
		{"4.2 too long", func(p *peer) { p.frame(typePing, 0, 0, make([]byte, maxFrameBytes+1)) }, []string{errSize, size}},
		{"4.2 too long, DATA", func(p *peer) { p.frame(typeData, 0, 1, make([]byte, maxFrameBytes+1)) }, []string{errSize, size}},
		{"4.3 bad block", func(p *peer) { p.frame(typeHeaders, 5, 1, []byte{0x80}) }, []string{"error http2: COMPRESSION_ERROR", "> goaway 0 COMPRESSION_ERROR"}},
		{"4.3 interrupted by another type", func(p *peer) { p.frame(typeHeaders, 0, 1, nil).frame(typePing, 0, 0, make([]byte, 8)) }, []string{errProtocol, protocol}},
		{"4.3 interrupted by an unknown type", func(p *peer) { p.frame(typeHeaders, 0, 1, nil).frame(0xbe, 0, 1, nil) }, []string{errProtocol, protocol}},
		{"4.3 interrupted by another stream", func(p *peer) { p.frame(typeHeaders, 0, 1, nil).frame(typeContinuation, 4, 3, nil) }, []string{errProtocol, protocol}},

		{"5.1 idle: DATA", func(p *peer) { p.data(1, "x", true) }, []string{errProtocol, protocol}},
		{"5.1 idle: RST_STREAM", func(p *peer) { p.reset(1) }, []string{errProtocol, protocol}},
		{"5.1 idle: WINDOW_UPDATE", func(p *peer) { p.windowUpdate(1, 1) }, []string{errProtocol, protocol}},
		{"5.1 half-closed (remote): DATA", func(p *peer) { p.get(1).data(1, "x", true) }, []string{request1 + " end", "reset 1 STREAM_CLOSED local", "> reset 1 STREAM_CLOSED"}},
		{"5.1 half-closed (remote): HEADERS", func(p *peer) { p.get(1).get(1) }, []string{request1 + " end", "reset 1 STREAM_CLOSED local", "> reset 1 STREAM_CLOSED"}},
		{"5.1 half-closed (remote): WINDOW_UPDATE", func(p *peer) { p.get(1).windowUpdate(1, 1) }, []string{request1 + " end"}},
		{"5.1 closed by RST_STREAM: DATA", func(p *peer) { p.post(1).reset(1).data(1, "x", true) }, []string{request1, "reset 1 CANCEL", "> reset 1 STREAM_CLOSED"}},
		{"5.1 closed by RST_STREAM: HEADERS", func(p *peer) { p.post(1).reset(1).get(1) }, []string{request1, "reset 1 CANCEL", errProtocol, "> goaway 1 PROTOCOL_ERROR"}},
		{"5.1 closed: RST_STREAM, WINDOW_UPDATE", func(p *peer) { p.get(1).reset(1).reset(1).windowUpdate(1, 1) }, []string{request1 + " end", "reset 1 CANCEL"}},
		{"5.1.1 even identifier", func(p *peer) { p.get(2) }, []string{errProtocol, protocol}},
		{"5.1.1 identifier that goes down", func(p *peer) { p.get(3).get(1) }, []string{"request 3 GET http://example.com/ end", errProtocol, "> goaway 3 PROTOCOL_ERROR"}},
		{"5.1.1 identifier that was jumped over: RST_STREAM", func(p *peer) { p.get(3).reset(1) }, []string{"request 3 GET http://example.com/ end"}},
		{"5.3.2 priority of itself", func(p *peer) { p.frame(typePriority, 0, 1, []byte{0, 0, 0, 1, 9}).get(1) }, []string{request1 + " end", "> reset 1 PROTOCOL_ERROR"}},
		{"5.3.2 HEADERS with priority of itself", func(p *peer) {
			p.frame(typeHeaders, flagPriority|5, 1, append([]byte{0x80, 0, 0, 1, 9}, p.block(get...)...))
		}, []string{"> reset 1 PROTOCOL_ERROR"}},

		{"6.1 DATA on stream 0", func(p *peer) { p.data(0, "x", true) }, []string{errProtocol, protocol}},
		{"6.1 padding too long", func(p *peer) { p.post(1).frame(typeData, flagPadded, 1, []byte{6, 1, 2, 3, 4, 5}) }, []string{request1, errProtocol, "> goaway 1 PROTOCOL_ERROR"}},
		{"6.1 padding without its length", func(p *peer) { p.post(1).frame(typeData, flagPadded, 1, nil) }, []string{request1, errSize, "> goaway 1 FRAME_SIZE_ERROR"}},
		{"6.1 nothing but padding", func(p *peer) { p.post(1).frame(typeData, flagPadded|flagEndStream, 1, []byte{2, 0, 0}) }, []string{request1, `data 1 "" end`}},
		{"6.1 padded", func(p *peer) { p.post(1).frame(typeData, flagPadded, 1, []byte("\x02ab\x00\x00")) }, []string{request1, `data 1 "ab"`}},
		{"6.1 much padding", func(p *peer) {
			p.post(1).frame(typeData, flagPadded|flagEndStream, 1, []byte("\x09ab123456789")).get(3)
		}, []string{request1, `data 1 "ab" end`, "request 3 GET http://example.com/ end"}},
		{"6.2 HEADERS on stream 0", func(p *peer) { p.get(0) }, []string{errProtocol, protocol}},
		{"6.2 padding too long", func(p *peer) { p.frame(typeHeaders, flagPadded|5, 1, []byte{2, 0x82}) }, []string{errProtocol, protocol}},
		{"6.2 padding without its length", func(p *peer) { p.frame(typeHeaders, flagPadded|5, 1, nil) }, []string{errSize, size}},
		{"6.2 without its priority", func(p *peer) { p.frame(typeHeaders, flagPriority|5, 1, []byte{0, 0, 0, 0}) }, []string{errSize, size}},
		{"6.2 padded, with priority", func(p *peer) {
			b := append([]byte{3, 0, 0, 0, 7, 9}, p.block(get...)...)
			p.frame(typeHeaders, flagPadded|flagPriority|5, 1, append(b, 0, 0, 0))
		}, []string{request1 + " end"}},
		{"6.3 PRIORITY on stream 0", func(p *peer) { p.frame(typePriority, 0, 0, make([]byte, 5)) }, []string{errProtocol, protocol}},
		{"6.3 PRIORITY of another length", func(p *peer) { p.frame(typePriority, 0, 1, make([]byte, 4)) }, []string{errSize, size}},
		{"6.3 PRIORITY on an idle stream", func(p *peer) { p.frame(typePriority, 0, 9, make([]byte, 5)) }, nil},
		{"6.4 RST_STREAM on stream 0", func(p *peer) { p.reset(0) }, []string{errProtocol, protocol}},
		{"6.4 RST_STREAM of another length", func(p *peer) { p.frame(typeRSTStream, 0, 1, nil) }, []string{errSize, size}},
		{"6.5 SETTINGS on a stream", func(p *peer) { p.frame(typeSettings, 0, 1, nil) }, []string{errProtocol, protocol}},
		{"6.5 SETTINGS of another length", func(p *peer) { p.frame(typeSettings, 0, 0, make([]byte, 5)) }, []string{errSize, size}},
		{"6.5 acknowledgement that is not empty", func(p *peer) { p.frame(typeSettings, flagAck, 0, make([]byte, 6)) }, []string{errSize, size}},
		{"6.5 acknowledgement of nothing", func(p *peer) { p.frame(typeSettings, flagAck, 0, nil) }, []string{errProtocol, protocol}},
		{"6.5 too many settings", func(p *peer) { p.settings(make([]uint32, 2*(settingsMax+1))...) }, []string{errProtocol, protocol}},
		{"6.5.3 twice the same", func(p *peer) {
			p.get(1).settings(settingInitialWindow, 1<<31-1, settingInitialWindow, 1).windowUpdate(1, 1<<31-2)
		}, []string{request1 + " end", "> settings ack"}},
		{"6.5.3 twice the same, the first value is wrong", func(p *peer) { p.settings(settingMaxFrameSize, 1, settingMaxFrameSize, 1<<14) }, []string{errProtocol, protocol}},
		{"6.5.2 ENABLE_PUSH", func(p *peer) { p.settings(settingEnablePush, 2) }, []string{errProtocol, protocol}},
		{"6.5.2 INITIAL_WINDOW_SIZE", func(p *peer) { p.settings(settingInitialWindow, 1<<31) }, []string{errFlow, flow}},
		{"6.5.2 MAX_FRAME_SIZE too small", func(p *peer) { p.settings(settingMaxFrameSize, 16383) }, []string{errProtocol, protocol}},
		{"6.5.2 MAX_FRAME_SIZE 0, CVE-2026-33814", func(p *peer) { p.settings(settingMaxFrameSize, 0) }, []string{errProtocol, protocol}},
		{"6.5.2 MAX_FRAME_SIZE too large", func(p *peer) { p.settings(settingMaxFrameSize, 1<<24) }, []string{errProtocol, protocol}},
		{"6.5.2 unknown", func(p *peer) { p.settings(0xbeef, 7) }, []string{"> settings ack"}},
		{"RFC 8441, 3 ENABLE_CONNECT_PROTOCOL", func(p *peer) { p.settings(settingExtendedConnect, 2) }, []string{errProtocol, protocol}},
		{"6.6 PUSH_PROMISE", func(p *peer) { p.frame(typePushPromise, 4, 1, u32(2)) }, []string{errProtocol, protocol}},
		{"6.7 PING", func(p *peer) { p.frame(typePing, 0, 0, []byte("01234567")) }, []string{"> ping true 3031323334353637"}},
		{"6.7 answer to PING", func(p *peer) { p.frame(typePing, flagAck, 0, []byte("01234567")) }, []string{"pong 3031323334353637"}},
		{"6.7 PING on a stream", func(p *peer) { p.frame(typePing, 0, 1, make([]byte, 8)) }, []string{errProtocol, protocol}},
		{"6.7 PING of another length", func(p *peer) { p.frame(typePing, 0, 1, make([]byte, 6)) }, []string{errSize, size}},
		{"6.8 GOAWAY", func(p *peer) { p.get(1).frame(typeGoAway, 0, 0, make([]byte, 8)).get(3) }, []string{request1 + " end", "goes away", "> goaway 1 NO_ERROR"}},
		{"6.8 GOAWAY on a stream", func(p *peer) { p.frame(typeGoAway, 0, 1, make([]byte, 8)) }, []string{errProtocol, protocol}},
		{"6.8 GOAWAY too short", func(p *peer) { p.frame(typeGoAway, 0, 0, make([]byte, 7)) }, []string{errSize, size}},
		{"6.9 nothing, connection", func(p *peer) { p.windowUpdate(0, 0) }, []string{errProtocol, protocol}},
		{"6.9 nothing, stream", func(p *peer) { p.get(1).windowUpdate(1, 0) }, []string{request1 + " end", "reset 1 PROTOCOL_ERROR local", "> reset 1 PROTOCOL_ERROR"}},
		{"6.9 nothing, a stream that was reset here", func(p *peer) {
			p.get(1).feed()
			p.c.Reset(p.streams[1], Cancel)
			p.windowUpdate(1, 0)
		}, []string{request1 + " end", "> reset 1 CANCEL", "> reset 1 PROTOCOL_ERROR"}},
		{"6.9 of another length", func(p *peer) { p.frame(typeWindowUpdate, 0, 0, make([]byte, 3)) }, []string{errSize, size}},
		{"6.9.1 connection's window too large", func(p *peer) { p.windowUpdate(0, maxWindowBytes-65535).get(1).windowUpdate(0, 1) },
			[]string{request1 + " end", errFlow, "> goaway 1 FLOW_CONTROL_ERROR"}},
		{"6.9.1 stream's window too large", func(p *peer) { p.get(1).windowUpdate(1, maxWindowBytes) }, []string{request1 + " end", "reset 1 FLOW_CONTROL_ERROR local", "> reset 1 FLOW_CONTROL_ERROR"}},
		{"6.9.2 initial window makes a stream's too large", func(p *peer) { p.get(1).windowUpdate(1, 1).settings(settingInitialWindow, maxWindowBytes) },
			[]string{request1 + " end", errFlow, "> goaway 1 FLOW_CONTROL_ERROR"}},
		{"6.9.2 and of a stream that has ended", func(p *peer) {
			p.get(1).windowUpdate(1, 1).get(3).reset(1).settings(settingInitialWindow, maxWindowBytes)
		}, []string{request1 + " end", "request 3 GET http://example.com/ end", "reset 1 CANCEL", "> settings ack"}},
		{"6.10 CONTINUATION", func(p *peer) {
			b := p.block(get...)
			p.frame(typeHeaders, flagEndStream, 1, b[:3]).frame(typeContinuation, 0, 1, b[3:9]).frame(typeContinuation, flagEndHeaders, 1, b[9:])
		}, []string{request1 + " end"}},
		{"6.10 CONTINUATION behind a priority of itself", func(p *peer) {
			b := p.block(get...)
			p.frame(typeHeaders, flagPriority|flagEndStream, 1, append([]byte{0, 0, 0, 1, 9}, b[:3]...)).frame(typeContinuation, flagEndHeaders, 1, b[3:])
		}, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"6.10 CONTINUATION on stream 0", func(p *peer) { p.frame(typeContinuation, 0, 0, nil) }, []string{errProtocol, protocol}},
		{"6.10 CONTINUATION behind END_HEADERS", func(p *peer) { p.get(1).frame(typeContinuation, 4, 1, nil) }, []string{request1 + " end", errProtocol, "> goaway 1 PROTOCOL_ERROR"}},

		{"8.1 trailers", func(p *peer) {
			p.post(1).data(1, "x", false).frame(typeHeaders, 5, 1, p.block("x-a", "b"))
		}, []string{request1, `data 1 "x"`, "trailers 1 x-a=b end"}},
		{"8.1 trailers without END_STREAM", func(p *peer) { p.post(1).frame(typeHeaders, 4, 1, p.block("x-a", "b")) },
			[]string{request1, "reset 1 PROTOCOL_ERROR local", "> reset 1 PROTOCOL_ERROR"}},
		{"8.1 trailers with a pseudo-header field", func(p *peer) { p.post(1).frame(typeHeaders, 5, 1, p.block(":path", "/")) },
			[]string{request1, "reset 1 PROTOCOL_ERROR local", "> reset 1 PROTOCOL_ERROR"}},
		{"8.1.1 more than content-length", func(p *peer) { p.post(1, "content-length", "1").data(1, "xy", false) },
			[]string{request1 + " content-length=1", "reset 1 PROTOCOL_ERROR local", "> reset 1 PROTOCOL_ERROR"}},
		{"8.1.1 less than content-length", func(p *peer) { p.post(1, "content-length", "3").data(1, "xy", true) },
			[]string{request1 + " content-length=3", `data 1 "xy" end short`}},
		{"8.1.1 less than content-length, trailers", func(p *peer) { p.post(1, "content-length", "3").frame(typeHeaders, 5, 1, p.block("x-a", "b")) },
			[]string{request1 + " content-length=3", "trailers 1 x-a=b end short"}},
		{"8.1.1 content-length and no body", func(p *peer) { p.get(1, "content-length", "3") }, []string{request1 + " content-length=3 problem 4 end"}},
		{"8.1.1 two lengths", func(p *peer) { p.post(1, "content-length", "3", "content-length", "4") },
			[]string{request1 + " content-length=3 content-length=4 problem 4"}},
		{"8.1.1 the same length twice", func(p *peer) { p.post(1, "content-length", "1", "content-length", "1").data(1, "x", true) },
			[]string{request1 + " content-length=1 content-length=1", `data 1 "x" end`}},
		{"8.2.1 upper case", func(p *peer) { p.get(1, "X-A", "b") }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.2.1 control character", func(p *peer) { p.get(1, "x-a", "b\r\nc: d") }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.2.1 space in a name", func(p *peer) { p.get(1, "x a", "b") }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.2.2 connection", func(p *peer) { p.get(1, "connection", "close") }, []string{request1 + " connection=close problem 2 end"}},
		{"8.2.2 te", func(p *peer) { p.get(1, "te", "gzip") }, []string{request1 + " te=gzip problem 3 end"}},
		{"8.2.2 te: trailers", func(p *peer) { p.get(1, "te", "trailers") }, []string{request1 + " te=trailers end"}},
		{"8.2.2 te twice", func(p *peer) { p.get(1, "te", "trailers", "te", "trailers") }, []string{request1 + " te=trailers te=trailers problem 3 end"}},
		{"8.3 pseudo-header field behind others", func(p *peer) { p.get(1, "a", "b", ":path", "/") }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3 twice the same", func(p *peer) { p.get(1, ":path", "/") }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3 unknown", func(p *peer) { p.get(1, ":new", "/") }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3 of answers", func(p *peer) { p.get(1, ":status", "200") }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3.1 no method", func(p *peer) { p.frame(typeHeaders, 5, 1, p.block(get[2:]...)) }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3.1 method is no token", func(p *peer) {
			p.frame(typeHeaders, 5, 1, p.block(":method", "GET /x", ":scheme", "http", ":path", "/"))
		}, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3.1 no path", func(p *peer) { p.frame(typeHeaders, 5, 1, p.block(":method", "GET", ":scheme", "http")) }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3.1 empty path", func(p *peer) {
			p.frame(typeHeaders, 5, 1, p.block(":method", "GET", ":scheme", "http", ":path", ""))
		}, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3.1 scheme", func(p *peer) {
			p.frame(typeHeaders, 5, 1, p.block(":method", "GET", ":scheme", "ftp", ":path", "/"))
		}, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3.1 user information", func(p *peer) {
			p.frame(typeHeaders, 5, 1, p.block(":method", "GET", ":scheme", "http", ":path", "/", "host", "a@b"))
		}, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.3.1 host instead of :authority", func(p *peer) {
			p.frame(typeHeaders, 5, 1, p.block(":method", "GET", ":scheme", "http", ":path", "/", "host", "h"))
		}, []string{"request 1 GET http://h/ host=h end"}},
		{"8.5 CONNECT", func(p *peer) { p.frame(typeHeaders, 4, 1, p.block(":method", "CONNECT", ":authority", "a:1")) }, []string{"request 1 CONNECT ://a:1"}},
		{"8.5 CONNECT with a path", func(p *peer) {
			p.frame(typeHeaders, 4, 1, p.block(":method", "CONNECT", ":authority", "a:1", ":path", "/"))
		}, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"8.5 CONNECT to nothing", func(p *peer) { p.frame(typeHeaders, 4, 1, p.block(":method", "CONNECT")) }, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"RFC 8441, 4 :protocol, not allowed", func(p *peer) {
			p.frame(typeHeaders, 4, 1, p.block(":method", "CONNECT", ":authority", "a", ":scheme", "http", ":path", "/", ":protocol", "websocket"))
		}, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"a wrong request opens its stream", func(p *peer) { p.get(1, "X-A", "b").windowUpdate(1, 1).data(1, "x", true).get(3) },
			[]string{"request 3 GET http://example.com/ end", "> reset 1 PROTOCOL_ERROR"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, n := range []int{0, 1, 7} {
				p := newPeer(t, nil)
				test.send(p)
				if n > 0 {
					p.cut = func(left int) int { return min(n, left) }
				}
				p.feed()
				p.log = joinData(p.log)
				p.want(test.want...)
			}
		})
	}
}

// joinData joins the parts of DATA frames that arrived in pieces.
func joinData(log []string) (joined []string) {
	for _, line := range log {
		if n := len(joined); n > 0 && strings.HasPrefix(line, "data ") && strings.HasSuffix(joined[n-1], `"`) {
			id, body, _ := strings.Cut(line, ` "`)
			if rest, ok := strings.CutPrefix(joined[n-1], id+` "`); ok {
				joined[n-1] = id + ` "` + strings.TrimSuffix(rest, `"`) + body
				continue
			}
		}
		joined = append(joined, line)
	}
	return joined
}

// TestGreeting: section 3.4. The server's frames come first, and the client's must be SETTINGS.
func TestGreeting(t *testing.T) {
	p := newStranger(t, nil)
	p.feed().want("> settings 00050000400000030000"+"00fa0006000100000001000010000004"+"00100000", "> window 0 983041")
	p.in = []byte(Preface)
	p.settings().feed().want("> settings ack")
	if !p.c.Settled() {
		t.Error("got an unsettled connection behind SETTINGS")
	}
	for name, in := range map[string]string{"HTTP/1.1": "GET / HTTP/1.1\r\n\r\n", "nearly": Preface[:23] + "x", "early": "PRI * HTTP/1"} {
		for _, n := range []int{1, 100} {
			p := newStranger(t, nil)
			p.c.TakeOutput()
			p.cut = func(left int) int { return min(n, left) }
			p.in = []byte(in)
			if p.feed(); name == "early" && n == 1 {
				continue // the mismatch shows once 24 bytes have arrived
			}
			if p.want("error http2: PROTOCOL_ERROR: the client does not begin"); !p.err.(*ConnError).Silent {
				t.Errorf("%s: got GOAWAY for a client that speaks no HTTP/2", name)
			}
		}
	}
	p = newStranger(t, nil)
	p.c.TakeOutput()
	p.in = []byte(Preface)
	p.get(1).feed().want("error http2: PROTOCOL_ERROR", "> goaway 0 PROTOCOL_ERROR")
}

// TestExtendedConnect: RFC 8441.
func TestExtendedConnect(t *testing.T) {
	cfg := DefaultConfig()
	cfg.ExtendedConnect = true
	fields := []string{":method", "CONNECT", ":scheme", "https", ":path", "/chat", ":authority", "a", ":protocol", "websocket"}
	p := newStranger(t, cfg)
	p.feed()
	if !strings.HasSuffix(p.log[0], "000800000001") {
		t.Errorf("got the settings %s, want ENABLE_CONNECT_PROTOCOL", p.log[0])
	}
	p = newPeer(t, cfg)
	p.frame(typeHeaders, 4, 1, p.block(fields...)).feed().want("request 1 CONNECT https://a/chat protocol websocket")
	for i := 0; i < len(fields); i += 2 {
		less := append(append([]string(nil), fields[:i]...), fields[i+2:]...)
		p := newPeer(t, cfg)
		p.frame(typeHeaders, 4, 1, p.block(less...)).feed()
		if want := "> reset 1 PROTOCOL_ERROR"; len(p.log) != 1 || p.log[0] != want {
			t.Errorf("without %s: got %q, want %q", fields[i], p.log, want)
		}
	}
}

// TestStates: the transitions are complete, and lead where the diagram of RFC 9113 says.
func TestStates(t *testing.T) {
	for s := range states {
		for in := range inputs {
			tr := transitions[s][in]
			if tr.scope == fine && tr.next < s && !(s == halfClosedLocal && tr.next == halfClosedRemote) {
				t.Errorf("%v: input %d leads back to %v", s, in, tr.next)
			}
			if tr.scope == fine && tr.next == idle {
				t.Errorf("%v: there is no transition for input %d", s, in)
			}
			if (s >= closed) && tr.scope == fine && tr.next != s {
				t.Errorf("%v: input %d leads to %v, want none to lead out", s, in, tr.next)
			}
		}
	}
}

// TestExplain: with Explain, a GOAWAY says what was wrong.
func TestExplain(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Explain = true
	for _, test := range []struct {
		name string
		send func(p *peer)
		want string
	}{
		{"a frame", func(p *peer) { p.frame(typePing, 0, 0, nil) }, `goaway 0 FRAME_SIZE_ERROR "a frame has a wrong length"`},
		{"an even identifier", func(p *peer) { p.get(4) }, `goaway 0 PROTOCOL_ERROR "received an illegal stream id: 4."`},
		{"an identifier that goes down", func(p *peer) { p.get(3).get(1) }, `goaway 3 PROTOCOL_ERROR "received an illegal stream id: 1."`},
		{"a limit", func(p *peer) {
			for range cfg.Idle.Burst + 1 {
				p.frame(typePriority, 0, 1, []byte{0, 0, 0, 0, 0})
			}
		}, `goaway 0 ENHANCE_YOUR_CALM "too many frames that bring nothing"`},
	} {
		p := newPeer(t, cfg)
		test.send(p)
		p.feed()
		if got := p.log[len(p.log)-1]; got != "> "+test.want {
			t.Errorf("%s: got the frame %s, want %s", test.name, got, test.want)
		}
	}
}

// TestAnyTarget: a server of another protocol than HTTP gets requests that HTTP refuses, and is told so.
func TestAnyTarget(t *testing.T) {
	cfg := DefaultConfig()
	cfg.AnyTarget = true
	for _, test := range []struct {
		want   string
		fields []string
	}{
		{"GET http://example.com/", get},
		{" :// x=y bad target", []string{"x", "y"}},
		{"POST unix://a/ bad target", []string{":method", "POST", ":scheme", "unix", ":authority", "a", ":path", "/"}},
		{"POST http://@a/ bad target", []string{":method", "POST", ":scheme", "http", ":authority", "@a", ":path", "/"}},
		{"POST http://@a/ host=@a bad target", []string{":method", "POST", ":scheme", "http", ":path", "/", "host", "@a"}},
		{" http://a/ bad target", []string{":method", "", ":scheme", "http", ":authority", "a", ":path", "/"}},
		{"CONNECT http://a/ bad target", []string{":method", "CONNECT", ":scheme", "http", ":authority", "a", ":path", "/"}},
		{"POST http://a/ protocol x bad target", []string{":method", "POST", ":scheme", "http", ":authority", "a", ":path", "/", ":protocol", "x"}},
	} {
		p := newPeer(t, cfg)
		p.frame(typeHeaders, 4, 1, p.block(test.fields...)).feed().want("request 1 " + test.want)
	}
	p := newPeer(t, cfg)
	p.frame(typeHeaders, 4, 1, p.block(":x", "y")).feed().want("> reset 1 PROTOCOL_ERROR")
}

// TestIgnoreIdleResets: RST_STREAM of a stream that was not opened is ignored, and the stream can be
// opened. A stream of the server's own can't be reset.
func TestIgnoreIdleResets(t *testing.T) {
	cfg := DefaultConfig()
	cfg.IgnoreIdleResets = true
	newPeer(t, cfg).reset(1).get(1).reset(5).get(3).feed().
		want(request1+" end", "request 3 GET http://example.com/ end")
	for name, p := range map[string]*peer{
		"without the option": newPeer(t, DefaultConfig()).reset(1),
		"an even stream":     newPeer(t, cfg).reset(2),
	} {
		if p.feed(); p.err == nil {
			t.Errorf("%s: got no error of the connection", name)
		}
	}
}

// TestIgnoreGoAway: a client that has sent GOAWAY opens streams as before, and is told nothing.
func TestIgnoreGoAway(t *testing.T) {
	cfg := DefaultConfig()
	cfg.IgnoreGoAway = true
	newPeer(t, cfg).get(1).frame(typeGoAway, 0, 0, make([]byte, 8)).get(3).feed().
		want(request1+" end", "request 3 GET http://example.com/ end")
}
