package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file is a client of HTTP/2 that costs little. It encodes each kind of request twice, once
// for a connection's first request, and doesn't decode the fields of answers: it checks the status
// and the length of the body.

// BrowserHeader2 returns the header fields that a browser sends over HTTP/2, one per line. Those of
// a connection are missing, and cookies come one by one.
func BrowserHeader2() []string {
	var fields []string
	for _, line := range BrowserHeader {
		name, value, _ := strings.Cut(line, ": ")
		switch name = strings.ToLower(name); name {
		case "connection":
		case "cookie":
			for crumb := range strings.SplitSeq(value, "; ") {
				fields = append(fields, "cookie: "+crumb)
			}
		default:
			fields = append(fields, name+": "+value)
		}
	}
	return append(fields, `sec-ch-ua-platform: "Linux"`, "sec-fetch-site: none")
}

// The parts of RFC 9113 that the client uses.
const (
	http2Preface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	http2HeadBytes   = 9       // of a frame
	http2FrameBytes  = 1 << 14 // of a payload, at most
	http2Window      = 1<<16 - 1
	http2WindowLarge = 1<<30 - 1 // as h2load has it

	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagsUnusual   = 0x28 // padding, and a priority

	settingEnablePush    = 0x2
	settingInitialWindow = 0x4
)

// appendFrame appends the head of a frame.
func appendFrame(dst []byte, typ, flags byte, id uint32, length int) []byte {
	dst = append(dst, byte(length>>16), byte(length>>8), byte(length), typ, flags)
	return binary.BigEndian.AppendUint32(dst, id)
}

func appendWindowUpdate(dst []byte, id uint32, n int) []byte {
	dst = appendFrame(dst, frameWindowUpdate, 0, id, 4)
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

// http2Request is what all sessions of a job send. It doesn't change.
type http2Request struct {
	hello       []byte // what a connection begins with
	first, next []byte // header blocks of a connection's first request, and of all others
	body        []byte
	window      int // for each stream, and for each connection
}

func newHTTP2Request(job Job) *http2Request {
	r := &http2Request{body: make([]byte, job.Payload), window: job.Window}
	if r.window == 0 {
		r.window = http2WindowLarge
	}
	r.hello = append(r.hello, http2Preface...)
	r.hello = appendFrame(r.hello, frameSettings, 0, 0, 2*6)
	r.hello = append(r.hello, 0, settingEnablePush, 0, 0, 0, 0, 0, settingInitialWindow)
	r.hello = binary.BigEndian.AppendUint32(r.hello, uint32(r.window))
	if more := r.window - http2Window; more > 0 {
		r.hello = appendWindowUpdate(r.hello, 0, more)
	}
	r.encode(job)
	return r
}

// encode makes the header blocks (RFC 7541). Like browsers and h2load, the client indexes nothing
// that is likely to change with each request. The table has room for the rest.
func (r *http2Request) encode(job Job) {
	const get, post, http, https, root = 0x82, 0x83, 0x86, 0x87, 0x84
	const path, authority, contentLength = 4, 1, 28 // indices of names
	var start []byte
	switch {
	case job.Payload == 0 && job.TLS:
		start = append(start, get, https)
	case job.Payload == 0:
		start = append(start, get, http)
	case job.TLS:
		start = append(start, post, https)
	default:
		start = append(start, post, http)
	}
	if job.Path == "" || job.Path == "/" {
		start = append(start, root)
	} else {
		start = appendString(append(start, path), job.Path)
	}
	var fields []string
	if job.Browser {
		fields = BrowserHeader2()
	}
	const indexed, indexing, firstIndex = 0x80, 0x40, 62
	r.first = appendString(append(slices.Clone(start), indexing|authority), job.Addr)
	r.next = append(start, indexed|byte(firstIndex+len(fields)))
	for i, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.first = appendString(appendString(append(r.first, indexing), name), value)
		r.next = append(r.next, indexed|byte(firstIndex+len(fields)-1-i))
	}
	if job.Payload > 0 {
		for _, block := range []*[]byte{&r.first, &r.next} {
			*block = appendString(append(*block, 0x0f, contentLength-0x0f), strconv.Itoa(job.Payload))
		}
	}
}

// appendString appends a string without Huffman's code.
func appendString(dst []byte, s string) []byte {
	const most = 0x7f
	if len(s) < most {
		return append(append(dst, byte(len(s))), s...)
	}
	dst = append(dst, most)
	n := len(s) - most
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(append(dst, byte(n)), s...)
}

// http2Session sends the same request over and over on one connection, several at a time.
type http2Session struct {
	conn net.Conn
	req  *http2Request
	most int // streams that are open at a time

	in, out []byte
	have    int  // bytes of in that are read and not used
	skip    int  // bytes of a DATA frame that are to come
	ends    bool // then dataID has ended
	dataID  uint32

	streams []http2Stream
	lastID  uint32
	now     time.Time           // of the last read
	record  func(time.Duration) // the time that each stream took; or nil

	window, streamWindow int  // of the server: for the connection, and at first for a stream
	owed                 int  // bytes received that the server has no credit for
	content              int  // length of the first body; -1 before
	varies               bool // not all bodies have that
}

