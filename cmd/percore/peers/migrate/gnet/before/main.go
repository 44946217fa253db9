// Command before answers frames, a length of four bytes and as many bytes, with gnet: it sends each
// frame back in upper case. For a frame that begins with a question mark it has to think.
//
//	go run ./migrate/gnet/before tcp localhost:7000
package main

import (
	"bytes"
	"encoding/binary"
	"log"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/pool/goroutine"
)

func main() {
	s := &server{workers: goroutine.Default()}
	log.Fatal(gnet.Run(s, os.Args[1]+"://"+os.Args[2], gnet.WithMulticore(true)))
}

const (
	headLen  = 4
	frameMax = 1 << 20
)

type server struct {
	gnet.BuiltinEventEngine
	workers *goroutine.Pool
}

func (s *server) OnTraffic(c gnet.Conn) gnet.Action {
	for {
		head, err := c.Peek(headLen)
		if err != nil {
			return gnet.None
		}
		n := int(binary.BigEndian.Uint32(head))
		if n > frameMax {
			return gnet.Close
		}
		frame, err := c.Peek(headLen + n)
		if err != nil {
			return gnet.None
		}
		s.answer(c, frame[headLen:])
		c.Discard(headLen + n)
	}
}

func (s *server) answer(c gnet.Conn, request []byte) {
	if !bytes.HasPrefix(request, []byte("?")) {
		c.Write(frame(bytes.ToUpper(request)))
		return
	}
	request = bytes.Clone(request)
	s.workers.Submit(func() {
		time.Sleep(10 * time.Millisecond)
		c.AsyncWrite(frame(bytes.ToUpper(request)), nil)
	})
}

// frame puts the length in front.
func frame(p []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}
