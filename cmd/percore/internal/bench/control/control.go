// Package control is the line protocol between the benchmark harness and the two processes it
// starts. The harness sends one JSON request per line on the child's standard input. The child
// sends one JSON reply per line on its standard output. They strictly alternate.
//
// It uses pipes and not sockets, so that the channel can't disturb the measurement: it is silent
// during a measured window. Besides, a child whose parent has died for any reason reads end-of-file
// and ends.
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

// reply is one line from a child to the harness. Exactly one of Error and Body is set.
type reply struct {
	Error string          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// RemoteError is returned when a child answers with an error. Message is the child's text without
// any prefix.
type RemoteError struct{ Message string }

// Error returns the message.
func (e *RemoteError) Error() string { return e.Message }

// Handler answers one request. The value it returns is sent as JSON. If it returns an error, the
// text of the error is sent.
type Handler func(op string, body json.RawMessage) (any, error)

// With answers a request by calling f with what its body says.
func With[T, R any](body json.RawMessage, f func(T) (R, error)) (any, error) {
	var in T
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	return f(in)
}

// Do is With for requests that have no reply.
func Do[T any](body json.RawMessage, f func(T) error) (any, error) {
	return With(body, func(in T) (any, error) { return nil, f(in) })
}

// Serve reads requests from r and answers each with handle until r ends. It returns nil at
// end-of-file: the harness closes the pipe to make a child end.
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

// answer runs handle and encodes its result.
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

// Client is the harness's end of the channel. It is not safe for concurrent use: requests and
// replies alternate.
type Client struct {
	enc *json.Encoder
	dec *json.Decoder
}

// NewClient returns a Client that writes requests to w and reads replies from r.
func NewClient(r io.Reader, w io.Writer) *Client {
	return &Client{enc: json.NewEncoder(w), dec: json.NewDecoder(bufio.NewReader(r))}
}

// Call sends op with in (nil to send nothing) and stores the reply's body in out (nil to ignore
// it). It blocks until the reply arrives or a pipe fails. An error of type *RemoteError is the
// child's answer. Any other error means that the channel is broken and the child is lost.
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
