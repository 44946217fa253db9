package httpadapter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A chooser draws a number below n.
type chooser func(n int) int

// of draws one of the texts.
func (c chooser) of(texts ...string) string { return texts[c(len(texts))] }

// mostly draws usual, or once in n times one of the others.
func (c chooser) mostly(usual string, n int, others ...string) string {
	if c(n) > 0 {
		return usual
	}
	return c.of(others...)
}

// newConnectionScript draws a script: some requests that are whole, most of the time, though odd.
//
// It leaves out what is left to chance on package net, too: where a request may begin with an empty
// line, which a server skips behind a POST only; where a header that is a little too long ends; and
// bytes that arrive when the client has gone.
func newConnectionScript(draw chooser) *connectionScript {
	b := scriptBuilder{draw: draw, whole: true, awaits: make(map[int]bool)}
	for range 1 + draw(5) {
		b.request()
	}
	s := &connectionScript{end: halfCloses}
	if b.whole {
		s.moves = []moves{stays, stays, fails, leaves}[draw(4)]
	}
	switch draw(9) {
	case 0:
		b.text = cutOff(b.text, draw(len(b.text)))
	case 1:
		if b.requests == 1 && !b.whole {
			s.end = closes
		}
	case 2, 3:
		if b.whole {
			s.end = readsOn
			b.text += "GET " + lastTarget + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
		}
	case 4, 5, 6:
		if b.whole {
			s.end = []connectionEnd{closesIdle, resetsIdle, serverCloses, serverShutsDown}[draw(4)]
			b.text += "GET " + lastTarget + " HTTP/1.1\r\nHost: h\r\n\r\n"
		}
	}
	s.pieces = b.pieces()
	return s
}

// newDetachedScript draws a script whose requests are whole, and most of whose answers are detached.
//
// An Answer writes a whole answer, or flushes it at the end: where chunks end elsewhere depends on when
// its sender comes. The handler reads a body that the client expects to be asked for, since Detach would
// take one that has come. Behind Detach nothing takes a "Connection: close" back.
func newDetachedScript(draw chooser) *connectionScript {
	b := scriptBuilder{draw: draw, whole: true, awaits: make(map[int]bool)}
	for range 1 + draw(8) {
		q := b.plain()
		b.frame(q)
		todo := draw.of("v", "a", "a", "p", "C", "k", "K", "aK", "aT") + draw.of("Z", "Y", "L", "L", "") +
			draw.of("", "w", "w", "r", "4", "4w", "2", "3", "Cw", "5w", "kw", "Dw", "lw", "S") +
			draw.of("", "f")
		q.lines = slices.DeleteFunc(q.lines, func(line string) bool {
			expects := strings.HasPrefix(strings.ToLower(line), "expect")
			return expects && todo[:1] != "a" || line == "Connection: close, keep-alive" // see endUnread
		})
		q.lines = append(q.lines, "Do: "+todo)
		b.text += q.header() + q.body
		if draw(4) == 0 {
			b.awaits[len(b.text)] = true
		}
	}
	b.text += "GET " + lastTarget + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	return &connectionScript{pieces: b.pieces(), end: readsOn, moves: []moves{stays, fails, leaves}[draw(3)]}
}

// scriptBuilder builds a script's text.
type scriptBuilder struct {
	draw      chooser
	text      string
	awaits    map[int]bool // positions at which the client waits for an answer
	requests  int
	whole     bool // the server answers all that has been sent, and reads what follows, or ends the connection
	afterPOST bool // the last request was one
}

// pieces cuts the text, at all places where the client waits and at some others.
func (b *scriptBuilder) pieces() (pieces []piece) {
	at := slices.Collect(maps.Keys(b.awaits))
	for range b.draw(4) {
		at = append(at, b.draw(len(b.text)+1))
	}
	slices.Sort(at)
	from := 0
	for _, to := range slices.Compact(append(at, len(b.text))) {
		if to > len(b.text) {
			break
		}
		pieces = append(pieces, piece{b.text[from:to], b.awaits[to]})
		from = to
	}
	return pieces
}

