// Package frames provides an HTTP/2 client for tests that sends and receives single frames.
package frames

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/http2/hpack"
)

// The types and flags of frames.
const (
	Data         = 0
	Headers      = 1
	Priority     = 2
	RSTStream    = 3
	Settings     = 4
	Ping         = 6
	GoAway       = 7
	WindowUpdate = 8

	End        = 1
	Ack        = 1
	EndHeaders = 4
)

// A Peer is a client that sends and receives single frames. It must be used only by the test's
// goroutine.
type Peer struct {
	T    testing.TB
	Conn net.Conn
	Out  []byte // what Flush sends

	enc hpack.Encoder
	dec hpack.Decoder
}

// NewPeer returns a client on c that is about to send its preface, its settings and an
// acknowledgement. settings are pairs of id and value.
func NewPeer(t testing.TB, c net.Conn, settings ...uint32) *Peer {
	p := &Peer{T: t, Conn: c, enc: hpack.MakeEncoder(4096), dec: hpack.MakeDecoder()}
	p.Out = append(p.Out, http2.Preface...)
	var b []byte
	for i := 0; i < len(settings); i += 2 {
		b = binary.BigEndian.AppendUint16(b, uint16(settings[i]))
		b = binary.BigEndian.AppendUint32(b, settings[i+1])
	}
	return p.Frame(Settings, 0, 0, b).Frame(Settings, Ack, 0, nil)
}

// NewServerPeer is NewPeer for a server, which has no preface. It reads the client's.
func NewServerPeer(t testing.TB, c net.Conn, settings ...uint32) (*Peer, error) {
	p := NewPeer(t, c, settings...)
	p.Out = p.Out[len(http2.Preface):]
	_, err := io.ReadFull(c, make([]byte, len(http2.Preface)))
	return p, err
}

// Frame adds a frame for Flush to send.
func (p *Peer) Frame(typ, flags byte, id uint32, payload []byte) *Peer {
	n := len(payload)
	p.Out = append(p.Out, byte(n>>16), byte(n>>8), byte(n), typ, flags)
	p.Out = binary.BigEndian.AppendUint32(p.Out, id)
	p.Out = append(p.Out, payload...)
	return p
}

// Flush sends the added frames. It ends the test if that fails.
func (p *Peer) Flush() *Peer {
	p.T.Helper()
	if _, err := p.Conn.Write(p.Out); err != nil {
		p.T.Fatalf("sending frames: %v", err)
	}
	p.Out = p.Out[:0]
	return p
}

var get = []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "example.com"}

// Request adds HEADERS, with more fields after the pseudo-header fields.
func (p *Peer) Request(id uint32, end bool, more ...string) *Peer {
	return p.Headers(id, end, slices.Concat(get, more)...)
}

// Headers adds HEADERS with fields, which are written as name, value.
func (p *Peer) Headers(id uint32, end bool, fields ...string) *Peer {
	b := p.enc.Begin(nil)
	for i := 0; i < len(fields); i += 2 {
		b = p.enc.Append(b, hpack.MakeField(fields[i], fields[i+1]))
	}
	flags := byte(EndHeaders)
	if end {
		flags |= End
	}
	return p.Frame(Headers, flags, id, b)
}

// Data adds DATA.
func (p *Peer) Data(id uint32, body string, end bool) *Peer {
	flags := byte(0)
	if end {
		flags = End
	}
	return p.Frame(Data, flags, id, []byte(body))
}

// Number adds a frame whose payload is a number.
func (p *Peer) Number(typ byte, id, v uint32) *Peer {
	return p.Frame(typ, 0, id, binary.BigEndian.AppendUint32(nil, v))
}

// Reset adds RST_STREAM.
func (p *Peer) Reset(id uint32, code http2.ErrCode) *Peer {
	return p.Number(RSTStream, id, uint32(code))
}

// Window adds WINDOW_UPDATE.
func (p *Peer) Window(id, n uint32) *Peer { return p.Number(WindowUpdate, id, n) }

// Next returns the next frame as a line; "end" is the end of the stream.
func (p *Peer) Next() string {
	var h [9]byte
	if _, err := io.ReadFull(p.Conn, h[:]); err != nil {
		if err == io.EOF {
			return "end"
		}
		return "error: " + err.Error()
	}
	b := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
	if _, err := io.ReadFull(p.Conn, b); err != nil {
		return "error: " + err.Error()
	}
	id, flags, end := binary.BigEndian.Uint32(h[5:]), h[4], ""
	if flags&End != 0 {
		end = " end"
	}
	switch h[3] {
	case Data:
		return fmt.Sprintf("data %d %q%s", id, b, end)
	case Headers:
		var l hpack.List
		l.Reset(1<<20, 1000)
		if err := p.dec.Decode(b, true, &l); err != nil {
			p.T.Fatalf("decoding a header: %v", err)
		}
		s := fmt.Sprintf("headers %d", id)
		for _, f := range l.Fields {
			s += " " + f.Name.String() + "=" + f.Value
		}
		return s + end
	case RSTStream:
		return fmt.Sprintf("reset %d %v", id, http2.ErrCode(binary.BigEndian.Uint32(b)))
	case Settings:
		if flags&Ack != 0 {
			return "settings ack"
		}
		return "settings"
	case Ping:
		if flags&Ack != 0 {
			return fmt.Sprintf("pong %x", b)
		}
		p.Frame(Ping, Ack, 0, b)
		_, _ = p.Conn.Write(p.Out) // the server may have closed it since
		p.Out = p.Out[:0]
		return p.Next()
	case GoAway:
		s := fmt.Sprintf("goaway %d %v", binary.BigEndian.Uint32(b), http2.ErrCode(binary.BigEndian.Uint32(b[4:])))
		if debug := b[8:]; len(debug) > 0 {
			s += fmt.Sprintf(" %q", debug)
		}
		return s
	case WindowUpdate:
		return fmt.Sprintf("window %d %d", id, binary.BigEndian.Uint32(b))
	}
	return fmt.Sprintf("frame %d", h[3])
}

// Want reads frames and compares them with lines. It skips the frames at the beginning of the
// connection.
func (p *Peer) Want(lines ...string) *Peer {
	p.T.Helper()
	for _, want := range lines {
		got := p.Next()
		for got == "settings" || got == "settings ack" || got == "window 0 983041" || got == "window 0 2147418112" {
			got = p.Next()
		}
		if got != want {
			p.T.Fatalf("got the frame %q, want %q", got, want)
		}
	}
	return p
}

// Until returns a function that calls add with n odd identifiers, and send each time that the Peer's
// frames are many, and at the end.
func Until(n int, add func(p *Peer, id uint32)) func(p *Peer, send func()) {
	return func(p *Peer, send func()) {
		for i := range n {
			add(p, uint32(2*i+1))
			if len(p.Out) > 16<<10 {
				send()
			}
		}
		send()
	}
}