// http2Stream is a stream that is open.
type http2Stream struct {
	id     uint32
	begun  time.Time
	unsent int // bytes of the request's body
	window int // of the server
	owed   int // see http2Session
	got    int // bytes of the answer's body
	ok     bool
}

func http2Opener(job Job) opener {
	req := newHTTP2Request(job)
	return func(int) (session, error) {
		c, err := dial(job.Addr)
		if err != nil {
			return nil, err
		}
		if job.TLS {
			if c, err = startTLS(c, "h2"); err != nil {
				return nil, err
			}
		}
		s := newHTTP2Session(c, req, max(1, job.Streams))
		s.varies = job.Varies
		c.SetDeadline(time.Now().Add(dialTimeout))
		if err := s.flush(); err != nil { // at once, since servers don't wait long for it
			c.Close()
			return nil, err
		}
		c.SetDeadline(time.Time{})
		return s, nil
	}
}

func newHTTP2Session(c net.Conn, req *http2Request, most int) *http2Session {
	return &http2Session{
		conn: c, req: req, most: most, out: slices.Clone(req.hello),
		window: http2Window, streamWindow: http2Window, content: -1,
	}
}

func (s *http2Session) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *http2Session) close()                  { s.conn.Close() }

// op makes one request, whatever most is.
func (s *http2Session) op() error {
	s.now = time.Now()
	s.begin()
	return s.finish()
}

// send begins as many requests as may be open; receive reads their answers.
func (s *http2Session) send() error {
	s.now = time.Now()
	for len(s.streams) < s.most {
		s.begin()
	}
	return s.flush()
}

func (s *http2Session) receive() error { return s.finish() }

// loop begins requests until stop reports true, and calls record with the time that each took. It
// begins one at least, and returns when all are answered.
func (s *http2Session) loop(stop func() bool, record func(time.Duration)) error {
	s.record = record
	defer func() { s.record = nil }()
	s.now = time.Now()
	s.begin()
	for {
		for len(s.streams) < s.most && !stop() {
			s.begin()
		}
		if len(s.streams) == 0 {
			return s.flush() // as in finish
		}
		if err := s.exchange(); err != nil {
			return err
		}
	}
}

// finish waits for all answers. At the end it sends the acknowledgements and the credit that the
// last of them has left in the output.
func (s *http2Session) finish() error {
	for len(s.streams) > 0 {
		if err := s.exchange(); err != nil {
			return err
		}
	}
	return s.flush()
}

// begin adds a request to the output.
func (s *http2Session) begin() {
	id, block := s.lastID+2, s.req.next
	if s.lastID == 0 {
		id, block = 1, s.req.first
	}
	s.lastID = id
	flags := byte(flagEndHeaders)
	if len(s.req.body) == 0 {
		flags |= flagEndStream
	}
	s.out = append(appendFrame(s.out, frameHeaders, flags, id, len(block)), block...)
	s.streams = append(s.streams, http2Stream{id: id, begun: s.now, unsent: len(s.req.body), window: s.streamWindow})
}

// exchange sends the output, and reads what has come.
func (s *http2Session) exchange() error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.read()
}

// flush sends the output, with as much of the bodies as the windows allow.
func (s *http2Session) flush() error {
	if len(s.req.body) > 0 {
		s.addBodies()
	}
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	return err
}

func (s *http2Session) addBodies() {
	for i := range s.streams {
		st := &s.streams[i]
		for {
			n := min(st.unsent, st.window, s.window, http2FrameBytes)
			if n <= 0 {
				break
			}
			flags := byte(0)
			if n == st.unsent {
				flags = flagEndStream
			}
			s.out = append(appendFrame(s.out, frameData, flags, st.id, n), s.req.body[:n]...)
			st.unsent -= n
			st.window -= n
			s.window -= n
		}
	}
}

// The sizes of a session's buffer: at first, because thousands of connections may be idle, and at
// most.
const (
	http2BufferMin = 1 << 10
	http2BufferMax = 128 << 10
)

// read reads once.
func (s *http2Session) read() error {
	if s.have == len(s.in) {
		s.in = append(s.in, make([]byte, max(http2BufferMin, len(s.in)))...)
	}
	n, err := s.conn.Read(s.in[s.have:])
	s.have += n
	if n == 0 && err != nil {
		return fmt.Errorf("read answer: %w", unexpectedEOF(err))
	}
	s.now = time.Now()
	full := s.have == len(s.in)
	rest, err := s.frames(s.in[:s.have])
	s.have = copy(s.in, rest)
	if full && len(s.in) < http2BufferMax {
		s.in = append(s.in, make([]byte, len(s.in))...)
	}
	return err
}