// oddParts is a request in parts.
type oddParts struct {
	method, target, version string
	lines                   []string // of the header, without the ends of lines
	eol                     string
	body                    string
}

func (q *oddParts) header() string {
	return q.method + " " + q.target + " " + q.version + q.eol + strings.Join(q.lines, q.eol) + q.eol + q.eol
}

// request adds a request.
func (b *scriptBuilder) request() {
	draw := b.draw
	q := b.plain()
	expects := b.frame(q)
	for range draw(3) {
		q.lines = append(q.lines, draw.of(oddLines...))
	}
	todo := b.todo()
	sound := draw(5) > 0
	if !sound {
		flaws[draw(len(flaws))](draw, q)
	}
	if slices.Contains(badTrailers, q.body) {
		todo = onlyReads(todo) // net/http goes on behind a wrong trailer if the answer has begun
	}
	q.lines = append(q.lines, "Do: "+todo)
	q.endUnread()
	for i := len(q.lines) - 1; i > 0; i-- {
		j := draw(i + 1)
		q.lines[i], q.lines[j] = q.lines[j], q.lines[i]
	}
	header := q.header()
	if draw(12) == 0 {
		header, sound = damaged(draw, header), false
	}
	if b.afterPOST && b.whole {
		b.text += draw.mostly("", 4, "\r\n", "\n", "\r\n\r\n")
	}
	b.whole = b.whole && sound
	b.requests++
	b.afterPOST = q.method == "POST"
	b.text += header
	waits := draw(4) == 0
	if expects && b.whole && q.version == "HTTP/1.1" {
		switch draw(3) {
		case 0:
			if strings.IndexAny(todo, reading) == 0 && todo[0] != 'g' { // another may wait for the body first, or not read
				b.awaits[len(b.text)] = true
				waits = false // the answer may have come
			}
		case 1:
			q.body, b.whole = "", false
		}
	}
	b.text += q.body
	b.whole = b.whole && !strings.Contains(todo, "h")
	if b.whole && waits {
		b.awaits[len(b.text)] = true
	}
}

// plain draws a request without a body.
func (b *scriptBuilder) plain() *oddParts {
	draw := b.draw
	q := &oddParts{
		method:  draw.of("GET", "GET", "POST", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "get", "X-Y", "CONNECT"),
		target:  draw.mostly("/", 3, "/p?a=b&c=%20", "/%41", "//x", "/?", "http://h/abs?q", "http://other:80/abs", "https://h", "/a/../b", "/;x", "*"),
		version: draw.mostly("HTTP/1.1", 4, "HTTP/1.0"),
		eol:     draw.mostly("\r\n", 8, "\n"),
		lines:   []string{draw.mostly("Host: h", 4, "Host: h:80", "host:h", "Host: ", "HOST: \t h", "Host: [::1]")},
	}
	switch {
	case q.method == "CONNECT":
		q.target = draw.of("h:443", "/rpc")
	case q.method == "OPTIONS" && draw(2) == 0:
		q.target = "*"
	}
	if q.version == "HTTP/1.0" && draw(2) == 0 {
		q.lines = nil
	}
	q.lines = append(q.lines, draw.mostly("X-A: a", 2, "Connection: keep-alive", "Connection: keep-alive", "Connection: Keep-Alive, x", "Connection: close",
		"Connection: x, close", "Connection: close, keep-alive", "Connection: Upgrade", "Connection: keep-alive, Upgrade", "Connection:"))
	return q
}

// oddLines are fields that may be in any request.
var oddLines = []string{
	"Pragma: no-cache", "Cookie: a=b; c", "TE: trailers", "Trailer: X-T", "Trailer: X-T, x-u", "Upgrade: websocket", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk",
	"Accept: a, b", "accept:  c  \t", "X-Empty:", "User-Agent: x/1 (y)", "Keep-Alive: 5", "Proxy-Connection: close", "X-Byte: \xe9", "Content-Type: application/x-www-form-urlencoded",
	"Content-Type: text/plain", "X-Long: " + strings.Repeat("l", 5000), "Cache-Control: no-cache", "Range: bytes=0-1", "If-None-Match: x",
}

