package wsadapter

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

// handshake watches a library write its answer to the connection.
type handshake struct {
	key     string // of the request
	head    []byte // of the answer, as far as it was written
	agreed  agreement
	swallow *agreement // not nil: the client has had the answer already, and must have had this one
	err     error      // why the answer was not understood; the bytes behind it are not looked at
}

// errAnswer is wrapped by the errors of a handshake that isn't as it should be.
var errAnswer = errors.New("wsadapter: the connection can't go on as it was")

// write notes bytes, and reports how many of them belong to the answer, and whether that is over. An
// answer that can't be understood is over, and nothing that follows belongs to it.
func (h *handshake) write(p []byte) (n int, done bool, err error) {
	if h.err != nil {
		return 0, true, h.err
	}
	defer func() {
		if done {
			h.head, h.err = nil, err
		}
	}()
	old := len(h.head)
	h.head = append(h.head, p...)
	end := bytes.Index(h.head, []byte("\r\n\r\n"))
	if end < 0 {
		if len(h.head) > answerMax {
			return len(p), true, fmt.Errorf("%w: the answer to the upgrade is too long", errAnswer)
		}
		return len(p), false, nil
	}
	end += len("\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(h.head[:end])), nil)
	if err == nil {
		err = h.answer(res.StatusCode, res.Header)
	} else {
		err = fmt.Errorf("%w: %v", errAnswer, err)
	}
	return end - old, true, err
}

// answer notes an answer, which a library may give through an http.ResponseWriter as well.
func (h *handshake) answer(status int, header http.Header) error {
	agreed, err := agreementOf(status, header, h.key)
	if err == nil && h.swallow != nil && agreed != *h.swallow {
		err = fmt.Errorf("protocol and extensions are %.100q, %.100q, and were %.100q, %.100q",
			agreed.protocol, agreed.extensions, h.swallow.protocol, h.swallow.extensions)
	}
	if err != nil {
		h.err = fmt.Errorf("%w: %w", errAnswer, err)
		return h.err
	}
	h.agreed = agreed
	return nil
}
