package httpstream_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// A scenario is what a client does on one connection, and what the handlers do.
//
// Its code is bytes. The first chooses settings and the end, then each operation is a byte and its
// arguments. Any code is a scenario.
type scenario struct {
	config  int
	ending  ending
	narrow  bool // the client leaves the connection's window as it is
	patient bool // a connection that ended with an error is watched until the server closes it
	steps   []step
	opened  []opening
	allSent []sent
}

// ending is how the client ends the connection.
type ending int

const (
	endClose ending = iota
	endReset
	endHalf
)

// An opening is a request that a script makes with a handler of its own.
type opening struct {
	stream, step int
	program      testnet.Program
}

// A step is a burst of frames, after which the client waits.
type step struct {
	out     []byte
	cuts    []int // where to cut out
	resets  []int // the handlers of streams that the client resets
	release int   // the handler whose gate opens; -1: none
	text    []string
}

// sent is a frame that the client sends.
type sent struct {
	step, stream int
	typ, flags   byte
	length       int
	forbidden    bool // trailers that are not allowed as such
	opens        bool // a request that is well-formed
}

// A compiler makes a scenario from its code.
type compiler struct {
	testnet.Program
	sc     *scenario
	p      frames.Peer
	at     int // where the current frame begins in p.Out
	step   step
	lastID int
	opens  bool // the next frames are a request that is well-formed
}

const stepsMost = 40

// decodeScenario returns the scenario of a code.
func decodeScenario(code []byte) *scenario {
	c := &compiler{Program: code, sc: new(scenario), p: *frames.NewPeer(nil, nil)}
	c.step.release = -1
	first := c.Next()
	c.sc.config = first % len(configs)
	c.sc.ending = ending(first / len(configs) % 3)
	c.sc.patient = first/9%8 == 0
	if c.sc.narrow = first >= 128; !c.sc.narrow {
		c.p.Window(0, 1<<24)
	}
	c.at = len(c.p.Out)
	c.endStep()
	for len(c.Program) > 0 && len(c.sc.steps) < stepsMost {
		op := c.Next()
		c.operation(op % 64)
		if op < 192 { // else the next operation is in the same burst
			c.endStep()
		}
	}
	c.endStep()
	return c.sc
}

func (c *compiler) endStep() {
	c.step.out = c.p.Out
	c.sc.steps = append(c.sc.steps, c.step)
	c.p.Out, c.at = nil, 0
	c.step = step{release: -1}
}

// frame notes the frames that were added since the last call.
func (c *compiler) frame(format string, args ...any) {
	for c.at < len(c.p.Out) {
		h := c.p.Out[c.at:]
		n := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		c.sc.allSent = append(c.sc.allSent, sent{
			step: len(c.sc.steps), typ: h[3], flags: h[4], length: n,
			stream: int(h[5]&0x7f)<<24 | int(h[6])<<16 | int(h[7])<<8 | int(h[8]),
			opens:  c.opens,
		})
		c.at += 9 + n
	}
	c.opens = false
	c.step.text = append(c.step.text, fmt.Sprintf(format, args...))
}

// some returns an element of a table that the code chooses.
func some[T any](c *compiler, table []T) T { return table[c.Next()%len(table)] }

// stream returns the identifier of a stream: mostly one that was opened.
func (c *compiler) stream() int {
	n := c.Next()
	switch {
	case n >= 250:
		return []int{0, 2, c.lastID + 2, c.lastID + 100, 1<<31 - 1, 1}[n-250]
	case len(c.sc.opened) > 0:
		return c.sc.opened[len(c.sc.opened)-1-n%len(c.sc.opened)].stream
	}
	return 1
}

