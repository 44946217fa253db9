package httpadapter

import (
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// smuggled are requests that a proxy in front may read in another way than the server: each ends where
// the two disagree. statuses are those of net/http's answers if a request for /smuggled follows and the
// client half-closes, so the last 200 may be its answer; they are left out where versions of Go differ.
var smuggled = []struct {
	name, text, statuses string
}{
	// Content-Length and Transfer-Encoding.
	{"CL.TE", posted("Content-Length: 6", "Transfer-Encoding: chunked") + "0\r\n\r\nG", "200 200"},
	{"TE.CL", posted("Transfer-Encoding: chunked", "Content-Length: 3") + "8\r\nSMUGGLED\r\n0\r\n\r\n", "200 200"},
	{"TE.CL with two lengths", posted("Transfer-Encoding: chunked", "Content-Length: 3", "Content-Length: 4") + "0\r\n\r\n", "400"},
	{"TE.0", strings.Replace(posted("Transfer-Encoding: chunked"), "POST", "OPTIONS", 1) + "0\r\n\r\n", "200 200"},
	{"0.CL", strings.Replace(posted("Content-Length: 3"), "POST", "GET", 1) + "abc", "200 200"},
	{"0.CL behind Expect", strings.Replace(posted("Expect: 100-continue", "Content-Length: 3"), "POST", "GET", 1) + "abc", "100 200 200"},
	{"0.CL behind an unknown Expect", posted("Expect: y 100-continue", "Content-Length: 3") + "abc", "100 200 200"},
	{"CL.0", posted("Content-Length: 0"), "200 200"},
	{"CL.0 with a body", posted("Content-Length: 0") + "abc", "200 200"},
	{"no length", posted() + "abc", "200 200"},
	{"HTTP/1.0 in chunks", strings.Replace(posted("Transfer-Encoding: chunked"), "1.1", "1.0", 1) + "0\r\n\r\n", "200"},
	{"HTTP/1.0 in chunks, kept alive", strings.Replace(posted("Connection: keep-alive", "Transfer-Encoding: chunked"), "1.1", "1.0", 1) + "0\r\n\r\n", "200 400"},

	// Transfer-Encoding in disguise, before chunks and with a length of theirs.
	{"TE: xchunked", obscured("Transfer-Encoding: xchunked"), "501"},
	{"TE with a space before the colon", obscured("Transfer-Encoding : chunked"), "400"},
	{"TE with a tab before the colon", obscured("Transfer-Encoding\t: chunked"), "400"},
	{"TE behind a tab", obscured("Transfer-Encoding:\tchunked"), "200 200"},
	{"TE behind a vertical tab", obscured("Transfer-Encoding:\vchunked"), "400"},
	{"TE behind a form feed", obscured("Transfer-Encoding:\fchunked"), "400"},
	{"TE before a tab", obscured("Transfer-Encoding: chunked\t"), "200 200"},
	{"TE before a carriage return", obscured("Transfer-Encoding: chunked\r"), "400"},
	{"TE on a folded line", obscured("Transfer-Encoding:\r\n chunked"), "200 200"},
	{"TE folded before its colon", obscured("Transfer-Encoding\r\n : chunked"), "400"},
	{"TE on a line that begins with a space", obscured(" Transfer-Encoding: chunked"), "200 200"},
	{"TE on the line behind a bare line feed", obscured("X: x\nTransfer-Encoding: chunked"), "200 200"},
	{"TE behind a bare carriage return", obscured("X: x\rTransfer-Encoding: chunked"), "400"},
	{"TE twice", obscured("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), "501"},
	{"TE: identity behind chunked", obscured("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"), "501"},
	{"TE: identity before chunked", obscured("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"), "501"},
	{"TE: identity", obscured("Transfer-Encoding: identity"), "501"},
	{"TE: chunked, identity", obscured("Transfer-Encoding: chunked, identity"), "501"},
	{"TE: identity, chunked", obscured("Transfer-Encoding: identity, chunked"), "501"},
	{"TE: gzip, chunked", obscured("Transfer-Encoding: gzip, chunked"), "501"},
	{"TE: chunked, chunked", obscured("Transfer-Encoding: chunked, chunked"), "501"},
	{"TE: , chunked", obscured("Transfer-Encoding: , chunked"), "501"},
	{"TE: chunked;q=1", obscured("Transfer-Encoding: chunked;q=1"), "501"},
	{"TE in quotes", obscured(`Transfer-Encoding: "chunked"`), "501"},
	{"TE: CHUNKED", obscured("TRANSFER-ENCODING: CHUNKED"), "200 200"},
	{"TE: chunKed with the Kelvin sign", obscured("Transfer-Encoding: chun\u212aed"), "501"},
	{"TE with an underscore", obscured("Transfer_Encoding: chunked"), "200 200"},
	{"TE with a zero in its name", obscured("Transfer-Encoding\x00: chunked"), "400"},
	{"TE with a zero in its value", obscured("Transfer-Encoding: \x00chunked"), "400"},
	{"TE with a byte above ASCII", obscured("Transfer-Encoding: \xffchunked"), "501"},
	{"TE without a value", obscured("Transfer-Encoding:"), "501"},
	{"TE without a colon", obscured("Transfer-Encoding chunked"), "400"},
	{"TE named by Connection", obscured("Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding"), "200 200"},

	// Content-Length in disguise.
	{"CL: +5", posted("Content-Length: +5") + "abcde", "400"},
	{"CL: -5", posted("Content-Length: -5") + "abcde", "400"},
	{"CL: 05", posted("Content-Length: 05") + "abcde", "200 200"},
	{"CL: 0x5", posted("Content-Length: 0x5") + "abcde", "400"},
	{"CL: 5 5", posted("Content-Length: 5 5") + "abcde", "400"},
	{"CL: 5, 5", posted("Content-Length: 5, 5") + "abcde", "400"},
	{"CL: 5,", posted("Content-Length: 5,") + "abcde", "400"},
	{"CL: 5_0", posted("Content-Length: 5_0") + "abcde", "400"},
	{"CL: 5.0", posted("Content-Length: 5.0") + "abcde", "400"},
	{"CL: 5e0", posted("Content-Length: 5e0") + "abcde", "400"},
	{"CL in quotes", posted(`Content-Length: "5"`) + "abcde", "400"},
	{"CL with a digit above ASCII", posted("Content-Length: \u0665") + "abcde", "400"},
	{"CL without a value", posted("Content-Length:") + "abcde", "400"},
	{"CL before spaces", posted("Content-Length: 5 \t ") + "abcde", "200 200"},
	{"CL with a space before the colon", posted("Content-Length : 5") + "abcde", "400"},
	{"CL with an underscore", posted("Content_Length: 5") + "abcde", "200 200"},
	{"CL of 2^63", posted("Content-Length: 9223372036854775808") + "abcde", "400"},
	{"CL of 2^64+5", posted("Content-Length: 18446744073709551621") + "abcde", "400"},
	{"CL twice the same", posted("Content-Length: 5", "Content-Length: 5") + "abcde", "200 200"},
	{"CL twice", posted("Content-Length: 5", "Content-Length: 6") + "abcde", "400"},
	{"CL twice, once in disguise", posted("Content-Length: 5", "Content-Length: 05") + "abcde", "400"},
	{"CL on a folded line", posted("Content-Length:\r\n 5") + "abcde", "200 200"},
	{"CL behind a bare carriage return", posted("X: x\rContent-Length: 5") + "abcde", "400"},

	// Chunks.
	{"size with a sign", inChunks("+5\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size with a prefix", inChunks("0x5\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size with zeros", inChunks("0000000000000005\r\nabcde\r\n0\r\n\r\n"), "200 200"},
	{"size with too many zeros", inChunks("00000000000000005\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size of 2^64+5", inChunks("10000000000000005\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size of 2^64-1", inChunks("ffffffffffffffff\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size of 2^63", inChunks("8000000000000000\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size of 2^32+5", inChunks("100000005\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size behind a space", inChunks(" 5\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size before a space", inChunks("5 \r\nabcde\r\n0\r\n\r\n"), "200 200"},
	{"size before a tab", inChunks("5\t\r\nabcde\r\n0\r\n\r\n"), "200 200"},
	{"size with an underscore", inChunks("5_0\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size before a comma", inChunks("5,5\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"no size", inChunks("\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"no size, an extension", inChunks(";a\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"size and a zero byte", inChunks("5\x00\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"line feed behind the size", inChunks("5\nabcde\r\n0\r\n\r\n"), "200"},
	{"carriage return behind the size", inChunks("5\rabcde\r\n0\r\n\r\n"), "200"},
	{"line feed in an extension, TERM.EXT", inChunks("5;\nabcde\r\n0\r\n\r\n"), "200"},
	{"carriage return in an extension", inChunks("5;a\rb\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"end of line in a quoted extension", inChunks("5;a=\"\r\nabcde\r\n0\r\n\r\n"), "200 200"},
	{"line feed in a quoted extension, EXT.TERM", inChunks("5;a=\"\n\"\r\nabcde\r\n0\r\n\r\n"), "200"},
	{"extension at the end", inChunks("5\r\nabcde\r\n0;a=b\r\n\r\n"), "200 200"},
	{"line feed behind a chunk", inChunks("5\r\nabcde\n0\r\n\r\n"), "200"},
	{"carriage return behind a chunk", inChunks("5\r\nabcde\r0\r\n\r\n"), "200"},
	{"two bytes behind a chunk", inChunks("5\r\nabcdeXX0\r\n\r\n"), "200"},
	{"no end of line behind a chunk", inChunks("5\r\nabcde0\r\n\r\n"), "200"},
	{"too much in a chunk", inChunks("5\r\nabcdef\r\n0\r\n\r\n"), "200"},
	{"too little in a chunk", inChunks("5\r\nabc\r\n0\r\n\r\n"), "200"},
	{"line feeds at the end", inChunks("5\r\nabcde\r\n0\n\n"), "200"},
	{"line feed at the end", inChunks("5\r\nabcde\r\n0\r\n\n"), "200 200"},
	{"carriage returns at the end", inChunks("5\r\nabcde\r\n0\r\r"), "200"},
	{"no end behind the last chunk", inChunks("5\r\nabcde\r\n0\r\n"), "200"},
	{"negative zero at the end", inChunks("5\r\nabcde\r\n-0\r\n\r\n"), "200"},
	{"trailer that frames", inChunks("0\r\nContent-Length: 5\r\n\r\n"), "200 200"},
	{"trailer that frames and is announced", posted("Transfer-Encoding: chunked", "Trailer: Content-Length") + "0\r\nContent-Length: 5\r\n\r\n", "400"},
	{"trailer with a space before its colon", inChunks("0\r\nX : y\r\n\r\n"), "200 200"},
	{"trailer on a folded line", inChunks("0\r\nX: y\r\n z\r\n\r\n"), "200 200"},
	{"trailer without a colon", inChunks("0\r\nX\r\n\r\n"), "200"},
	{"trailer and a bare line feed", inChunks("0\r\nX: y\nZ: z\r\n\r\n"), "200 200"},
	{"trailer that ends with a bare line feed", inChunks("0\r\nX: y\n\r\n"), "200 200"},

	// Lines.
	{"bare line feeds", "GET / HTTP/1.1\nHost: h\nDo: a\n\n", "200 200"},
	{"bare carriage returns", "GET / HTTP/1.1\rHost: h\r\r", "400"},
	{"carriage return before the end of a line", "GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", "400"},
	{"carriage return before the end of the header", "GET / HTTP/1.1\r\nHost: h\r\n\r\r\n", "400"},
	{"carriage return in a value", "GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", "400"},
	{"zero in a value", "GET / HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n", "400"},
	{"zero in a name", "GET / HTTP/1.1\r\nHost: h\r\nX\x00: a\r\n\r\n", "400"},
	{"zero in the target", "GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n", "400"},
	{"folded line", "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", "200 200"},
	{"folded first line", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", "400"},
	{"folded behind an empty line", "GET / HTTP/1.1\r\nHost: h\r\n\r\n X: a\r\n\r\n", "200 400"},
	{"space before a colon", "GET / HTTP/1.1\r\nHost: h\r\nX : a\r\n\r\n", "400"},
	{"empty name", "GET / HTTP/1.1\r\nHost: h\r\n: a\r\n\r\n", "400"},
	{"no colon", "GET / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", "400"},
	{"name above ASCII", "GET / HTTP/1.1\r\nHost: h\r\nX\xe9: a\r\n\r\n", "400"},
	{"second line of a request", "GET / HTTP/1.1\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "400"},

	// First lines.
	{"HTTP/0.9", "GET /\r\n", "400"},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", "200 200"},
	{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", "505"},
	{"HTTP/1.10", "GET / HTTP/1.10\r\nHost: h\r\n\r\n", "400"},
	{"HTTP/1", "GET / HTTP/1\r\nHost: h\r\n\r\n", "400"},
	{"http/1.1", "GET / http/1.1\r\nHost: h\r\n\r\n", "400"},
	{"two spaces", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "400"},
	{"space at the end", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", "400"},
	{"tabs", "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", "400"},
	{"space in the target", "GET /a HTTP/1.1 HTTP/1.1\r\nHost: h\r\n\r\n", "400"},
	{"preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "200"},
	{"method with a bracket", "G[T / HTTP/1.1\r\nHost: h\r\n\r\n", "400"},
	{"empty lines first", "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "400"},

	// Whose request it is.
	{"two hosts", "GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", "400"},
	{"the same host twice", "GET / HTTP/1.1\r\nHost: h\r\nhost: h\r\n\r\n", "400"},
	{"no host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", "400"},
	{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "200 200"},
	{"host with a space before the colon", "GET / HTTP/1.1\r\nHost: h\r\nHost : i\r\n\r\n", "400"},
	{"host on a folded line", "GET / HTTP/1.1\r\nHost: h\r\n i\r\n\r\n", "400"},
	{"host in another target", "GET http://other/ HTTP/1.1\r\nHost: h\r\n\r\n", "200 200"},
	{"host with a slash", "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", "400"},
	{"host with an at sign", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", "400"},
	{"target that is another's port", "GET @other/ HTTP/1.1\r\nHost: h\r\n\r\n", "400"},
	{"CONNECT with a body", "CONNECT h:443 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nDo: a\r\n\r\nabc", ""},
	{"CONNECT in chunks", "CONNECT h:443 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nDo: a\r\n\r\n0\r\n\r\n", ""},
	{"upgrade that nobody wants", "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "200 200"},
	{"upgrade to h2c", "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", "200 200"},
	{"length named by Connection", posted("Connection: Content-Length", "Content-Length: 3") + "abc", "200 200"},
}

// posted returns the header of a request whose body the handler reads.
func posted(lines ...string) string { return doing("a", lines...) }

// doing returns the header of a request to a handler that does what todo says: see acts.
func doing(todo string, lines ...string) string {
	return "POST / HTTP/1.1\r\nHost: h\r\nDo: " + todo + "\r\n" + strings.Join(append(lines, "\r\n"), "\r\n")
}

// obscured returns a request that may be in chunks, depending on the line, and otherwise has a length.
func obscured(line string) string {
	return posted(line, "Content-Length: 13") + "3\r\nabc\r\n0\r\n\r\n"
}

// inChunks returns a request with a body in chunks.
func inChunks(body string) string { return posted("Transfer-Encoding: chunked") + body }

// TestSmuggling: a request ends where net/http says, and gets net/http's answer, on a new connection and
// behind a plain request, in one piece and in several.
func TestSmuggling(t *testing.T) {
	needParking(t)
	testnet.NoLeaks(t)
	const players = 30 // most of the time they wait for a server that lingers
	var all sync.WaitGroup
	for player := range players {
		pair := newPair(t, withAdapter, nil)
		all.Go(func() {
			for i := player; i < len(smuggled); i += players {
				pair.smuggle(t, smuggled[i].name, smuggled[i].text, smuggled[i].statuses)
			}
		})
	}
	all.Wait()
}

// smuggle plays a request to both.
func (p *pair) smuggle(t *testing.T, name, text, want string) {
	const follows = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	statuses := ""
	for _, answer := range statusPattern.FindAllStringSubmatch(p.play(t, &connectionScript{pieces: []piece{{text: text + follows}}, end: halfCloses}), -1) {
		statuses += " " + answer[1]
	}
	if statuses = strings.TrimSpace(statuses); want != "" && statuses != want {
		t.Errorf("%s: got the statuses %q on package net, want %q", name, statuses, want)
	}
	p.play(t, &connectionScript{pieces: []piece{{text: request("/plain") + text + follows}}, end: halfCloses})
	p.play(t, &connectionScript{pieces: []piece{{text: request("/plain"), await: true}, {text: text}, {text: follows}}, end: halfCloses})
}

var statusPattern = regexp.MustCompile(`HTTP/1\.[01] (\d{3}) `)
