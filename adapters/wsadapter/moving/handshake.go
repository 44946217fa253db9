package moving

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// agreement is what client and server have agreed on in the handshake (RFC 6455, section 4.2.2).
type agreement struct {
	protocol   string // Sec-WebSocket-Protocol
	extensions string // Sec-WebSocket-Extensions
}

// agreementOf returns what an answer says. It fails if that doesn't accept the request's key.
func agreementOf(status int, header http.Header, key string) (agreement, error) {
	if status != http.StatusSwitchingProtocols {
		return agreement{}, fmt.Errorf("the library answers the upgrade with status %d", status)
	}
	if got, want := header.Get("Sec-WebSocket-Accept"), acceptOf(key); got != want {
		return agreement{}, fmt.Errorf("the library answers the upgrade with the key %.40q, want %q", got, want)
	}
	return agreement{
		protocol:   strings.Join(header.Values("Sec-WebSocket-Protocol"), ", "),
		extensions: strings.Join(header.Values("Sec-WebSocket-Extensions"), ", "),
	}, nil
}

// acceptOf returns the answer to a client's key (RFC 6455, section 1.3).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(strings.TrimSpace(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// isStateless reports whether no extension keeps state from one message to the next: there is none, or
// only permessage-deflate without context takeover in either direction (RFC 7692, section 7.1.1).
func (a agreement) isStateless() bool {
	if a.extensions == "" {
		return true
	}
	for extension := range strings.SplitSeq(a.extensions, ",") {
		params := strings.Split(strings.ToLower(extension), ";")
		for i := range params {
			params[i] = strings.TrimSpace(params[i])
		}
		if params[0] != "permessage-deflate" || !slices.Contains(params, "server_no_context_takeover") ||
			!slices.Contains(params, "client_no_context_takeover") {
			return false
		}
	}
	return true
}

// answerMax is how long the header of an answer may be that a library writes itself.
const answerMax = 8 << 10

// handshake is what a conversation has until the library has answered the upgrade.
type handshake struct {
	key  string     // of the request
	head []byte     // of the answer, as far as it was written
	had  *agreement // not nil: the client has had the answer already, and must have had this one
	err  error      // why the answer was not understood; the bytes behind it are not looked at
}

func handshakeOf(r *http.Request) *handshake {
	return &handshake{key: r.Header.Get("Sec-WebSocket-Key")}
}

// errAnswer is wrapped by the errors of a conversation that isn't as it was in the other process.
var errAnswer = errors.New("wsadapter: the connection can't go on as it was")

// shake notes bytes that a library writes, and returns how many of them belong to its answer. An answer
// that can't be understood is over, and nothing that follows belongs to it. The gate is held.
func (c *conn) shake(p []byte) int {
	h := c.shaking
	if h.err != nil {
		return 0
	}
	h.head = append(h.head, p...)
	head, rest, whole := bytes.Cut(h.head, []byte("\r\n\r\n"))
	if !whole && len(head) <= answerMax {
		return len(p)
	}
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(h.head)), nil)
	if err != nil { // io.ErrUnexpectedEOF if it is too long
		h.err = fmt.Errorf("%w: %w", errAnswer, err)
	} else {
		c.answerLocked(res.StatusCode, res.Header)
	}
	return len(p) - len(rest)
}

// answer notes an answer that a library gives through an http.ResponseWriter.
func (c *conn) answer(status int, header http.Header) {
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.shaking != nil && status == http.StatusSwitchingProtocols {
		c.answerLocked(status, header)
	}
}

func (c *conn) answerLocked(status int, header http.Header) {
	h := c.shaking
	agreed, err := agreementOf(status, header, h.key)
	if err == nil && h.had != nil && agreed != *h.had {
		err = fmt.Errorf("protocol and extensions are %.100q, and were %.100q", agreed, *h.had)
	}
	if err != nil {
		h.err = fmt.Errorf("%w: %w", errAnswer, err)
		return
	}
	c.shaking, c.agreed = nil, agreed
}

// wrongAnswer returns why the answer is not the one that the client has had, or nil.
func (c *conn) wrongAnswer() error {
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.shaking == nil {
		return nil
	}
	return c.shaking.err
}
