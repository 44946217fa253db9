package moving

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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
	request []byte // see requestText
	agreed  agreement
	state   []byte // the user's
}

// baggageVersion is the first byte of an encoded baggage.
const baggageVersion = 1

// encode returns the baggage as it is sent: the version, and each part after its length. By requestMax,
// StateMax and answerMax it has at most handover.CarriedBytesMax bytes, unless the library has given a
// longer answer in another way: by an http.ResponseWriter, or in one Write.
func (b *baggage) encode() []byte {
	p := []byte{baggageVersion}
	for _, part := range [][]byte{b.request, []byte(b.agreed.protocol), []byte(b.agreed.extensions), b.state} {
		p = binary.AppendUvarint(p, uint64(len(part)))
		p = append(p, part...)
	}
	return p
}

// errBaggage is about bytes that encode hasn't made.
var errBaggage = errors.New("wsadapter: the state of a connection can't be read")

// decodeBaggage is the inverse of encode. The parts refer to p.
func decodeBaggage(p []byte) (b baggage, err error) {
	if len(p) == 0 || p[0] != baggageVersion {
		return b, fmt.Errorf("%w: it is of another version", errBaggage)
	}
	var parts [4][]byte
	p = p[1:]
	for i := range parts {
		n, width := binary.Uvarint(p)
		if width <= 0 || n > uint64(len(p)-width) {
			return b, errBaggage
		}
		p = p[width:]
		parts[i], p = p[:n:n], p[n:]
	}
	if len(p) > 0 {
		return b, errBaggage
	}
	return baggage{parts[0], agreement{string(parts[1]), string(parts[2])}, parts[3]}, nil
}

// requestText returns the request line and the header of an upgrade, as the client has sent them except
// for the order of the fields. It returns nil if they are longer than requestMax, or can't be an upgrade
// of HTTP/1.1.
func requestText(r *http.Request) []byte {
	if r.Method != http.MethodGet || r.ProtoMajor != 1 || r.RequestURI == "" {
		return nil
	}
	size := len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	const around = len("GET  HTTP/1.1\r\nHost: \r\n\r\n")
	if size += around; size > requestMax {
		return nil
	}
	var b bytes.Buffer
	b.Grow(size)
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", r.RequestURI, r.Host)
	_ = r.Header.WriteSubset(&b, bodyFields) // to memory
	b.WriteString("\r\n")
	return b.Bytes()
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
