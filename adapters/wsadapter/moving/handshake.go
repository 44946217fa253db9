package moving

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// agreement is what a library's answer has said in the handshake (RFC 6455, section 4.2.2).
type agreement struct {
	accept     string // Sec-WebSocket-Accept
	protocol   string // Sec-WebSocket-Protocol
	extensions string // Sec-WebSocket-Extensions
}

// isStateless reports whether no extension keeps state from one message to the next: there is none, or
// only permessage-deflate without context takeover in either direction (RFC 7692, section 7.1.1).
func (a agreement) isStateless() bool {
	if a.extensions == "" {
		return true
	}
	for extension := range strings.SplitSeq(a.extensions, ",") {
		params := strings.FieldsFunc(strings.ToLower(extension), func(r rune) bool { return strings.ContainsRune("; \t", r) })
		if len(params) == 0 || params[0] != "permessage-deflate" || !slices.Contains(params, "server_no_context_takeover") ||
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
	head []byte     // of the answer, as far as it was written
	had  *agreement // not nil: the client has had the answer already, and must have had this one
	err  error      // why the answer was not understood; the bytes behind it are not looked at
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
	h.head = nil
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
	agreed := agreement{
		accept:     header.Get("Sec-WebSocket-Accept"),
		protocol:   strings.Join(header.Values("Sec-WebSocket-Protocol"), ", "),
		extensions: strings.Join(header.Values("Sec-WebSocket-Extensions"), ", "),
	}
	switch {
	case status != http.StatusSwitchingProtocols:
		h.err = fmt.Errorf("%w: the library answers the upgrade with status %d", errAnswer, status)
	case h.had != nil && agreed != *h.had:
		h.err = fmt.Errorf("%w: key, protocol and extensions are %.100q, and were %.100q", errAnswer, agreed, *h.had)
	default:
		c.shaking, c.agreed = nil, agreed
	}
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