// frame gives a request a body, and reports whether its client waits for leave to send it.
func (b *scriptBuilder) frame(q *oddParts) (expects bool) {
	draw := b.draw
	switch draw(5) {
	case 0, 1:
		return false
	case 2:
		q.body = strings.Repeat("b", []int{0, 1, 5, 9, 3000, 6000}[draw(6)])
		q.lines = append(q.lines, draw.mostly("Content-Length: ", 4, "content-length:", "Content-Length:   ")+fmt.Sprint(len(q.body)))
	default:
		if q.version == "HTTP/1.0" && draw(3) > 0 {
			return false // it may not be in chunks
		}
		q.lines = append(q.lines, draw.mostly("Transfer-Encoding: chunked", 4, "transfer-encoding:Chunked", "Transfer-Encoding:  CHUNKED "))
		q.body = b.chunks()
	}
	if draw(3) == 0 {
		q.lines = append(q.lines, draw.mostly("Expect: 100-continue", 4, "expect: 100-Continue"))
		return len(q.body) > 0
	}
	return false
}

// endUnread keeps a request over HTTP/1.0 from asking to end the connection and to keep it if it has a
// body: what a handler leaves of that is a request for net/http of Go 1.27.
func (q *oddParts) endUnread() {
	const both = "Connection: close, keep-alive"
	i := slices.Index(q.lines, both)
	if cutOffIsEnd || q.version != "HTTP/1.0" || i < 0 {
		return
	}
	if lines := strings.ToLower(strings.Join(q.lines, " ")); strings.Contains(lines, "content-length") || strings.Contains(lines, "transfer-encoding") {
		q.lines[i] = "Connection: close"
	}
}

// onlyReads leaves of what a handler does the letters that read the body.
func onlyReads(todo string) string {
	return strings.Map(func(letter rune) rune {
		if strings.ContainsRune("ab", letter) {
			return letter
		}
		return -1
	}, todo)
}

// chunks draws a body in chunks that is whole.
func (b *scriptBuilder) chunks() (body string) {
	draw := b.draw
	for range draw(4) {
		size := []int{1, 5, 10, 17, 3000}[draw(5)]
		body += fmt.Sprintf(draw.mostly("%x", 3, "%X", "0%x", "00000%x"), size) + draw.mostly("", 3, ";", ";a", ";a=b", ";a=\"b;c\"", " ", ";a ;b\t") + "\r\n" + strings.Repeat("b", size) + "\r\n"
	}
	return body + draw.mostly("0", 4, "00", "0;x=y", "000000") + "\r\n" + draw.mostly("", 3, "X-T: t\r\n", "X-T: t\r\nX-U: u\r\n", "x-other:  o \r\n", "Content-Length: 3\r\n") + "\r\n"
}

// todo draws what a handler does.
func (b *scriptBuilder) todo() (todo string) {
	draw := b.draw
	letters := "aaaabpmMjiRFIgcqywwwWBrffdtTu5lkKeECDvA01U234noosSxJPhH"
	for range draw(5) {
		todo += string(letters[draw(len(letters))])
	}
	if strings.Contains(todo, "o") {
		todo = strings.ReplaceAll(todo, "J", "") // an http.TimeoutHandler would wait for the goroutine
	}
	if cutOffIsEnd {
		// net/http of Go 1.26 takes what full duplex leaves of a body for a request, or panics.
		todo = strings.ReplaceAll(todo, "d", "")
	}
	if at := strings.IndexAny(todo, "mj"); at >= 0 {
		before, limit, after := todo[:at], todo[at:at+1], todo[at+1:]
		if strings.Contains(before, "o") {
			return before + after // an http.TimeoutHandler doesn't pass the limit on
		}
		before = strings.ReplaceAll(before, "p", "") // or the rest may be one byte too long: see tooLarge
		// A handler that goes on reading behind the limit of an http.MaxBytesReader keeps the
		// connection. The method through which net/http is notified of the limit is private.
		todo = before + limit + strings.Map(func(letter rune) rune {
			if strings.ContainsRune(reading+"c", letter) {
				return -1
			}
			return letter
		}, after)
	}
	return todo
}

