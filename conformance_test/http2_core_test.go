package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	xhpack "golang.org/x/net/http2/hpack"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/race"
)

// These tests compare internal/http2 with net/http's server. Both get the same frames, from a
// client that breaks the rules half of the time. They compare the streams that were reset, with
// their codes, how the connection ended, and the requests that reached a handler. Handlers neither
// read nor answer. A program avoids the differences that the package's comment lists: it leaves a
// stream alone if the server has reset it or its request was wrong.

const (
	coreStreams = 100 // net/http forgets a stream once its RST_STREAM is written, so programs stay below
	coreWindow  = 300
	coreHeaders = 1000
)

// theEnd is the data of the PING that follows a program.
var theEnd = [8]byte{'t', 'h', 'e', ' ', 'e', 'n', 'd', '!'}

// coreOutcome is how a program ended.
type coreOutcome struct {
	resets   map[uint32]http2.ErrCode // the first of each stream
	end      string                   // the code of the connection's error, "" if it goes on
	requests []string                 // requests with open streams, as a handler sees them
}

// A coreProgram writes frames and feeds them to the core at once, because what comes next depends
// on the remaining streams.
type coreProgram struct {
	t       *testing.T
	numbers []byte
	bytes   bytes.Buffer // all frames
	fed     int          // bytes that the core has received
	framer  *xhttp2.Framer
	block   bytes.Buffer
	hpack   *xhpack.Encoder

	conn    *http2.Conn
	frame   http2.Frame
	outcome coreOutcome
	open    map[uint32]string // requests by stream
	streams map[uint32]*http2.Stream
	avoid   map[uint32]bool // streams to leave alone
	last    uint32          // the highest stream that was used
	wrong   bool            // a request was wrong: its stream is closed here, and idle there
	problem bool            // a request was answered; the number of open streams is uncertain
	padding bool
	leaving bool // the client has sent GOAWAY
	raised  map[uint32]bool
	lags    bool // a stream with a raised window was reset: net/http forgets it at an unknown time
}

func newCoreProgram(t *testing.T, numbers []byte) *coreProgram {
	cfg := http2.DefaultConfig()
	cfg.Streams, cfg.StreamWindowBytes, cfg.ConnWindowBytes = coreStreams, coreWindow, 65535
	cfg.HeaderListBytes, cfg.FrameBytes = coreHeaders+320, 1<<14
	cfg.Resets.Burst, cfg.Idle.Burst, cfg.Continuations = 1<<20, 1<<20, 1000
	p := &coreProgram{t: t, numbers: numbers, conn: http2.NewConn(cfg), open: make(map[uint32]string), streams: make(map[uint32]*http2.Stream), avoid: make(map[uint32]bool), raised: make(map[uint32]bool)}
	p.framer = xhttp2.NewFramer(&p.bytes, nil)
	p.framer.AllowIllegalWrites = true
	p.hpack = xhpack.NewEncoder(&p.block)
	p.outcome.resets = make(map[uint32]http2.ErrCode)
	p.padding = p.next()%2 == 0
	return p
}

func (p *coreProgram) next() int {
	if len(p.numbers) == 0 {
		return 0
	}
	n := int(p.numbers[0])
	p.numbers = p.numbers[1:]
	return n
}

// run plays the program until the connection ends.
func (p *coreProgram) run() coreOutcome {
	p.bytes.WriteString(xhttp2.ClientPreface)
	if p.next()%20 != 0 {
		_ = p.framer.WriteSettings()
		_ = p.framer.WriteSettingsAck()
	}
	p.feed()
	for i := 0; i < 40 && len(p.numbers) > 0 && p.outcome.end == ""; i++ {
		p.step()
		p.feed()
	}
	if p.outcome.end == "" {
		_ = p.framer.WritePing(false, theEnd)
		p.feed()
	}
	for _, r := range p.open {
		p.outcome.requests = append(p.outcome.requests, r)
	}
	return p.outcome
}

// stream chooses a stream: nearly always an open one, otherwise any stream near the used ones.
func (p *coreProgram) stream() uint32 {
	n := p.next()
	var left []uint32
	for id := range p.last + 1 {
		if p.streams[id] != nil && !p.avoid[id] {
			left = append(left, id)
		}
	}
	if len(left) > 0 && n%16 != 0 {
		return left[n/16%len(left)]
	}
	if id := uint32(n/16) % (p.last + 4); !p.wrong && !p.avoid[id] {
		return id
	}
	return p.last + 1 + p.last%2
}

