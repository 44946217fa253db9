// Command after answers frames, a length of four bytes and as many bytes, with package reactor: it
// sends each frame back in upper case. For a frame that begins with a question mark it has to think.
//
//	go run ./migrate/gnet/after tcp localhost:7000
package main

import (
	"bytes"
	"encoding/binary"
	"log"
	"os"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/adapters/reactor/frame"
)

func main() {
	ln, err := percore.Listen(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(reactor.Serve(ln, &server{}, reactor.Config{ReadBufferMax: headLen + frameMax, WaitingMax: thinkingMax}))
}

const (
	headLen  = 4
	frameMax = 1 << 20

	thinkingMax = 4 // frames of a connection that wait to be thought about
)

var format = frame.Prefix{Bytes: headLen, Limit: frameMax}

type server struct{}

func (s *server) Open(*reactor.Conn)         {}
func (s *server) Close(*reactor.Conn, error) {}

func (s *server) Data(c *reactor.Conn, p []byte) (used int) {
	request, used, err := format.Next(p)
	switch {
	case err != nil:
		c.Abort()
	case used > 0:
		s.answer(c, request)
	}
	return used
}

func (s *server) answer(c *reactor.Conn, request []byte) {
	if !bytes.HasPrefix(request, []byte("?")) {
		c.Write(framed(bytes.ToUpper(request)))
		return
	}
	request = bytes.Clone(request)
	c.Go(func() {
		time.Sleep(10 * time.Millisecond)
		c.Write(framed(bytes.ToUpper(request)))
	})
}

// framed puts the length in front.
func framed(p []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}