var (
	sizes   = []int{0, 1, 2, 5, 100, 499, 500, 501, 2000, 4095, 4096, 4097, 5000, 16384, 20000, 70000}
	codes   = []uint32{8, 0, 1, 5, 7, 0xb, 99}
	numbers = []uint32{0, 1, 2, 100, 4096, 16383, 16384, 16385, 20000, 65535, 65536, 1 << 20, 1<<24 - 1, 1 << 24, 1<<31 - 1, 1 << 31, 1<<32 - 1}

	methods     = []string{"GET", "POST", "HEAD", "OPTIONS", "CONNECT", "PUT", "", "get"}
	schemes     = []string{"http", "https", "", "ftp", "HTTP"}
	authorities = []string{"example.com", "", "user@example.com", "a b", "x.example:80", "[::1]:1", "host/path", "@", "\x80"}
	paths       = []string{"/", "*", "", "//x", "/a?b=c", "x", "http://h/p", "/%zz", "/a b", "/\x7f", "/é", "?q", "/#f", "/?", "/a%2f"}

	fields = [][2]string{
		{"x-a", "1"}, {"x-a", ""}, {"x-b", " a "}, {"te", "trailers"}, {"te", "gzip"}, {"te", ""}, {"connection", "close"}, {"host", "other.example"}, {"host", ""},
		{"cookie", "a=b"}, {"cookie", "c"}, {"content-length", "3"}, {"content-length", "0"}, {"content-length", "x"}, {"content-length", "-1"}, {"content-length", ""},
		{"content-length", "99999999999999999999"}, {"expect", "100-continue"}, {"expect", "x"}, {"trailer", "x-t, x-u"}, {"trailer", "content-length"}, {"X-Upper", "1"},
		{"", "1"}, {"x-c", "a\r\nb"}, {"x-d", "a\x00"}, {"x-e", "\xff"}, {":path", "/2"}, {":status", "200"}, {":x", "1"}, {"transfer-encoding", "chunked"}, {"upgrade", "h2c"},
		{"keep-alive", "1"}, {"proxy-connection", "x"}, {"x f", "1"}, {"x-t", "2"}, {"content-type", "application/x-www-form-urlencoded"}, {"x-long", strings.Repeat("y", 700)},
		{"range", "bytes=1-2"}, {"accept-encoding", "gzip"}, {":protocol", "websocket"}, {"x-u", "3"}, {"x-tab", "\tq"}, {"date", "now"}, {"trailer", "x-t"},
	}
)

