package httpstream_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// A call is one call of a script's handler.
type call struct {
	play  *play
	index int // of the script's opening; -1: none
	seen  *seen
	w     http.ResponseWriter
	r     *http.Request
	blind bool // what was written depends on what was read of a stream that was reset
}

// An action is something that a handler does. The argument is a byte of the script.
type action struct {
	name string
	do   func(c *call, arg int)
}

var (
	statuses = []int{200, 201, 204, 304, 404, 500, 100, 103, 101, 199, 99, 1000, 999, 205}

	// header is what handlers set. It has no "Connection: close": what happens to the streams that a
	// client opens after it depends on when the client learns of it.
	header = [][2]string{
		{"Content-Length", "5"}, {"Content-Length", "0"}, {"Content-Length", "100"}, {"Content-Length", "x"}, {"Content-Length", ""}, {"Content-Type", "a/b"}, {"Content-Type", ""},
		{"X-A", "1"}, {"X-A", "2"}, {"x-lower", "1"}, {"Content-Encoding", "gzip"}, {"Date", "now"}, {"Trailer", "X-T"}, {"Trailer", "X-T, X-U"}, {"Trailer", "Content-Length, x-t"},
		{"X-T", "1"}, {"X-U", "2"}, {http.TrailerPrefix + "X-V", "3"}, {http.TrailerPrefix + "X-T", "4"}, {"Bad Name", "1"}, {"X-Bad", "a\nb"}, {"", "1"}, {":status", "1"},
		{"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "trailers"}, {"Upgrade", "x"}, {"Keep-Alive", "1"}, {"Set-Cookie", "a=b"}, {"X-Long", strings.Repeat("z", 600)},
		{"X-Space", " 1 "}, {"Connection", "keep-alive"}, {http.TrailerPrefix + "Content-Type", "x"},
	}
)

var actions = []action{
	{"read", func(c *call, arg int) {
		b := make([]byte, sizes[arg%len(sizes)])
		c.compare(true, func() string {
			n, err := io.ReadFull(c.r.Body, b)
			return fmt.Sprintf("read %d, %v", n, err)
		})
	}},
	{"read all", func(c *call, arg int) {
		c.compare(true, func() string {
			b, err := io.ReadAll(c.r.Body)
			return fmt.Sprintf("read all %d, %v, trailer %v", len(b), err, c.r.Trailer)
		})
	}},
	{"close the body", func(c *call, _ int) { c.seen.note("close %v", c.r.Body.Close()) }},
	{"add to the header", func(c *call, arg int) {
		h := header[arg%len(header)]
		c.w.Header()[h[0]] = append(c.w.Header()[h[0]], h[1])
	}},
	{"WriteHeader", func(c *call, arg int) {
		defer func() {
			if reason := recover(); reason != nil {
				c.seen.note("WriteHeader: %v", reason)
			}
		}()
		c.w.WriteHeader(statuses[arg%len(statuses)])
	}},
	{"Write", func(c *call, arg int) {
		b := bytes.Repeat([]byte("data"), sizes[arg%len(sizes)]/4+1)[:sizes[arg%len(sizes)]]
		c.compare(false, func() string {
			n, err := c.w.Write(b)
			return fmt.Sprintf("write %d, %v", n, err)
		})
	}},
	{"WriteString", func(c *call, arg int) {
		c.compare(false, func() string {
			n, err := io.WriteString(c.w, strings.Repeat("<p>", sizes[arg%len(sizes)]/3))
			return fmt.Sprintf("write %d, %v", n, err)
		})
	}},
	{"flush", func(c *call, arg int) {
		c.compare(false, func() string {
			if err := http.NewResponseController(c.w).Flush(); c.r.Method != http.MethodHead { // see the rule "flush"
				return fmt.Sprintf("flush %v", err)
			}
			return "flush"
		})
	}},
	{"wait at the gate", func(c *call, _ int) {
		if c.index >= 0 {
			select {
			case <-c.play.gates[c.index]:
			case <-c.play.over:
			}
		}
	}},
	{"wait for the context's end", func(c *call, _ int) {
		<-c.r.Context().Done()
		c.seen.note("context: %v", c.r.Context().Err())
	}},
	{"look at the context", func(c *call, _ int) {
		c.compare(true, func() string { return fmt.Sprintf("context: %v", c.r.Context().Err()) })
	}},
	{"panic", func(c *call, arg int) {
		switch arg % 3 {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			panic("of the handler")
		}
		runtime.Goexit()
	}},
	{"set a deadline", func(c *call, arg int) {
		rc, at := http.NewResponseController(c.w), []time.Time{{}, time.Unix(1, 0), time.Now().Add(time.Hour)}[arg/2%3]
		set := rc.SetReadDeadline
		if arg%2 == 1 {
			set = rc.SetWriteDeadline
		}
		c.compare(false, func() string { return fmt.Sprintf("deadline: %v", set(at)) })
		if arg%2 == 1 && arg/2%3 == 1 {
			<-c.r.Context().Done() // a write deadline that has passed resets the stream, in its time
		}
	}},
	{"limit the body", func(c *call, arg int) { c.r.Body = http.MaxBytesReader(c.w, c.r.Body, int64(sizes[arg%len(sizes)])) }},
	{"parse the form", func(c *call, _ int) {
		c.compare(true, func() string { return fmt.Sprintf("form: %v %v", c.r.ParseForm(), c.r.Form) })
	}},
	{"answer with http.Error", func(c *call, arg int) { http.Error(c.w, "wrong", 400+arg%10) }},
	{"serve content", func(c *call, arg int) {
		http.ServeContent(c.w, c.r, "a.txt", time.Time{}, strings.NewReader(strings.Repeat("x", sizes[arg%len(sizes)])))
	}},
	{"try the rest", func(c *call, _ int) {
		rc := http.NewResponseController(c.w)
		_, _, err := rc.Hijack()
		c.seen.note("%v, %v", err, rc.EnableFullDuplex())
	}},
	{"copy the body", func(c *call, _ int) {
		defer func() { c.blind = c.blind || c.fate() != alive }()
		c.compare(true, func() string {
			n, err := io.Copy(c.w, c.r.Body)
			return fmt.Sprintf("copy %d, %v", n, err)
		})
	}},
}

// handle is the handler of all requests of a play.
func (p *play) handle(w http.ResponseWriter, r *http.Request) {
	p.running.Add(1)
	defer p.running.Add(-1)
	c := &call{play: p, index: -1, seen: new(seen), w: w, r: r}
	if n, err := strconv.Atoi(r.Header.Get("X-P")); err == nil && n < len(p.scenario.opened) {
		c.index = n
	}
	p.mu.Lock()
	key := fmt.Sprint(c.index)
	for p.seen[key] != nil {
		key += "'"
	}
	p.seen[key] = c.seen
	p.mu.Unlock()

	describe(c.seen, r)
	if c.index < 0 {
		readAll(c.seen, r)
		return
	}
	for code := p.scenario.opened[c.index].program; len(code) > 0; {
		a, arg := actions[code.Next()%len(actions)], code.Next()
		a.do(c, arg)
	}
}

// compare notes what f returns, unless that depends on how far a reset has got: see the rules. reads
// says that f looks at the request.
func (c *call) compare(reads bool, f func() string) {
	before := c.fate()
	if c.r.Context().Err() != nil {
		before = max(before, resetAlone)
	}
	s := f()
	if after := c.fate(); after == resetInBurst || reads && before != alive || c.blind {
		s = notCompared
	} else if after == over {
		s = strings.ReplaceAll(s, "http2: stream closed", "client disconnected") // net/http returns either
	}
	if c.r.Method == http.MethodHead { // net/http returns either
		s = strings.ReplaceAll(s, "http2: request body closed due to handler exiting", "short write")
	}
	c.seen.note("%s", s)
}

// A fate is what the client has done to a stream.
type fate int

const (
	alive fate = iota
	resetAlone
	resetInBurst // with other frames
	over
)

func (c *call) fate() fate {
	p := c.play
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.fates[c.index], p.all)
}

// closesBody reports whether a handler may stop reading before the body's end.
func closesBody(code testnet.Program) bool {
	for len(code) > 0 {
		a, arg := actions[code.Next()%len(actions)], code.Next()
		if a.name == "close the body" || a.name == "set a deadline" && arg%2 == 0 && arg/2%3 == 1 {
			return true
		}
	}
	return false
}

// handlerText returns a handler's program for people.
func handlerText(code testnet.Program) string {
	var list []string
	for len(code) > 0 {
		a, arg := actions[code.Next()%len(actions)], code.Next()
		list = append(list, fmt.Sprintf("%s(%d)", a.name, arg))
	}
	return "[" + strings.Join(list, ", ") + "]"
}
