package h2

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/http2/hpack"
	"github.com/percore/percore/internal/testnet"
)

// ways are the kinds of connections that a server has.
var ways = []struct {
	name   string
	tls    bool
	listen testnet.ListenFunc
}{
	{"plain", false, percore.Listen},
	{"tls", true, percore.Listen},
	{"net", false, net.Listen},
	{"tls on net", true, net.Listen},
}

// eachWay runs a test on each kind of connection.
func eachWay(t *testing.T, test func(t *testing.T, start func(h Handler, config Config) *fixture)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			test(t, func(h Handler, config Config) *fixture {
				f := &fixture{t: t}
				if way.tls {
					config.TLS, f.tls = testnet.TLS(t)
				}
				f.start(way.listen, h, config)
				return f
			})
		})
	}
}

// fixture is a server under test.
type fixture struct {
	t      testing.TB
	tls    *tls.Config // the client's
	server *Server
	l      net.Listener
	served chan error
}

// serve starts a server on plain connections of percore's.
func serve(t testing.TB, h Handler, config Config) *fixture {
	f := &fixture{t: t}
	f.start(percore.Listen, h, config)
	return f
}

func (f *fixture) start(listen testnet.ListenFunc, h Handler, config Config) {
	if config.BeginTimeout == 0 {
		config.BeginTimeout = testnet.HangTimeout // the machine may be busy
	}
	f.server = New(h, config)
	l, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.l, f.served = l, make(chan error, 1)
	go func() { f.served <- f.server.Serve(l) }()
	f.t.Cleanup(func() {
		f.server.Close()
		if err := testnet.Receive(f.t, "Serve's return", f.served); err != ErrServerClosed {
			f.t.Errorf("Serve returned %v, want %v", err, ErrServerClosed)
		}
	})
}

// client returns an HTTP client of net/http's, which ends with the test.
func (f *fixture) client() *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: f.tls.Clone()} // which it changes
	if f.tls == nil {
		tr.Protocols.SetUnencryptedHTTP2(true)
	} else {
		tr.Protocols.SetHTTP2(true)
	}
	f.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (f *fixture) url(path string) string {
	if f.tls != nil {
		return "https://" + f.l.Addr().String() + path
	}
	return "http://" + f.l.Addr().String() + path
}

// dial returns a connection to the server.
func (f *fixture) dial() net.Conn {
	c, err := net.Dial("tcp", f.l.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	if f.tls != nil {
		config := f.tls.Clone()
		config.NextProtos = []string{"h2"}
		c = tls.Client(c, config)
	}
	f.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return c
}

// The types and flags of frames.
const (
	typeData         = 0
	typeHeaders      = 1
	typePriority     = 2
	typeRSTStream    = 3
	typeSettings     = 4
	typePing         = 6
	typeGoAway       = 7
	typeWindowUpdate = 8

	flagEnd        = 1
	flagAck        = 1
	flagEndHeaders = 4
)

// peer is a client that sends and gets single frames. It is for the test's goroutine.
type peer struct {
	t   testing.TB
	c   net.Conn
	enc hpack.Encoder
	dec hpack.Decoder
	out []byte
}

// peer dials, and says hello, with settings that are written as id, value.
func (f *fixture) peer(settings ...uint32) *peer {
	p := &peer{t: f.t, c: f.dial(), enc: hpack.MakeEncoder(4096), dec: hpack.MakeDecoder()}
	p.out = append(p.out, http2.Preface...)
	var b []byte
	for i := 0; i < len(settings); i += 2 {
		b = binary.BigEndian.AppendUint16(b, uint16(settings[i]))
		b = binary.BigEndian.AppendUint32(b, settings[i+1])
	}
	return p.frame(typeSettings, 0, 0, b).frame(typeSettings, flagAck, 0, nil)
}

// frame adds a frame to those that flush sends.
func (p *peer) frame(typ, flags byte, id uint32, payload []byte) *peer {
	n := len(payload)
	p.out = append(p.out, byte(n>>16), byte(n>>8), byte(n), typ, flags)
	p.out = binary.BigEndian.AppendUint32(p.out, id)
	p.out = append(p.out, payload...)
	return p
}

func (p *peer) flush() *peer {
	p.t.Helper()
	if _, err := p.c.Write(p.out); err != nil {
		p.t.Fatalf("sending frames: %v", err)
	}
	p.out = p.out[:0]
	return p
}

var get = []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "example.com"}

