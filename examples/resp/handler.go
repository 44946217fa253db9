package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/percore/percore/adapters/reactor"
)

// handler serves the connections of one loop. Only one callback at a time uses its memory. A
// connection's context is the timer that runs while the client has much to read, else nil.
type handler struct {
	store    *store
	patience time.Duration // how long a client may take to read
	args     [][]byte      // of the command that is read
	answer   []byte        // for the commands of one call of Data
}

const (
	// answerMin is how long the answer of one call of Data gets before the rest of the commands is
	// left to the next call. The next call comes when the client has taken most of the answer. So a
	// client may send thousands of GETs at once, and only some answers are in memory.
	answerMin = 64 << 10

	// answerKept is the longest answer that the handler keeps the memory of.
	answerKept = 1 << 20

	// unsentMax is how many bytes of answers may wait for a client while its commands are read.
	unsentMax = 64 << 10
)

func (h *handler) Open(*reactor.Conn) {}

func (h *handler) Close(c *reactor.Conn, err error) { stopTimer(c) }

// Room is called when the client has read most of the answers that waited for it.
func (h *handler) Room(c *reactor.Conn) { stopTimer(c) }

func stopTimer(c *reactor.Conn) {
	if timer, ok := c.User().(reactor.Timer); ok {
		timer.Stop()
		c.SetUser(nil)
	}
}

// Data runs the commands that have arrived completely, or as many as make a long answer. It answers
// them with one Write.
func (h *handler) Data(c *reactor.Conn, p []byte) (used int) {
	h.answer = h.answer[:0]
	var err error
	for used < len(p) && err == nil && len(h.answer) < answerMin {
		var n int
		h.args, n, err = parse(p[used:], h.args[:0])
		if n == 0 {
			break
		}
		used += n
		if len(h.args) > 0 {
			h.run(h.args[0], h.args[1:])
		}
	}
	if err != nil {
		h.fail("ERR Protocol error: " + err.Error())
	}
	h.send(c)
	if err != nil {
		c.Close()
	}
	if cap(h.answer) > answerKept {
		h.answer = nil
	}
	return used
}

// send sends the answers. While they wait no more commands are read, and Room comes later. A client
// that doesn't read them loses the connection.
func (h *handler) send(c *reactor.Conn) {
	if _, err := c.Write(h.answer); err != nil {
		c.Abort()
		return
	}
	if c.Unsent() > unsentMax && c.User() == nil {
		c.SetUser(c.After(h.patience, func() { c.Abort() }))
	}
}

// run appends the answer to a command.
func (h *handler) run(name []byte, args [][]byte) {
	switch string(upper(name)) { // this allocates nothing
	case "GET":
		if h.want(name, args, 1) {
			h.answer = h.store.appendValue(h.answer, args[0])
		}
	case "SET":
		if h.want(name, args, 2) {
			h.store.set(args[0], args[1])
			h.simple("OK")
		}
	case "DEL":
		h.integer(int64(h.store.remove(args)))
	case "INCR":
		if h.want(name, args, 1) {
			switch n, err := h.store.increment(args[0]); {
			case errors.Is(err, strconv.ErrSyntax), errors.Is(err, strconv.ErrRange):
				h.fail("ERR value is not an integer or out of range")
			default:
				h.integer(n)
			}
		}
	case "PING":
		if len(args) == 1 {
			h.answer = appendBulk(h.answer, args[0])
		} else {
			h.simple("PONG")
		}
	case "COMMAND": // redis-cli asks which commands there are
		h.answer = append(h.answer, "*0\r\n"...)
	default:
		h.fail("ERR unknown command '" + printable(name) + "'")
	}
}

// want reports whether a command has enough arguments, and sends an error if not.
func (h *handler) want(name []byte, args [][]byte, n int) bool {
	if len(args) != n {
		h.fail("ERR wrong number of arguments for '" + printable(name) + "' command")
	}
	return len(args) == n
}

func (h *handler) simple(s string) {
	h.answer = append(append(append(h.answer, '+'), s...), "\r\n"...)
}

func (h *handler) fail(s string) {
	h.answer = append(append(append(h.answer, '-'), s...), "\r\n"...)
}

func (h *handler) integer(n int64) {
	h.answer = append(strconv.AppendInt(append(h.answer, ':'), n, 10), "\r\n"...)
}
