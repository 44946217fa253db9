package load

import (
	"bytes"
	"errors"
	"fmt"
)

var errAnswers = errors.New("the answers differ from what was set")

// respOpener's sessions send commands for a key-value server together, half of them SET and half
// GET, and read their answers.
func respOpener(job Job) (opener, error) {
	if job.Payload <= 0 || job.Pipeline < 2 {
		return nil, errors.New("a load of commands needs a payload, and a pipeline of two")
	}
	value := bytes.Repeat([]byte("v"), job.Payload)
	return func(i int) (session, error) {
		c, err := dial(job.Addr)
		if err != nil {
			return nil, err
		}
		s := &exchange{conn: c, name: "answers", wrong: errAnswers}
		for n := range job.Pipeline / 2 {
			key := fmt.Sprintf("key:%08d:%03d", i, n) // which no other session has
			s.send = fmt.Appendf(s.send, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
			s.send = fmt.Appendf(s.send, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
			s.want = fmt.Appendf(s.want, "+OK\r\n$%d\r\n%s\r\n", len(value), value)
		}
		s.buf = make([]byte, len(s.want))
		return s, nil
	}, nil
}