// step writes a frame.
func (p *coreProgram) step() {
	op := p.next()
	if len(p.open) == 0 && op%8 != 0 {
		op = 1
	}
	switch op % 16 {
	case 0, 1, 2, 3, 4:
		p.request(op)
	case 5, 6, 7:
		p.data(op)
	case 8:
		p.windowUpdate()
	case 9:
		p.raw(xhttp2.FrameRSTStream, 0, p.stream(), make([]byte, 4))
	case 10:
		p.settings(op / 16)
	case 11:
		_ = p.framer.WritePing(op/16%2 == 0, [8]byte{byte(op)})
	case 12:
		p.raw(xhttp2.FramePriority, 0, p.stream(), []byte{0, 0, 0, byte(p.next() % 8), 1})
	case 13:
		p.trailers()
	case 14:
		if op/16 < 1 {
			_ = p.framer.WriteGoAway(0, xhttp2.ErrCodeNo, nil)
		}
	default:
		p.odd()
	}
}

func (p *coreProgram) windowUpdate() {
	id, n := p.stream(), []uint32{0, 1, 100, 1000, 1<<31 - 1, 1<<31 - 65535}[p.next()%6]
	if id == 0 && p.problem {
		n %= 1000 // an answer from net/http may have used up some of the window
	}
	p.raised[id] = p.raised[id] || n > 0
	p.raw(xhttp2.FrameWindowUpdate, 0, id, binary.BigEndian.AppendUint32(nil, n))
}

// settings writes SETTINGS: nearly always a new window, otherwise any setting.
func (p *coreProgram) settings(op int) {
	id, v := xhttp2.SettingInitialWindowSize, []uint32{0, 1, 1000, 65535, 1 << 20, 1<<31 - 1}[p.next()%6]
	if op%4 == 0 {
		id = xhttp2.SettingID(p.next() % 9)
	}
	switch {
	case id == xhttp2.SettingInitialWindowSize && p.lags:
		return
	case id == xhttp2.SettingHeaderTableSize && race.Enabled:
		return // net/http changes its encoder's table while it encodes (CVE-2026-97032)
	}
	_ = p.framer.WriteSettings(xhttp2.Setting{ID: id, Val: v}, xhttp2.Setting{ID: xhttp2.SettingID(op + 5), Val: 1})
}

func (p *coreProgram) raw(typ xhttp2.FrameType, flags xhttp2.Flags, id uint32, payload []byte) {
	_ = p.framer.WriteRawFrame(typ, flags, id, payload)
}

// odd writes a frame of any type, of any length, on any stream, except HEADERS and DATA. A payload
// that is too short for its padding is one of the known differences.
func (p *coreProgram) odd() {
	if p.next()%4 != 0 {
		p.raw(xhttp2.FrameType(20), 0xff, p.stream(), make([]byte, p.next()))
		return
	}
	typ := xhttp2.FrameType(2 + p.next()%10)
	if typ == xhttp2.FramePushPromise {
		p.raw(typ, xhttp2.FlagPushPromiseEndHeaders, p.stream(), make([]byte, 4))
		return
	}
	id := p.stream()
	if p.next()%2 == 0 {
		id = 0
	}
	p.raw(typ, xhttp2.Flags(p.next()%2), id, make([]byte, p.next()%10))
}

// request writes HEADERS, right or wrong, with or without a body.
func (p *coreProgram) request(op int) {
	id := p.last + 1 + p.last%2
	if op/16 == 0 && !p.wrong && p.next()%4 == 0 {
		id = uint32(p.next() % 16)
	}
	if p.avoid[id] || p.problem {
		return
	}
	path := fmt.Sprint("/", id)
	fields := []string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "example.com"}
	wrongs := [][]string{
		{"X-Upper", "a"}, {"a b", "c"}, {"a", "b\x00"}, {":path", "/"}, {":new", "a"}, {"", "a"}, {":status", "200"},
		{"a", "b", ":authority", "x"}, {":protocol", "websocket"},
	}
	switch n := p.next(); {
	case n < 20:
		fields = append(fields, wrongs[n%len(wrongs)]...)
	case n < 30:
		i := n % 4 * 2
		fields = slices.Delete(fields, i, i+2)
	case n < 35:
		fields[n%4*2+1] = ""
	case n < 38:
		fields[1] = "CONNECT"
	case n < 41:
		fields[7] = "user@example.com"
	case n < 110:
		fields = append(fields, "content-length", []string{"0", "5", "50", "x", "-1"}[n%5])
	case n < 115:
		// To net/http a string that is longer than the limit is an error of the connection.
		fields = append(fields, "a", strings.Repeat("v", min(10*p.next(), coreHeaders)))
	case n < 120:
		fields = append(fields, []string{"connection", "te", "upgrade", "keep-alive"}[n%4], "a")
	}
	p.headers(id, p.next(), fields)
}

