// Command after answers frames, a length of four bytes and as many bytes, with package reactor: it
// sends each frame back in upper case. For a frame that begins with a question mark it has to think.
//
//	go run ./migrate/gnet/after -addr localhost:7000
package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"log"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

func main() {
	network := flag.String("network", "tcp", "tcp or unix")
	address := flag.String("addr", "localhost:7000", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen(*network, *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(reactor.Serve(ln, &server{}, reactor.ReadBufferMax(headLen+frameMax)))
}

const (
	headLen  = 4
	frameMax = 1 << 20
)

type server struct{}

// session is what the server knows of a connection.
type session struct{ frames int }

func (s *server) Open(c *reactor.Conn) { c.SetContext(new(session)) }

func (s *server) Close(c *reactor.Conn, err error) {
	log.Printf("%d frames, %v", c.Context().(*session).frames, err)
}

func (s *server) Data(c *reactor.Conn, p []byte) (used int) {
	if len(p) < headLen {
		return 0
	}
	n := int(binary.BigEndian.Uint32(p))
	if n > frameMax {
		c.Abort()
		return 0
	}
	if len(p) < headLen+n {
		return 0
	}
	s.answer(c, p[headLen:][:n])
	return headLen + n
}

func (s *server) answer(c *reactor.Conn, request []byte) {
	c.Context().(*session).frames++
	if !bytes.HasPrefix(request, []byte("?")) {
		c.Write(frame(bytes.ToUpper(request)))
		return
	}
	request = bytes.Clone(request)
	c.Go(func() {
		time.Sleep(10 * time.Millisecond)
		c.Write(frame(bytes.ToUpper(request)))
	})
}

// frame puts the length in front.
func frame(p []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}