// request adds HEADERS, with fields behind the pseudo-header fields.
func (p *peer) request(id uint32, end bool, more ...string) *peer {
	return p.headers(id, end, slices.Concat(get, more)...)
}

func (p *peer) headers(id uint32, end bool, fields ...string) *peer {
	b := p.enc.Begin(nil)
	for i := 0; i < len(fields); i += 2 {
		b = p.enc.Append(b, hpack.MakeField(fields[i], fields[i+1]))
	}
	flags := byte(flagEndHeaders)
	if end {
		flags |= flagEnd
	}
	return p.frame(typeHeaders, flags, id, b)
}

func (p *peer) data(id uint32, body string, end bool) *peer {
	flags := byte(0)
	if end {
		flags = flagEnd
	}
	return p.frame(typeData, flags, id, []byte(body))
}

func (p *peer) number(typ byte, id, v uint32) *peer {
	return p.frame(typ, 0, id, binary.BigEndian.AppendUint32(nil, v))
}

func (p *peer) reset(id uint32, code ErrCode) *peer { return p.number(typeRSTStream, id, uint32(code)) }
func (p *peer) window(id, n uint32) *peer           { return p.number(typeWindowUpdate, id, n) }

// next returns the next frame as a line; "end" is the end of the stream.
func (p *peer) next() string {
	var h [9]byte
	if _, err := io.ReadFull(p.c, h[:]); err != nil {
		if err == io.EOF {
			return "end"
		}
		return "error: " + err.Error()
	}
	b := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
	if _, err := io.ReadFull(p.c, b); err != nil {
		return "error: " + err.Error()
	}
	id, flags, end := binary.BigEndian.Uint32(h[5:]), h[4], ""
	if flags&flagEnd != 0 {
		end = " end"
	}
	switch h[3] {
	case typeData:
		return fmt.Sprintf("data %d %q%s", id, b, end)
	case typeHeaders:
		var l hpack.List
		l.Reset(1<<20, 1000)
		if err := p.dec.Decode(b, true, &l); err != nil {
			p.t.Fatalf("decoding a header: %v", err)
		}
		s := fmt.Sprintf("headers %d", id)
		for _, f := range l.Fields {
			s += " " + f.Name.String() + "=" + f.Value
		}
		return s + end
	case typeRSTStream:
		return fmt.Sprintf("reset %d %v", id, ErrCode(binary.BigEndian.Uint32(b)))
	case typeSettings:
		if flags&flagAck != 0 {
			return "settings ack"
		}
		return "settings"
	case typePing:
		if flags&flagAck != 0 {
			return fmt.Sprintf("pong %x", b)
		}
		p.frame(typePing, flagAck, 0, b).flush()
		return p.next()
	case typeGoAway:
		return fmt.Sprintf("goaway %d %v", binary.BigEndian.Uint32(b), ErrCode(binary.BigEndian.Uint32(b[4:])))
	case typeWindowUpdate:
		return fmt.Sprintf("window %d %d", id, binary.BigEndian.Uint32(b))
	}
	return fmt.Sprintf("frame %d", h[3])
}

// want reads frames, those of the connection's beginning aside, and compares them.
func (p *peer) want(lines ...string) *peer {
	p.t.Helper()
	for _, want := range lines {
		got := p.next()
		for got == "settings" || got == "settings ack" || strings.HasPrefix(got, "window 0 983041") {
			got = p.next()
		}
		if got != want {
			p.t.Fatalf("got the frame %q, want %q", got, want)
		}
	}
	return p
}

// shutdown drains the server.
func (f *fixture) shutdown() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	if err := f.server.Shutdown(ctx); err != nil {
		f.t.Errorf("Shutdown: %v", err)
	}
}