// headers writes a header block in one frame or two.
func (p *coreProgram) headers(id uint32, n int, fields []string) {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.hpack.WriteField(xhpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	block := slices.Clone(p.block.Bytes())
	flags := xhttp2.FlagHeadersEndHeaders
	if n%2 == 0 {
		flags |= xhttp2.FlagHeadersEndStream
	}
	if n%8 == 2 {
		flags |= xhttp2.FlagHeadersPriority
		block = append([]byte{0, 0, 0, byte(n / 8), 1}, block...)
	}
	if n < 200 || len(block) < 10 {
		p.raw(xhttp2.FrameHeaders, flags, id, block)
		return
	}
	p.raw(xhttp2.FrameHeaders, flags&^xhttp2.FlagHeadersEndHeaders, id, block[:8])
	if n < 202 {
		p.raw(xhttp2.FramePing, 0, 0, make([]byte, 8))
	}
	p.raw(xhttp2.FrameContinuation, xhttp2.FlagContinuationEndHeaders, id, block[8:])
}

func (p *coreProgram) trailers() {
	id := p.stream()
	if p.streams[id] == nil || p.avoid[id] {
		return // a request, or the next of a stream that has ended
	}
	p.headers(id, p.next()%16, [][]string{{"x-a", "b"}, {":path", "/"}, {"X", "b"}, nil}[p.next()%4])
}

// data writes DATA. It is padded in one half of the programs, and long in the other, because the
// servers announce the credit for padding at different times.
func (p *coreProgram) data(op int) {
	id, flags, n := p.stream(), xhttp2.Flags(op/16%2), p.next()
	if !p.padding {
		p.raw(xhttp2.FrameData, flags, id, make([]byte, n%200))
		return
	}
	payload := append([]byte{byte(n % 8)}, make([]byte, 4+n%4)...)
	p.raw(xhttp2.FrameData, flags|xhttp2.FlagDataPadded, id, payload)
}

// feed gives the core the frames that it has not received yet, and notes how it reacts.
func (p *coreProgram) feed() {
	in := p.bytes.Bytes()[p.fed:]
	for len(in) > 0 && p.outcome.end == "" {
		n, ok := p.conn.Parse(in, &p.frame)
		in = in[n:]
		if !ok {
			continue
		}
		var ev http2.Event
		if err := p.conn.Apply(&p.frame, &ev); err != nil {
			var ce *http2.ConnError
			errors.As(err, &ce)
			p.outcome.end = ce.Code.String()
		}
		p.note(&ev)
	}
	p.fed = p.bytes.Len()
	p.noteOutput()
}

func (p *coreProgram) note(ev *http2.Event) {
	switch ev.Kind {
	case http2.RequestStarted:
		st := new(http2.Stream)
		p.conn.Open(st, ev)
		p.streams[ev.ID], p.last = st, max(p.last, ev.ID)
		r := ev.Request
		if r.Problem == http2.Nothing || r.Problem == http2.BadLength {
			p.open[ev.ID] = fmt.Sprint(r.Method, " ", r.Path, " ", r.Authority, " ", fieldCount(ev))
			return
		}
		// net/http answers from a separate handler, at an unknown time.
		p.problem, p.avoid[ev.ID] = true, true
		p.conn.Reset(st, http2.NoError)
		p.conn.Returned()
	case http2.PeerGoesAway:
		p.leaving = true
	case http2.StreamReset:
		delete(p.open, ev.Stream.ID())
		p.conn.Returned()
	}
}

// fieldCount counts the values of the header as a handler receives it.
func fieldCount(ev *http2.Event) (n int) {
	for i := range ev.Fields {
		if key := ev.Fields[i].Name.Key(); key != "Trailer" {
			n++
		}
	}
	return n
}

// noteOutput notes the streams that the core has reset.
func (p *coreProgram) noteOutput() {
	for _, r := range coreFrames(p.conn.TakeOutput()) {
		if _, ok := p.outcome.resets[r.id]; !ok && !p.avoid[r.id] {
			p.outcome.resets[r.id] = r.code
		}
		if p.streams[r.id] == nil && r.id > p.last {
			p.wrong, p.last = true, r.id
		}
		p.avoid[r.id] = true
		p.lags = p.lags || p.raised[r.id]
	}
}

type coreReset struct {
	id   uint32
	code http2.ErrCode
}

// coreFrames returns the RST_STREAM frames of an output.
func coreFrames(out []byte) (resets []coreReset) {
	fr := xhttp2.NewFramer(nil, bytes.NewReader(out))
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return resets
		}
		if f, ok := f.(*xhttp2.RSTStreamFrame); ok {
			resets = append(resets, coreReset{f.StreamID, http2.ErrCode(f.ErrCode)})
		}
	}
}

