package h2

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestReadFull: ReadFull returns what has come, and why it isn't more. Then the memory is the handler's
// again: nothing that comes later is written there.
func TestReadFull(t *testing.T) {
	const room = 5000
	var streamError *StreamError
	for _, tt := range []struct {
		name   string
		length string // content-length
		body   int    // bytes, besides one that the handler has read before
		end    bool   // the client ends the stream
		reset  bool
		once   bool // Read instead of ReadFull
		act    func(*Stream)
		want   func(error) bool
	}{
		{name: "all", body: room, want: func(err error) bool { return err == nil }},
		{name: "more", body: room + 1, want: func(err error) bool { return err == nil }},
		{name: "all and the end", body: room, end: true, want: func(err error) bool { return err == nil }},
		{name: "the end", end: true, want: func(err error) bool { return err == io.EOF }},
		{name: "the end within", body: room - 1, end: true, want: func(err error) bool { return err == io.ErrUnexpectedEOF }},
		{name: "Read", body: 100, once: true, want: func(err error) bool { return err == nil }},
		{name: "a short body", length: "9000", body: 100, end: true, want: func(err error) bool { return err == ErrShortBody }},
		{name: "a reset", body: 100, reset: true, want: func(err error) bool { return errors.As(err, &streamError) && streamError.Remote }},
		{name: "CloseRead", body: 100, act: (*Stream).CloseRead, want: func(err error) bool { return err == ErrEnded }},
		{name: "a deadline", body: 100, act: func(s *Stream) { _ = s.SetReadDeadline(time.Now().Add(-time.Second)) },
			want: func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }},
		{name: "Reset", body: 100, act: func(s *Stream) { s.Reset(Cancel) },
			want: func(err error) bool { return errors.As(err, &streamError) && !streamError.Remote }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
				type result struct {
					n   int
					err error
				}
				begun, read, goOn := make(chan *Stream, 1), make(chan result, 1), make(chan bool)
				p := make([]byte, room)
				f := start(HandlerFunc(func(s *Stream, r *Request) {
					_, _ = s.Read(make([]byte, 1))
					begun <- s
					fill := s.ReadFull
					if tt.once {
						fill = s.Read
					}
					n, err := fill(p)
					read <- result{n, err}
					<-goOn
				}), Config{})
				defer close(goOn)
				peer := f.peer()
				fields := []string{":method", "POST", ":scheme", "http", ":path", "/", ":authority", "h"}
				if tt.length != "" {
					fields = append(fields, "content-length", tt.length)
				}
				peer.Headers(1, false, fields...).Data(1, "x", false).Flush()
				s := testnet.Receive(t, "the handler's begin", begun)
				body := string(pattern(1, 0, tt.body))
				for i := 0; i < len(body); i += 700 {
					peer.Data(1, body[i:min(i+700, len(body))], false).Flush()
				}
				switch {
				case tt.end:
					peer.Data(1, "", true).Flush()
				case tt.reset:
					peer.Reset(1, Cancel).Flush()
				case tt.act != nil:
					peer.Frame(6, 0, 0, make([]byte, 8)).Flush()
					for line := peer.Next(); !strings.HasPrefix(line, "pong"); line = peer.Next() { // the body has come
					}
					testnet.Eventually(t, "ReadFull taking what has come", func() bool { return s.Buffered() == 0 })
					tt.act(s)
				}
				got := testnet.Receive(t, "ReadFull's return", read)
				if !tt.want(got.err) || got.n > min(room, tt.body) || got.n < min(room, tt.body) && !tt.reset && !tt.once || got.err == nil && got.n == 0 {
					t.Errorf("got %d bytes of %d, and %v", got.n, tt.body, got.err)
				}
				want := append(pattern(1, 0, got.n), make([]byte, room-got.n)...)
				if !tt.end && !tt.reset {
					peer.Data(1, strings.Repeat("later", 100), false).Frame(6, 0, 0, make([]byte, 8)).Flush()
					for line := peer.Next(); !strings.HasPrefix(line, "pong"); line = peer.Next() {
					}
				}
				if !bytes.Equal(p, want) {
					t.Errorf("the memory has %d bytes that were not read, or others", room-got.n)
				}
			})
		})
	}
}
