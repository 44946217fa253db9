package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

const (
	http2FrameMax    = 1 << 14   // of a payload
	http2Window      = 1<<16 - 1 // before SETTINGS
	http2WindowLarge = 1<<30 - 1 // as h2load has it
	http2Buffer      = 16 << 10  // of a connection: there are thousands
)

// http2Session sends the same request over and over on one connection, several at a time.
type http2Session struct {
	conn   net.Conn
	fields []hpack.HeaderField // of the request; shared by all sessions, never written
	body   []byte              // the same
	most   int                 // streams that are open at a time

	in     *bufio.Reader
	out    bytes.Buffer
	framer *http2.Framer // of both
	block  bytes.Buffer  // of encode
	encode *hpack.Encoder
	decode *hpack.Decoder
	status string // of the last answer

	streams []http2Stream
	lastID  uint32
	now     time.Time           // of the last read
	record  func(time.Duration) // the time that each stream took; or nil

	window, streamWindow int // of the server: for the connection, and at first for a stream
	ours                 int // of our own, for the connection and for each stream
	owed                 int // bytes that have come, for which the server has no new credit yet
}

type http2Stream struct {
	id     uint32
	begun  time.Time
	unsent int // bytes of the request's body
	window int // of the server
	owed   int // see http2Session
	ok     bool
}

func http2Sessions(job *scenario.Scenario) opener {
	fields, body := http2Fields(job), make([]byte, job.Payload)
	return func(int) (session, error) {
		c, err := dial(job.Addr)
		if err == nil && job.TLS {
			c, err = startTLS(c, "h2")
		}
		if err != nil {
			return nil, err
		}
		s := newHTTP2Session(job, c, fields, body)
		c.SetDeadline(time.Now().Add(dialTimeout))
		if err := s.flush(); err != nil { // at once, since servers don't wait long for it
			c.Close()
			return nil, err
		}
		c.SetDeadline(time.Time{})
		return s, nil
	}
}

// newHTTP2Session returns a session whose output begins with the preface.
func newHTTP2Session(job *scenario.Scenario, c net.Conn, fields []hpack.HeaderField, body []byte) *http2Session {
	s := &http2Session{
		conn: c, fields: fields, body: body, most: max(1, job.Streams), in: bufio.NewReaderSize(c, http2Buffer),
		window: http2Window, streamWindow: http2Window, ours: job.Window,
	}
	if s.ours == 0 {
		s.ours = http2WindowLarge
	}
	s.encode = hpack.NewEncoder(&s.block)
	s.decode = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			s.status = f.Value
		}
	})
	s.framer = http2.NewFramer(&s.out, s.in)
	s.framer.SetReuseFrames()
	s.out.WriteString(http2.ClientPreface)
	s.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(s.ours)})
	if more := s.ours - http2Window; more > 0 {
		s.framer.WriteWindowUpdate(0, uint32(more))
	}
	return s
}

// http2Fields returns a request's header. Like browsers and h2load, the client puts nothing into the
// table that is likely to change with each request. It sends a browser's fields without Connection, and
// each cookie in a field of its own.
func http2Fields(job *scenario.Scenario) []hpack.HeaderField {
	var fields []hpack.HeaderField
	add := func(name, value string) { fields = append(fields, hpack.HeaderField{Name: name, Value: value}) }
	method, scheme, path := "GET", "http", "/"
	if job.Payload > 0 {
		method = "POST"
	}
	if job.TLS {
		scheme = "https"
	}
	if job.Path != "" {
		path = job.Path
	}
	add(":method", method)
	add(":scheme", scheme)
	add(":path", path)
	add(":authority", job.Addr)
	if job.Browser {
		for _, line := range scenario.BrowserHeader {
			name, value, _ := strings.Cut(line, ": ")
			switch name = strings.ToLower(name); name {
			case "connection":
			case "cookie":
				for crumb := range strings.SplitSeq(value, "; ") {
					add(name, crumb)
				}
			default:
				add(name, value)
			}
		}
		add("sec-ch-ua-platform", `"Linux"`)
		add("sec-fetch-site", "none")
	}
	if job.Payload > 0 {
		fields = append(fields, hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(job.Payload), Sensitive: true})
	}
	return fields
}

func (s *http2Session) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *http2Session) close()                  { s.conn.Close() }

// op makes one request, whatever most is.
func (s *http2Session) op() error {
	return s.loop(func() bool { return true }, nil)
}

func (s *http2Session) send() error {
	s.now = time.Now()
	for len(s.streams) < s.most {
		s.begin()
	}
	return s.flush()
}