// A coreJudge is net/http's server on connections that a test makes.
type coreJudge struct {
	conns  chan net.Conn
	closed chan struct{}
	mu     sync.Mutex
	cond   *sync.Cond
	seen   map[string][]string // requests by client
}

func newCoreJudge(t *testing.T) *coreJudge {
	j := &coreJudge{conns: make(chan net.Conn), closed: make(chan struct{}), seen: make(map[string][]string)}
	j.cond = sync.NewCond(&j.mu)
	srv := &http.Server{
		Handler:        j,
		MaxHeaderBytes: coreHeaders,
		Protocols:      new(http.Protocols),
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: coreStreams, MaxReceiveBufferPerStream: coreWindow, MaxReceiveBufferPerConnection: 65535, MaxReadFrameSize: 1 << 14},
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(j)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return j
}

// Accept, Close and Addr make it a listener.
func (j *coreJudge) Accept() (net.Conn, error) {
	select {
	case c := <-j.conns:
		return c, nil
	case <-j.closed:
		return nil, net.ErrClosed
	}
}

func (j *coreJudge) Close() error {
	close(j.closed)
	return nil
}

func (j *coreJudge) Addr() net.Addr { return coreAddr("judge") }

type coreAddr string

func (a coreAddr) Network() string { return "pipe" }
func (a coreAddr) String() string  { return string(a) }

// coreConn has an address by which the handler recognizes the program.
type coreConn struct {
	net.Conn
	addr coreAddr
}

func (c coreConn) RemoteAddr() net.Addr { return c.addr }

func (j *coreJudge) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	n := 0
	for k, vv := range r.Header {
		if !strings.HasPrefix(k, ":") {
			n += len(vv)
		}
	}
	j.mu.Lock()
	j.seen[r.RemoteAddr] = append(j.seen[r.RemoteAddr], fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Host, " ", n))
	j.cond.Broadcast()
	j.mu.Unlock()
	<-r.Context().Done()
}

// judge plays the frames of a program. It waits for the answer to the PING that follows them, or
// for the end. It returns the resets and the end, and waits for the requests in wanted.
func (j *coreJudge) judge(t *testing.T, name string, frames []byte, want []string) coreOutcome {
	client, server := net.Pipe()
	defer func() { _ = client.Close() }()
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	j.conns <- coreConn{server, coreAddr(name)}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = client.Write(frames)
	}()
	out := coreOutcome{resets: make(map[uint32]http2.ErrCode)}
	fr := xhttp2.NewFramer(io.Discard, client)
	for ended := false; !ended; {
		f, err := fr.ReadFrame()
		switch f := f.(type) {
		case *xhttp2.RSTStreamFrame:
			if _, ok := out.resets[f.StreamID]; !ok {
				out.resets[f.StreamID] = http2.ErrCode(f.ErrCode)
			}
		case *xhttp2.GoAwayFrame:
			if f.ErrCode != xhttp2.ErrCodeNo {
				out.end, ended = http2.ErrCode(f.ErrCode).String(), true
			}
		case *xhttp2.PingFrame:
			ended = f.IsAck() && f.Data == theEnd
		}
		if err != nil {
			out.end, ended = "hung up", true
		}
	}
	if out.end == "" {
		out.requests = j.wait(t, name, want)
	}
	_ = client.Close()
	<-written
	j.mu.Lock()
	delete(j.seen, name)
	j.mu.Unlock()
	return out
}

