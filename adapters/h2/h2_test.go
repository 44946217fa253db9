package h2

import (
	"fmt"
	"io"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// hello answers by a short body.
func hello(s *Stream, _ *Request) {
	_ = s.Send(Message{Status: 200, Fields: []Field{MakeField("content-type", "text/plain")}, Body: []byte("Hello, World!"), End: true, Hold: true})
}

// helloTo returns the frames of hello's answer.
func helloTo(id uint32) []string {
	return []string{fmt.Sprintf("headers %d :status=200 content-type=text/plain", id), fmt.Sprintf(`data %d "Hello, World!" end`, id)}
}

// echo sends the body back, and the trailers.
func echo(s *Stream, r *Request) {
	if err := s.Send(Message{Status: 200}); err != nil {
		return
	}
	if _, err := io.Copy(s, s); err != nil {
		s.Reset(InternalError)
		return
	}
	m := Message{End: true, Hold: true}
	if t := s.Trailers(); len(t) > 0 {
		m.Trailers = t
	}
	_ = s.Send(m)
}

// TestFrames plays frames that show who waits for whom.
func TestFrames(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(echo), Config{})
		p := f.peer()
		p.Request(1, true).Flush().Want("headers 1 :status=200", `data 1 "" end`)
		p.Request(3, false).Data(3, "abc", false).Flush().Want("headers 3 :status=200", `data 3 "abc"`)
		p.Data(3, "def", false).Flush().Want(`data 3 "def"`)
		p.Frame(frames.Ping, 0, 0, []byte("12345678")).Flush().Want("pong 3132333435363738")
		p.Headers(3, true, "x-a", "b").Flush().Want("headers 3 x-a=b end")
		p.Request(5, true, "connection", "close").Flush().Want("headers 5 :status=400", "reset 5 PROTOCOL_ERROR")
		p.Request(7, true, "content-length", "1").Flush().Want("reset 7 PROTOCOL_ERROR")
		p.Frame(frames.Data, 0, 0, nil).Flush().Want("goaway 7 PROTOCOL_ERROR", "end")
	})
}

// TestShutdown: streams that are open are served, the client is told by two GOAWAYs, and the
// connection ends.
func TestShutdown(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		begun := make(chan bool)
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			if r.Path == "/" {
				begun <- true
			}
			echo(s, r)
		}), Config{})
		p := f.peer()
		p.Request(1, false).Flush()
		testnet.Receive(t, "the handler's begin", begun)
		p.Want("headers 1 :status=200")
		done := make(chan bool)
		go func() { f.shutdown(); close(done) }()
		p.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR")
		p.Data(1, "late", true).Flush().Want(`data 1 "late"`, `data 1 "" end`, "end")
		p.Conn.Close()
		testnet.Receive(t, "Shutdown's return", done)
	})
}