// receive waits for all answers, and sends what acknowledgements and credit the last has left in the
// output.
func (s *http2Session) receive() error {
	for len(s.streams) > 0 {
		if err := s.exchange(); err != nil {
			return err
		}
	}
	return s.flush()
}

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
			return s.flush() // as in receive
		}
		if err := s.exchange(); err != nil {
			return err
		}
	}
}

func (s *http2Session) begin() {
	if s.lastID == 0 {
		s.lastID = 1
	} else {
		s.lastID += 2
	}
	s.block.Reset()
	for _, f := range s.fields {
		s.encode.WriteField(f)
	}
	s.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: s.lastID, BlockFragment: s.block.Bytes(), EndHeaders: true, EndStream: len(s.body) == 0,
	})
	s.streams = append(s.streams, http2Stream{id: s.lastID, begun: s.now, unsent: len(s.body), window: s.streamWindow})
}

// flush sends the output, with as much of the bodies as the windows allow.
func (s *http2Session) flush() error {
	for i := range s.streams {
		st := &s.streams[i]
		for {
			n := min(st.unsent, st.window, s.window, http2FrameMax)
			if n <= 0 {
				break
			}
			s.framer.WriteData(st.id, n == st.unsent, s.body[:n])
			st.unsent -= n
			st.window -= n
			s.window -= n
		}
	}
	if s.out.Len() == 0 {
		return nil
	}
	_, err := s.out.WriteTo(s.conn)
	return err
}

// exchange sends the output, and takes the frames that have come.
func (s *http2Session) exchange() error {
	if err := s.flush(); err != nil {
		return err
	}
	for read := false; !read || s.in.Buffered() > 0; read = true {
		f, err := s.framer.ReadFrame()
		if err != nil {
			return fmt.Errorf("read answer: %w", unexpectedEOF(err))
		}
		if !read {
			s.now = time.Now()
		}
		if err := s.frame(f); err != nil {
			return err
		}
	}
	return nil
}

func (s *http2Session) frame(f http2.Frame) error {
	id := f.Header().StreamID
	at := slices.IndexFunc(s.streams, func(st http2Stream) bool { return st.id == id })
	switch f := f.(type) {
	case *http2.HeadersFrame:
		if at < 0 || !f.HeadersEnded() {
			return fmt.Errorf("HEADERS of stream %d, which isn't open or goes on", id)
		}
		if _, err := s.decode.Write(f.HeaderBlockFragment()); err != nil {
			return err
		}
		if err := s.decode.Close(); err != nil { // the next block may begin with a change of the table's size
			return err
		}
		if s.status != "200" {
			return fmt.Errorf("unexpected answer %s", s.status)
		}
		s.streams[at].ok = true
		if f.StreamEnded() {
			return s.ended(at)
		}
	case *http2.DataFrame:
		if at < 0 {
			return fmt.Errorf("DATA of stream %d, which isn't open", id)
		}
		s.credit(&s.streams[at], int(f.Length), f.StreamEnded())
		if f.StreamEnded() {
			return s.ended(at)
		}
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			more := int(v) - s.streamWindow
			s.streamWindow += more
			for i := range s.streams {
				s.streams[i].window += more
			}
		}
		return s.framer.WriteSettingsAck()
	case *http2.WindowUpdateFrame:
		if at >= 0 {
			s.streams[at].window += int(f.Increment)
		} else if id == 0 {
			s.window += int(f.Increment)
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return s.framer.WritePing(true, f.Data)
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the server has reset stream %d: %v", id, f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server goes away: %v, %q", f.ErrCode, f.DebugData())
	}
	return nil
}

// credit counts n bytes of an answer's body. From half a window on it gives the server credit for them.
func (s *http2Session) credit(st *http2Stream, n int, ended bool) {
	if st.owed += n; st.owed >= s.ours/2 && !ended {
		s.framer.WriteWindowUpdate(st.id, uint32(st.owed))
		st.owed = 0
	}
	if s.owed += n; s.owed >= s.ours/2 {
		s.framer.WriteWindowUpdate(0, uint32(s.owed))
		s.owed = 0
	}
}

// ended removes the stream number at, whose answer is complete.
func (s *http2Session) ended(at int) error {
	st := &s.streams[at]
	switch {
	case !st.ok:
		return errors.New("a body without a header")
	case st.unsent > 0:
		return fmt.Errorf("stream %d was answered before its body was sent", st.id)
	}
	if s.record != nil {
		s.record(s.now.Sub(st.begun))
	}
	s.streams = slices.Delete(s.streams, at, at+1)
	return nil
}