// reading are the letters of those that read the body: see acts.
const reading = "abpmMjiRFIgqy"

// tooLarge is one byte more than what an http.MaxBytesReader allows. No body is that long: such a one
// is taken for read.
const tooLarge = 8

// damaged changes a byte of a header.
func damaged(draw chooser, header string) string {
	at := draw(len(header))
	with := draw.of("", "\x00", "\r", "\n", " ", "\t", ":", ",", "\x7f", "\xff", "0", "-", "+", "\r\n", "\v")
	rest := header[at:]
	if draw(2) == 0 {
		rest = rest[1:]
	}
	return header[:at] + with + rest
}

// flaws make a request one that many servers refuse.
var flaws = []func(draw chooser, q *oddParts){
	func(draw chooser, q *oddParts) {
		q.lines = append(q.lines, draw.of("Host: i", "Host: h"))
	},
	func(_ chooser, q *oddParts) {
		q.lines = slices.DeleteFunc(q.lines, func(line string) bool { return strings.EqualFold(line[:min(4, len(line))], "host") })
	},
	func(draw chooser, q *oddParts) {
		q.lines[0] = draw.of("Host: a b", "Host : h", "Host: h\x01", "Host: \xe9", "Host: h@x", "Host: [::1", "Host: h/x", "Host: h, i", "Host: %41", " Host: h", "Host\t: h")
	},
	func(draw chooser, q *oddParts) {
		q.version = draw.of("HTTP/2.0", "HTTP/1.2", "http/1.1", "HTTP/0.9", "HTTP/1.10", "HTTP/1", "HTTP/3.0", "HTTP/1.1 ", " HTTP/1.1", "", "HTTP/01.1", "HTTP/1.1\t", "XTTP/1.1")
	},
	func(draw chooser, q *oddParts) {
		q.target = draw.of("/%zz", "/a b", "/\x01", "/\xe9", "", "?x", "h", "http://", "http://[", "*", "://", "/%", "http:/x", "/#f", "http://a b/", "http://h\x7f/", "//", "http://u:p@h/", "\t/", "mailto:x")
	},
	func(draw chooser, q *oddParts) {
		q.method = draw.of("", " GET", "G(T", "GET\t", "\xe9", "PRI", "GET GET", "G\x00T", "\x16\x03\x01")
	},
	func(_ chooser, q *oddParts) {
		q.method, q.target, q.version, q.lines, q.body = "PRI", "*", "HTTP/2.0", nil, "SM\r\n\r\n"
	},
	func(draw chooser, q *oddParts) { q.lines = append(q.lines, draw.of(badLines...)) },
	func(draw chooser, q *oddParts) { q.lines = append(q.lines, draw.of(badLines...)) },
	func(draw chooser, q *oddParts) { q.lines = append(q.lines, draw.of(badLengths...)) },
	func(draw chooser, q *oddParts) { q.lines = append(q.lines, draw.of(badCodings...)) },
	func(draw chooser, q *oddParts) {
		q.lines, q.body = append(q.lines, draw.of(badCodings...)), draw.of(badChunks...)
	},
	func(draw chooser, q *oddParts) {
		q.lines, q.body = append(q.lines, "Transfer-Encoding: chunked"), draw.of(badChunks...)
	},
	func(draw chooser, q *oddParts) {
		q.lines, q.body = append(q.lines, "Transfer-Encoding: chunked"), draw.of(badTrailers...)
	},
	func(draw chooser, q *oddParts) {
		q.lines = append(q.lines, draw.of("Expect: x", "Expect: 100-continue, x", "Expect:", "Expect: 100-continue\r\nExpect: 100-continue"))
	},
	func(draw chooser, q *oddParts) { q.body += draw.of("b", "\r\n", "\x00", "GET") },
	func(draw chooser, q *oddParts) { q.body = q.body[:draw(len(q.body)+1)] },
}