// frames takes the frames in p, and as much as there is of a DATA frame. It returns the rest.
func (s *http2Session) frames(p []byte) (rest []byte, err error) {
	for {
		n := min(s.skip, len(p))
		p = p[n:]
		if s.skip -= n; s.skip > 0 {
			return p, nil
		}
		if s.ends {
			s.ends = false
			if err := s.ended(s.dataID); err != nil {
				return nil, err
			}
		}
		if len(p) < http2HeadBytes {
			return p, nil
		}
		length := int(p[0])<<16 | int(p[1])<<8 | int(p[2])
		typ, flags, id := p[3], p[4], binary.BigEndian.Uint32(p[5:])
		if typ == frameData {
			p = p[http2HeadBytes:]
			s.skip, s.ends, s.dataID = length, flags&flagEndStream != 0, id
			if err := s.data(id, length); err != nil {
				return nil, err
			}
			continue
		}
		if len(p) < http2HeadBytes+length {
			return p, nil
		}
		if err := s.frame(typ, flags, id, p[http2HeadBytes:http2HeadBytes+length]); err != nil {
			return nil, err
		}
		p = p[http2HeadBytes+length:]
	}
}

// data counts n bytes of an answer's body, and gives the server credit for them when that is half a
// window.
func (s *http2Session) data(id uint32, n int) error {
	i := s.find(id)
	if i < 0 {
		return fmt.Errorf("DATA of stream %d, which isn't open", id)
	}
	st := &s.streams[i]
	st.got += n
	if st.owed += n; st.owed >= s.req.window/2 && !s.ends {
		s.out = appendWindowUpdate(s.out, id, st.owed)
		st.owed = 0
	}
	if s.owed += n; s.owed >= s.req.window/2 {
		s.out = appendWindowUpdate(s.out, 0, s.owed)
		s.owed = 0
	}
	return nil
}

// frame takes a frame that is not DATA.
func (s *http2Session) frame(typ, flags byte, id uint32, p []byte) error {
	switch typ {
	case frameHeaders:
		i := s.find(id)
		if i < 0 || flags&flagsUnusual != 0 || flags&flagEndHeaders == 0 {
			return fmt.Errorf("HEADERS of stream %d with the flags %#x", id, flags)
		}
		if !isOK(p) {
			return fmt.Errorf("unexpected answer with the header block %q", p)
		}
		s.streams[i].ok = true
		if flags&flagEndStream != 0 {
			return s.ended(id)
		}
	case frameSettings:
		return s.settings(flags, p)
	case frameWindowUpdate:
		n := int(binary.BigEndian.Uint32(p))
		if i := s.find(id); i >= 0 {
			s.streams[i].window += n
		} else if id == 0 {
			s.window += n
		}
	case framePing:
		if flags&flagAck == 0 {
			s.out = append(appendFrame(s.out, framePing, flagAck, 0, len(p)), p...)
		}
	case frameReset:
		return fmt.Errorf("the server has reset stream %d: code %d", id, binary.BigEndian.Uint32(p))
	case frameGoAway:
		return fmt.Errorf("the server goes away: code %d, %q", binary.BigEndian.Uint32(p[4:]), p[8:])
	}
	return nil
}

// isOK reports whether a header block begins with the status 200, behind changes of the table's
// size. All servers send it as an index of the static table.
func isOK(block []byte) bool {
	for len(block) > 0 && block[0]&0xe0 == 0x20 {
		more := block[0]&0x1f == 0x1f
		for block = block[1:]; more && len(block) > 0; block = block[1:] {
			more = block[0]&0x80 != 0
		}
	}
	return len(block) > 0 && block[0] == 0x88
}

func (s *http2Session) settings(flags byte, p []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	for ; len(p) >= 6; p = p[6:] {
		if binary.BigEndian.Uint16(p) != settingInitialWindow {
			continue
		}
		more := int(binary.BigEndian.Uint32(p[2:])) - s.streamWindow
		s.streamWindow += more
		for i := range s.streams {
			s.streams[i].window += more
		}
	}
	s.out = appendFrame(s.out, frameSettings, flagAck, 0, 0)
	return nil
}

// find returns the place of a stream that is open, or -1. Answers come in the order of the requests
// for the most part.
func (s *http2Session) find(id uint32) int {
	for i := range s.streams {
		if s.streams[i].id == id {
			return i
		}
	}
	return -1
}

var errNoHeader = errors.New("a body without a header")

// ended ends a stream whose answer is complete.
func (s *http2Session) ended(id uint32) error {
	i := s.find(id)
	st := &s.streams[i]
	switch {
	case !st.ok:
		return errNoHeader
	case st.unsent > 0:
		return fmt.Errorf("stream %d was answered before its body was sent", id)
	case !s.varies && s.content >= 0 && st.got != s.content:
		return fmt.Errorf("an answer of %d bytes after one of %d", st.got, s.content)
	}
	s.content = st.got
	if s.record != nil {
		s.record(s.now.Sub(st.begun))
	}
	s.streams = slices.Delete(s.streams, i, i+1)
	return nil
}
