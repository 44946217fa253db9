package sse

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// An Event is what a client gets. Fields that are zero are left out.
type Event struct {
	// Type is the name under which the client's listeners are registered: "message".
	Type string

	// Data is what the client gets, with one exception: the format can't send a CR, so CR LF and CR arrive
	// as LF. It is UTF-8; the client replaces other bytes. An Event without Data reaches no listener.
	Data string

	// ID is what the client sends as Last-Event-ID when it comes back.
	ID string

	// Retry is how long the client waits before it comes back. It is rounded down to milliseconds.
	Retry time.Duration
}

// errLine is for a one-line field with several lines.
var errLine = errors.New("sse: an Event's Type and ID must not have line ends, nor its ID a NUL")

// Append appends the bytes of an event (WHATWG HTML, section 9.2.5), for a program that has a client's
// answer without a Hub. It fails if the Type or the ID isn't valid.
func (e Event) Append(b []byte) ([]byte, error) {
	if strings.ContainsAny(e.Type, "\r\n") || strings.ContainsAny(e.ID, "\r\n\x00") {
		return b, errLine
	}
	if e.Retry > 0 {
		b = append(b, "retry: "...)
		b = strconv.AppendInt(b, e.Retry.Milliseconds(), 10)
		b = append(b, '\n')
	}
	b = appendField(b, "id: ", e.ID)
	b = appendField(b, "event: ", e.Type)
	for rest, more := e.Data, e.Data != ""; more; {
		var line string
		line, rest, more = cutLine(rest)
		b = append(append(append(b, "data: "...), line...), '\n')
	}
	return append(b, '\n'), nil
}

// cutLine returns the first line, and what follows its end. A line end at the end of s is followed by
// an empty line: a client adds LF to each line that it gets, and drops only the last.
func cutLine(s string) (line, rest string, ended bool) {
	i := strings.IndexAny(s, "\r\n")
	if i < 0 {
		return s, "", false
	}
	line, rest = s[:i], s[i+1:]
	if s[i] == '\r' {
		rest = strings.TrimPrefix(rest, "\n")
	}
	return line, rest, true
}

func appendField(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return append(append(append(b, name...), value...), '\n')
}
