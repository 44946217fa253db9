package main

import (
	"bytes"
	"errors"
	"strconv"
)

// Limits of a command, so that no peer makes the server keep more for it. A command whose parts are
// within the limits also ends the connection if it is longer than ReadBufferMax in total.
const (
	argsMax   = 1024
	bulkMax   = 512 << 10
	lineMax   = 64 << 10 // of a command in one line, without lengths
	numberMax = 20       // digits of a length
)

var (
	errNumber = errors.New("invalid length")
	errBulk   = errors.New("expected a bulk string")
	errLong   = errors.New("too big inline request")
)

// parse reads the command at the start of p. It is an array of bulk strings,
// "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", or words in a line
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). It appends the parts, which are
// slices of p, to args. It returns the command's length, or 0 if the command is incomplete.
func parse(p []byte, args [][]byte) (_ [][]byte, n int, err error) {
	if p[0] != '*' {
		return parseLine(p, args)
	}
	count, n, err := number(p, argsMax)
	if n == 0 || err != nil {
		return args, 0, err
	}
	for range count {
		if n == len(p) {
			return args, 0, nil
		}
		if p[n] != '$' {
			return args, 0, errBulk
		}
		length, m, err := number(p[n:], bulkMax)
		if m == 0 || err != nil {
			return args, 0, err
		}
		n += m
		if len(p)-n < length+2 {
			return args, 0, nil
		}
		if p[n+length] != '\r' || p[n+length+1] != '\n' {
			return args, 0, errBulk
		}
		args = append(args, p[n:n+length])
		n += length + 2
	}
	return args, n, nil
}

// number reads the line at the start of p, a mark and a number from 0 to limit. n is its length, or
// 0 if the line is incomplete.
func number(p []byte, limit int) (value, n int, err error) {
	end := bytes.IndexByte(p[:min(len(p), numberMax+3)], '\n')
	switch {
	case end < 0 && len(p) < numberMax+3:
		return 0, 0, nil
	case end < 3 || p[end-1] != '\r':
		return 0, 0, errNumber
	}
	for _, c := range p[1 : end-1] {
		if c < '0' || c > '9' {
			return 0, 0, errNumber
		}
		if value = value*10 + int(c-'0'); value > limit {
			return 0, 0, errNumber
		}
	}
	return value, end + 1, nil
}

// parseLine reads a command of words between spaces.
func parseLine(p []byte, args [][]byte) ([][]byte, int, error) {
	end := bytes.IndexByte(p, '\n')
	switch {
	case end < 0 && len(p) <= lineMax:
		return args, 0, nil
	case end < 0 || end > lineMax:
		return args, 0, errLong
	}
	return append(args, bytes.Fields(p[:end])...), end + 1, nil
}

// appendBulk appends a bulk string.
func appendBulk(b, value []byte) []byte {
	b = strconv.AppendInt(append(b, '$'), int64(len(value)), 10)
	return append(append(append(b, "\r\n"...), value...), "\r\n"...)
}

// upper changes the letters of a command's name to upper case, in place.
func upper(name []byte) []byte {
	for i, c := range name {
		if 'a' <= c && c <= 'z' {
			name[i] = c - 'a' + 'A'
		}
	}
	return name
}

// printable returns a name in a form that is allowed in an answer of one line.
func printable(name []byte) string {
	return strconv.QuoteToASCII(string(name[:min(len(name), 64)]))
}
