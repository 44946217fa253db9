package h2

import (
	"fmt"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet/frames"
)

// TestUpdatesOfMessages: clients may send a WINDOW_UPDATE of the stream, one of the connection and a
// PING for each short message that they get, whatever number of streams they have.
func TestUpdatesOfMessages(t *testing.T) {
	const message, messages, streams = "a message of 32 bytes, as events", 8000, 2
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(func(s *Stream, _ *Request) {
			err := s.Send(Message{Status: 200})
			for i := 1; i <= messages && err == nil; i++ {
				err = s.Send(Message{Body: []byte(message), End: i == messages})
			}
			if err != nil {
				t.Errorf("sending: %v", err)
			}
		}), Config{})
		p := f.peer().Request(1, true).Request(3, true).Flush()
		for ended := 0; ended < streams; {
			var id uint32
			line := p.Next()
			switch {
			case line == "end" || strings.HasPrefix(line, "goaway") || strings.HasPrefix(line, "error"):
				t.Fatalf("got %q", line)
			case strings.HasSuffix(line, " end"):
				ended++
			case strings.HasPrefix(line, "data "):
				if _, err := fmt.Sscanf(line, "data %d", &id); err != nil {
					t.Fatal(err)
				}
				p.Window(id, uint32(len(message))).Window(0, uint32(len(message)))
				p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush()
			}
		}
	})
}

// TestUploadsAreRefused: what clients send on streams that the server has reset is dropped. It resets no
// stream again, and the other streams go on.
func TestUploadsAreRefused(t *testing.T) {
	const uploads = 100
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			switch {
			case s.ID() == 1:
				echo(s, r)
			case s.ID()%4 == 1:
				s.Reset(Cancel) // as at a deadline
			default:
				_ = s.Send(Message{Status: 413, End: true})
			}
		}), Config{})
		p := f.peer().Request(1, false).Flush()
		p.Want("headers 1 :status=200")
		for i := range uint32(uploads) {
			p.Request(2*i+3, false)
		}
		p.Flush()
		for resets := 0; resets < uploads; {
			if strings.HasPrefix(p.Next(), "reset ") {
				resets++
			}
		}
		for i := range uint32(uploads) {
			id := 2*i + 3
			for range 100 {
				p.Data(id, "a part of the body", false)
			}
			p.Window(id, 100).Data(id, "", false).Reset(id, Cancel)
		}
		p.Data(1, "goes on", true).Flush().Want(`data 1 "goes on"`)
	})
}

// TestLongHeader: a header that is longer than a header may be, or has a value that is, ends no other
// stream.
func TestLongHeader(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			if r.Problem == TooLarge {
				_ = s.Send(Message{Status: 431, End: true})
				return
			}
			echo(s, r)
		}), Config{})
		p := f.peer().Request(1, false).Flush()
		p.Want("headers 1 :status=200")
		value := []byte{0x00, 1, 'x', 0x7f, 0xe1, 0x8e, 0x06} // 100,320 bytes
		value = append(value, make([]byte, 100_320)...)
		block := append([]byte{0x82, 0x86, 0x84}, value...)
		p.Frame(frames.Headers, frames.End, 3, block[:16384])
		for block = block[16384:]; len(block) > 16384; block = block[16384:] {
			p.Frame(9, 0, 3, block[:16384])
		}
		p.Frame(9, frames.EndHeaders, 3, block).Flush().Want("headers 3 :status=431 end")
		p.Data(1, "goes on", true).Flush().Want(`data 1 "goes on"`)
	})
}
