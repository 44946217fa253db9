package http2

import "github.com/percore/percore/internal/http2/hpack"

// A side is what a server does differently from a client. All other code is common to both, and does
// not ask which of them a connection is.
//
//	                       server                           client
//	hello                  announces Config.Streams         the preface; its SETTINGS_ENABLE_PUSH is 0
//	streams are opened     by a request that comes          by Begin, as far as Quota goes
//	headers                a request, then trailers         interim answers, an answer, then trailers
//	spendReset             RST_STREAM costs of              costs nothing: the client opened the stream
//	                       Config.Resets
//	goAway                 is answered with our own         no stream is opened any more; those that it
//	                                                        does not serve end with EndUnserved
//	ignores                frames behind our last GOAWAY    frames of a stream that was not opened, against
//	                                                        RFC 9113, as net/http does
//
// PUSH_PROMISE is an error of the connection from both. A server's SETTINGS_ENABLE_PUSH of 1 is ignored,
// as in net/http, against RFC 9113.
type side interface {
	// hello returns what comes before the first SETTINGS, and the setting that only this side sends.
	hello(cfg *Config) (preface string, id uint16, v uint32)

	// pseudo stores a pseudo-header field of the peer's header. It reports whether the field is allowed
	// and was not set before.
	pseudo(f *Frame, field *hpack.Field) bool

	ignores(c *Conn, f *Frame) bool               // whether a valid frame is dropped because of its stream
	headers(c *Conn, f *Frame, ev *Event) verdict // handles a header block
	goAway(c *Conn, f *Frame, ev *Event) verdict  // handles GOAWAY
	spendReset(c *Conn) verdict                   // the peer has reset a stream
	lastServed(c *Conn, coming bool) uint32       // for our GOAWAY; with coming, streams on their way are served, too

	// fails is called when a frame breaks a rule that resets its stream. It reports false if the stream
	// must not be reset: it was not opened, and RST_STREAM would end the connection.
	fails(c *Conn, f *Frame) bool
}

func (cfg *Config) side() side {
	if cfg.Client {
		return clientSide{}
	}
	return serverSide{}
}
