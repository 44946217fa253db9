package moving

import (
	"bufio"
	"bytes"
	"context"
	"encoding/asn1"
	"fmt"
	"io"
	"net"
	"net/http"
)

const (
	// requestMax is how long the header of an upgrade may be for its conversation to move.
	requestMax = 16 << 10

	// StateMax is how many bytes a [Saver] may return.
	StateMax = 32 << 10
)

// baggage is the state of a conversation that moves. All fields come from the client or the user.
type baggage struct {
	Version                      int
	Request                      []byte // see requestText
	Accept, Protocol, Extensions []byte // the agreement
	State                        []byte // the user's
}

// baggageVersion is the Version that this package knows.
const baggageVersion = 1

// encodeBaggage returns a baggage in DER, as it is sent. By requestMax, StateMax and answerMax it has
// at most handover.CarriedBytesMax bytes, unless the library has given a longer answer in another way:
// by an http.ResponseWriter, or in one Write.
func encodeBaggage(request []byte, agreed agreement, state []byte) []byte {
	p, err := asn1.Marshal(baggage{
		baggageVersion, request, []byte(agreed.accept), []byte(agreed.protocol), []byte(agreed.extensions), state,
	})
	if err != nil {
		panic(err) // which no bytes can cause
	}
	return p
}

// decodeBaggage is the inverse of encodeBaggage.
func decodeBaggage(p []byte) (b baggage, err error) {
	rest, err := asn1.Unmarshal(p, &b)
	if err != nil || len(rest) > 0 || b.Version != baggageVersion {
		return b, errBaggage
	}
	return b, nil
}

// errBaggage is about bytes that no encodeBaggage has made.
var errBaggage = fmt.Errorf("%w: its state can't be read, or is of another version", errAnswer)

// requestText returns the request line and the header of an upgrade, as the client has sent them except
// for the order of the fields. It returns nil if they are longer than requestMax, or can't be an upgrade
// of HTTP/1.1.
func requestText(r *http.Request) []byte {
	if r.Method != http.MethodGet || r.ProtoMajor != 1 || r.RequestURI == "" {
		return nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", r.RequestURI, r.Host)
	_ = r.Header.WriteSubset(&b, bodyFields) // to memory
	b.WriteString("\r\n")
	if b.Len() > requestMax {
		return nil
	}
	return bytes.Clone(b.Bytes()) // which has no room to spare
}

// bodyFields are about a body, which an upgrade doesn't have.
var bodyFields = map[string]bool{"Content-Length": true, "Transfer-Encoding": true, "Trailer": true, "Host": true}

// parseRequest is the inverse of requestText, for a request that came on nc.
func parseRequest(text []byte, nc net.Conn) (*http.Request, error) {
	if len(text) > requestMax {
		return nil, errBaggage
	}
	br := bufio.NewReader(bytes.NewReader(text))
	r, err := http.ReadRequest(br)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errBaggage, err)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		return nil, errBaggage
	}
	r.Body = http.NoBody
	r.RemoteAddr = nc.RemoteAddr().String()
	return r.WithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, nc.LocalAddr())), nil
}
