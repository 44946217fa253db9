// Package control is the line protocol between the benchmark harness and the
// two processes it starts: one JSON request per line on the child's standard
// input, one JSON reply per line on its standard output, strictly in turn.
//
// A pipe is used rather than a socket so that the channel cannot disturb the measurement (it is
// silent during a measured window) and so that a child whose parent has died, however it died,
// reads end-of-file and goes away.
package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// request is one line from the harness to a child.
type request struct {
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body,omitempty"`
}

// reply is one line from a child to the harness. Exactly one of Error and Body
// is meaningful.
type reply struct {
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// RemoteError is a child's answer in place of a result. Its text is the child's
// own, without any prefix.
type RemoteError struct{ Message string }

// Error returns the message.
func (e *RemoteError) Error() string { return e.Message }

// Handler answers one request. The value it returns is sent as JSON; an error
// is sent as its text.
type Handler func(op string, body json.RawMessage) (any, error)

// Serve reads requests from r and answers each through handle until r ends. It
// returns nil at end-of-file: the harness closing the pipe is how a child is
// told to leave.
func Serve(r io.Reader, w io.Writer, handle Handler) error {
	dec := json.NewDecoder(bufio.NewReader(r))
	enc := json.NewEncoder(w)
	for {
		var req request
		if err := dec.Decode(&req); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read request: %w", err)
		}
		if err := enc.Encode(answer(handle, req)); err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
	}
}

// answer runs handle and packs its result.
func answer(handle Handler, req request) reply {
	v, err := handle(req.Op, req.Body)
	if err != nil {
		return reply{Error: err.Error()}
	}
	body, err := json.Marshal(v)
	if err != nil {
		return reply{Error: fmt.Sprintf("encode reply to %q: %v", req.Op, err)}
	}
	return reply{Body: body}
}

// Client is the harness's end. It is not safe for concurrent use: requests and
// replies alternate.
type Client struct {
	enc *json.Encoder
	dec *json.Decoder
}

// NewClient returns a Client that writes requests to w and reads replies from r.
func NewClient(r io.Reader, w io.Writer) *Client {
	return &Client{enc: json.NewEncoder(w), dec: json.NewDecoder(bufio.NewReader(r))}
}

// Call sends op with in (nil for none) and stores the reply's body in out
// (nil to drop it). It blocks until the reply is there or a pipe fails. An
// error of type *RemoteError is the child's answer; any other means that the
// channel is broken and the child is lost.
func (c *Client) Call(op string, in, out any) error {
	req := request{Op: op}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request %q: %w", op, err)
		}
		req.Body = body
	}
	if err := c.enc.Encode(req); err != nil {
		return err
	}
	var rep reply
	if err := c.dec.Decode(&rep); err != nil {
		return err
	}
	if rep.Error != "" {
		return &RemoteError{rep.Error}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(rep.Body, out)
}