// badLines are fields that break a rule.
var badLines = []string{
	"X B: c", " folded", "\tfolded", "X-B: \x01", "X-B: \x00", ":", "X-B", ": v", "X-\xe9: y", "X(: y", "X-B: a\rb", "X-B: a\r", "X-B: \x7f", "X-B:\va", "X-B : y", "\x00: y", "X-B\x00: y",
	"X-Long: " + strings.Repeat("l", 20000), "X-Commas: " + strings.Repeat(",", 3000), strings.Repeat("x:\r\n", 1000) + "X: y", "Trailer: Content-Length", "Trailer: ,", "Connection: \x01", "\r",
}

var badLengths = []string{
	"Content-Length: 3", "Content-Length: +3", "Content-Length: -3", "Content-Length: 3, 3", "Content-Length: 3,4", "Content-Length: 0x3", "Content-Length:", "Content-Length: 3 3",
	"Content-Length: 99999999999999999999", "Content-Length: 03", "Content-Length: 3\r\nContent-Length: 4", "Content-Length: 3\r\nContent-Length: 3", "Content-Length: 1_0", "Content-Length : 3",
	"Content-Length: 3;", "Content_Length: 3", "Content-Length: 9223372036854775807", "Content-Length: \t3 ",
}

var badCodings = []string{
	"Transfer-Encoding: identity", "Transfer-Encoding: gzip", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
	"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding:", "Transfer-Encoding: xchunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding : chunked",
	"Transfer-Encoding:\vchunked", "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: chunked\r\nContent-Length: 3", "Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer_Encoding: chunked",
	"Transfer-Encoding\r\n: chunked", "X: y\rTransfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked",
}

var badChunks = []string{
	"zz\r\n", "3\r\nabcd\r\n0\r\n\r\n", "3\r\nab\r\n0\r\n\r\n", "-3\r\nabc\r\n0\r\n\r\n", "+3\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "3\nabc\r\n0\r\n\r\n", "3\r\nabc\n0\r\n\r\n",
	"3\r\nabc\r\n0\n\n", " 3\r\nabc\r\n0\r\n\r\n", "3 ;a\r\nabc\r\n0\r\n\r\n",
	"3;" + strings.Repeat("l", 5000) + "\r\nabc\r\n0\r\n\r\n", "ffffffffffffffff\r\nabc", "10000000000000000\r\nabc", "\r\nabc\r\n0\r\n\r\n", ";a\r\nabc\r\n0\r\n\r\n", "3\r\rabc\r\n0\r\n\r\n",
	"3;a\nabc\r\n0\r\n\r\n", "3;a\rb\r\nabc\r\n0\r\n\r\n", "3\r\nabcXX0\r\n\r\n",
	"3\r\nabc\r\n", "3\r\nabc", "3\r\n", "3", "0\r\n", "3_\r\nabc\r\n0\r\n\r\n", "3,3\r\nabc\r\n0\r\n\r\n",
}

var badTrailers = []string{
	"3\r\nabc\r\n0\r\nX\r\n\r\n", "3\r\nabc\r\n0\r\nX : y\r\n\r\n", "3\r\nabc\r\n0\r\n X: y\r\n\r\n", "3\r\nabc\r\n0\r\nX-\x00: a\r\n\r\n", "3\r\nabc\r\n0\r\n\n",
	"3\r\nabc\r\n0\r\nX-T: " + strings.Repeat("l", 9000) + "\r\n\r\n", "3\r\nabc\r\n0\r\nTransfer-Encoding: x\r\n\r\n", "3\r\nabc\r\n0\r\nX-T: a\r\n b\r\n\r\n", "3\r\nabc\r\n0\r\nX-T: t\n\r\n",
}