// operation compiles one operation of the client's.
func (c *compiler) operation(op int) {
	switch {
	case op < 8:
		c.open(true, "GET")
	case op < 14:
		c.open(false, "POST")
	case op < 18:
		c.open(false, "POST", "content-length", fmt.Sprint(some(c, sizes)))
	case op < 22:
		c.oddRequest()
	case op < 32:
		c.data()
	case op < 35:
		c.trailers()
	case op < 38:
		id := c.stream()
		for i, o := range c.sc.opened {
			if o.stream == id {
				c.step.resets = append(c.step.resets, i)
			}
		}
		c.p.Number(frames.RSTStream, uint32(id), some(c, codes))
		c.frame("RST_STREAM %d", id)
	case op < 42:
		id, n := c.stream(), some(c, numbers)
		c.p.Window(uint32(id), n)
		c.frame("WINDOW_UPDATE %d %d", id, n)
	case op < 45:
		id, v := uint16(c.Next()%9), some(c, numbers)
		if id == 1 && race.Enabled {
			id = 0 // net/http changes its encoder's table while it encodes (CVE-2026-97032)
		}
		c.p.Frame(frames.Settings, 0, 0, []byte{byte(id >> 8), byte(id), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		c.frame("SETTINGS %d=%d", id, v)
	case op < 46:
		id := c.stream()
		c.p.Frame(frames.Priority, 0, uint32(id), []byte{0, 0, 0, byte(c.Next()), 1})
		c.frame("PRIORITY %d", id)
	case op < 47:
		c.p.Frame(frames.Ping, byte(c.Next()), 0, []byte("anything"))
		c.frame("PING")
	case op < 48:
		c.p.Frame(frames.GoAway, 0, 0, []byte{0, 0, 0, byte(c.Next()), 0, 0, 0, byte(c.Next() % 14)})
		c.frame("GOAWAY")
	case op < 51:
		typ, flags, id := byte(c.Next()%11), byte(c.Next()), c.stream()
		payload := c.Take(c.Next() % 40)
		if typ == frames.Headers && flags&8 != 0 && len(payload) > 0 && int(payload[0]) > len(payload)-6 {
			flags &^= 8 // padding that is too long is one of the core's differences
		}
		c.p.Frame(typ, flags, uint32(id), payload)
		c.frame("frame %d %#x %d %x", typ, flags, id, payload)
	case op < 53:
		c.splitRequest()
	case op < 55:
		if n := len(c.p.Out); n > 0 {
			c.step.cuts = append(c.step.cuts, c.Next()%(n+1))
		}
	default:
		if len(c.sc.opened) > 0 && c.step.release < 0 {
			c.step.release = c.Next() % len(c.sc.opened)
			c.step.text = append(c.step.text, fmt.Sprintf("open the gate of handler %d", c.step.release))
		}
	}
}

// begin chooses the handler of the next stream, and returns the field that names it.
func (c *compiler) begin() (id uint32, field []string) {
	c.lastID += 2
	if c.lastID == 2 {
		c.lastID = 1
	}
	c.opens = true
	h := len(c.sc.opened)
	c.sc.opened = append(c.sc.opened, opening{stream: c.lastID, step: len(c.sc.steps), program: c.Take(c.Next() % 24)})
	return uint32(c.lastID), []string{"x-p", fmt.Sprint(h)}
}

func (c *compiler) open(end bool, method string, more ...string) {
	id, field := c.begin()
	c.p.Headers(id, end, append(get(method, "/a?b=c", field...), more...)...)
	c.frame("%s %d, end %t, %q, handler %d: %s", method, id, end, more, len(c.sc.opened)-1, handlerText(c.sc.opened[len(c.sc.opened)-1].program))
}

// oddRequest makes a request with fields that need not be valid.
func (c *compiler) oddRequest() {
	id, field := c.begin()
	c.opens = false
	has := c.Next()
	var list []string
	for bit, pseudo := range []struct {
		name  string
		table []string
	}{{":method", methods}, {":scheme", schemes}, {":authority", authorities}, {":path", paths}} {
		value := pseudo.table[0]
		if has&(1<<bit) != 0 {
			value = some(c, pseudo.table)
		}
		if value != "" || has&0x40 != 0 {
			list = append(list, pseudo.name, value)
		}
	}
	list = append(list, field...)
	for range c.Next() % 5 {
		f := some(c, fields)
		list = append(list, f[0], f[1])
	}
	c.p.Headers(id, has&0x80 == 0, list...)
	c.frame("HEADERS %d, end %t, %q, handler %d: %s", id, has&0x80 == 0, list, len(c.sc.opened)-1, handlerText(c.sc.opened[len(c.sc.opened)-1].program))
}

// splitRequest makes a request of several frames, with padding and priority.
func (c *compiler) splitRequest() {
	id, field := c.begin()
	var whole frames.Peer = c.p
	whole.Out = nil
	whole.Headers(id, true, get("GET", "/", field...)...)
	block := whole.Out[9:]
	whole.Out = c.p.Out
	c.p = whole
	n, how := min(c.Next()%32, len(block)), c.Next()
	first, flags := block[:n], byte(frames.End)
	if how&1 != 0 {
		flags |= 0x20
		first = append([]byte{0, 0, 0, byte(how >> 4), 1}, first...)
	}
	if how&2 != 0 {
		flags |= 8
		first = append(append([]byte{2}, first...), 0, 0)
	}
	c.p.Frame(frames.Headers, flags, id, first)
	c.p.Frame(9, 0, id, block[n:min(n+how&7, len(block))])
	c.p.Frame(9, frames.EndHeaders, id, block[min(n+how&7, len(block)):])
	c.frame("HEADERS and CONTINUATION %d, handler %d: %s", id, len(c.sc.opened)-1, handlerText(c.sc.opened[len(c.sc.opened)-1].program))
}

func (c *compiler) data() {
	id, n, how := c.stream(), some(c, sizes), c.Next()
	n = min(n, 16384)
	body := []byte(strings.Repeat("body", n/4+1)[:n])
	flags := byte(how & 1)
	if how&0x18 == 0x18 && n < 16000 {
		pad := how >> 5
		flags |= 8
		body = append(append([]byte{byte(pad)}, body...), make([]byte, pad)...)
	}
	c.p.Frame(frames.Data, flags, uint32(id), body)
	c.frame("DATA %d %d bytes, flags %#x", id, n, flags)
}

func (c *compiler) trailers() {
	id, n := c.stream(), c.Next()
	var list []string
	for range n % 3 {
		if f := some(c, fields); f[0] != ":status" { // for net/http that is no breach in itself
			list = append(list, f[0], f[1])
		}
	}
	c.p.Headers(uint32(id), n < 200, list...)
	c.frame("trailers %d, end %t, %q", id, n < 200, list)
	for i := 0; i < len(list); i += 2 {
		if !semantics.MayBeTrailer(http.CanonicalHeaderKey(list[i])) {
			c.sc.allSent[len(c.sc.allSent)-1].forbidden = true
		}
	}
}

// String returns the scenario for people.
func (sc *scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "settings %d, ending %d, narrow %t\n", sc.config, sc.ending, sc.narrow)
	for i, s := range sc.steps {
		fmt.Fprintf(&b, "%d: %s", i, strings.Join(s.text, "; "))
		if len(s.cuts) > 0 {
			fmt.Fprintf(&b, ", cut at %v", s.cuts)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
