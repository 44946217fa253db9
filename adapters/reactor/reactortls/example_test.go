package reactortls_test

import (
	"crypto/tls"
	"log"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/adapters/reactor/reactortls"
)

// A handler's connections become TLS by an option.
func Example() {
	certificate, err := tls.LoadX509KeyPair("cert.pem", "key.pem")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := percore.Listen("tcp", ":8443")
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	log.Fatal(reactor.Serve(ln, echo{}, reactor.Config{
		TLS: reactortls.Server(config, reactortls.Limits{}),
	}))
}

type echo struct{}

func (echo) Open(c *reactor.Conn)             {}
func (echo) Close(c *reactor.Conn, err error) {}

func (echo) Data(c *reactor.Conn, p []byte) (used int) {
	c.Write(p)
	return len(p)
}