// wait waits until handlers have seen the wanted requests.
func (j *coreJudge) wait(t *testing.T, name string, want []string) (seen []string) {
	timeout := time.AfterFunc(20*time.Second, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.seen[name] = append(j.seen[name], "no more came in time")
		j.cond.Broadcast()
	})
	defer timeout.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	for {
		seen = j.seen[name]
		if slices.Contains(seen, "no more came in time") || !slices.ContainsFunc(want, func(r string) bool { return !slices.Contains(seen, r) }) {
			return slices.Clone(seen)
		}
		j.cond.Wait()
	}
}

// compareCore plays a program on both servers and compares.
func compareCore(t *testing.T, j *coreJudge, name string, numbers []byte) coreOutcome {
	t.Helper()
	p := newCoreProgram(t, numbers)
	got := p.run()
	want := j.judge(t, name, p.bytes.Bytes(), got.requests)
	for id := range want.resets {
		if _, ok := got.resets[id]; !ok && p.avoid[id] {
			delete(want.resets, id) // the end of an answer to a request with a problem
		}
	}
	if p.leaving && got.end != "" && want.end == "hung up" {
		want.end = got.end // net/http sends nothing after its first GOAWAY
	}
	if want.end != "" { // net/http's GOAWAY overtakes RST_STREAM
		for id := range got.resets {
			if _, ok := want.resets[id]; !ok {
				delete(got.resets, id)
			}
		}
	}
	missing := slices.DeleteFunc(slices.Clone(got.requests), func(r string) bool { return slices.Contains(want.requests, r) })
	if got.end != want.end || fmt.Sprint(got.resets) != fmt.Sprint(want.resets) || got.end == "" && len(missing) > 0 {
		t.Fatalf("program %x:\ngot  %q, resets %v\nwant %q, resets %v\nrequests that no handler got: %q of %q\n%s", numbers, got.end, got.resets, want.end, want.resets,
			missing, want.requests, describeFrames(p.bytes.Bytes()))
	}
	return got
}

// describeFrames describes frames for people.
func describeFrames(p []byte) (s string) {
	fr := xhttp2.NewFramer(io.Discard, bytes.NewReader(p[len(xhttp2.ClientPreface):]))
	fr.AllowIllegalReads = true
	for {
		h, err := fr.ReadFrameHeader()
		if err != nil {
			return s
		}
		s += fmt.Sprintln("\t", h)
		_, _ = fr.ReadFrameForHeader(h)
	}
}

// needJudge skips the test unless this is the net/http that the core was compared with. Go 1.27's
// server treats more requests as malformed, such as a declared length without a body.
func needJudge(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(runtime.Version(), "go1.26") {
		t.Skip("the core is compared with net/http of Go 1.26: run this with GOTOOLCHAIN=go1.26.8")
	}
}

// TestHTTP2Core plays random programs, the same in each run: FuzzHTTP2Core looks for other
// programs.
func TestHTTP2Core(t *testing.T) {
	needJudge(t)
	j := newCoreJudge(t)
	programs := 1500
	if testing.Short() {
		programs = 200
	}
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, 2))
	ends, resets, requests := make(map[string]int), make(map[http2.ErrCode]int), 0
	for i := range programs {
		numbers := make([]byte, 10+rnd.IntN(150))
		for k := range numbers {
			numbers[k] = byte(rnd.Uint32())
		}
		out := compareCore(t, j, fmt.Sprint("program ", i), numbers)
		ends[out.end]++
		requests += len(out.requests)
		for _, code := range out.resets {
			resets[code]++
		}
	}
	t.Logf("seed %d: ends %v, resets %v, %d requests", seed, ends, resets, requests)
	if len(ends) < 3 || len(resets) < 3 || requests == 0 {
		t.Error("the programs reach too little")
	}
}

// FuzzHTTP2Core plays the programs of the fuzzer.
func FuzzHTTP2Core(f *testing.F) {
	needJudge(f)
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, numbers []byte) {
		compareCore(t, newCoreJudge(t), "program", numbers)
	})
}
