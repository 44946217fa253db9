package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// sentinels are the errors that callers look for with errors.Is.
var sentinels = []struct {
	name string
	err  error
}{
	{"net.ErrClosed", net.ErrClosed},
	{"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded},
	{"context.Canceled", context.Canceled},
	{"context.DeadlineExceeded", context.DeadlineExceeded},
	{"io.EOF", io.EOF},
	{"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF},
	{"io.ErrShortWrite", io.ErrShortWrite},
	{"os.ErrClosed", os.ErrClosed},
	{"fs.ErrNotExist", fs.ErrNotExist},
	{"fs.ErrExist", fs.ErrExist},
	{"fs.ErrPermission", fs.ErrPermission},
	{"EPIPE", syscall.EPIPE},
	{"ECONNRESET", syscall.ECONNRESET},
	{"ECONNREFUSED", syscall.ECONNREFUSED},
	{"ENOTCONN", syscall.ENOTCONN},
	{"EADDRINUSE", syscall.EADDRINUSE},
	{"EADDRNOTAVAIL", syscall.EADDRNOTAVAIL},
	{"EINVAL", syscall.EINVAL},
	{"EMFILE", syscall.EMFILE},
}

// describeError renders everything that a caller can learn from an error: the type and fields of
// each layer, the text, its identity and its classification.
func describeError(err error) string {
	if err == nil {
		return "nil"
	}
	if err == io.EOF {
		return "io.EOF"
	}
	var layers, is []string
	for e := err; e != nil; e = errors.Unwrap(e) {
		layers = append(layers, describeLayer(e))
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			is = append(is, s.name)
		}
	}
	return fmt.Sprintf("%s text=%q is=%v%s", strings.Join(layers, " > "), err, is, describeClass(err))
}

// describeLayer renders one error of a chain, without the errors it wraps.
func describeLayer(err error) string {
	for _, s := range sentinels {
		if err == s.err {
			return s.name
		}
	}
	switch e := err.(type) {
	case *net.OpError:
		return fmt.Sprintf("OpError{%q %q %s %s}", e.Op, e.Net, describeAddr(e.Source), describeAddr(e.Addr))
	case *os.SyscallError:
		return fmt.Sprintf("SyscallError{%q}", e.Syscall)
	case *fs.PathError:
		return fmt.Sprintf("PathError{%q %q}", e.Op, e.Path)
	case syscall.Errno:
		return fmt.Sprintf("Errno(%d)", int(e))
	case *net.AddrError:
		return fmt.Sprintf("AddrError%+v", *e)
	case *net.DNSError:
		return fmt.Sprintf("DNSError%+v", *e)
	case *net.ParseError:
		return fmt.Sprintf("ParseError%+v", *e)
	}
	return fmt.Sprintf("%T(%q)", err, err)
}

// describeClass renders the results of net.Error's methods, if err has them.
func describeClass(err error) string {
	var b strings.Builder
	if e, ok := err.(interface{ Timeout() bool }); ok {
		fmt.Fprintf(&b, " timeout=%t", e.Timeout())
	}
	if e, ok := err.(interface{ Temporary() bool }); ok {
		fmt.Fprintf(&b, " temporary=%t", e.Temporary())
	}
	return b.String()
}

// describeAddr renders an address with its type, and tells a nil interface from a nil pointer in one.
func describeAddr(addr net.Addr) string {
	if addr == nil {
		return "nil"
	}
	return fmt.Sprintf("%s(%s %s)", strings.TrimPrefix(fmt.Sprintf("%T", addr), "*net."), addr.Network(), addr)
}

// TestDescribeErrorTellsApart checks the checker: each of these errors differs
// from all the others in something a caller could rely on.
func TestDescribeErrorTellsApart(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	other := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}
	reset := os.NewSyscallError("read", syscall.ECONNRESET)
	variants := []error{
		nil,
		io.EOF,
		io.ErrUnexpectedEOF,
		fmt.Errorf("wrapped: %w", io.EOF),
		errors.New("EOF"),
		net.ErrClosed,
		errors.New(net.ErrClosed.Error()),
		os.ErrDeadlineExceeded,
		syscall.ECONNRESET,
		reset,
		&net.OpError{Op: "read", Net: "tcp", Source: local, Addr: other, Err: reset},
		&net.OpError{Op: "write", Net: "tcp", Source: local, Addr: other, Err: reset},
		&net.OpError{Op: "read", Net: "tcp4", Source: local, Addr: other, Err: reset},
		&net.OpError{Op: "read", Net: "tcp", Source: other, Addr: local, Err: reset},
		&net.OpError{Op: "read", Net: "tcp", Addr: other, Err: reset},
		&net.OpError{Op: "read", Net: "tcp", Source: local, Err: reset},
		&net.OpError{Op: "read", Net: "tcp", Source: local, Addr: other, Err: syscall.ECONNRESET},
		&net.OpError{Op: "read", Net: "tcp", Source: local, Addr: other, Err: os.NewSyscallError("recvfrom", syscall.ECONNRESET)},
		&net.OpError{Op: "read", Net: "tcp", Source: local, Addr: other, Err: os.NewSyscallError("read", syscall.EPIPE)},
		&net.OpError{Op: "read", Net: "tcp", Source: local, Addr: other, Err: net.ErrClosed},
	}
	seen := make(map[string]int)
	for i, err := range variants {
		description := describeError(err)
		if j, ok := seen[description]; ok {
			t.Errorf("errors %d and %d are both described as %s", j, i, description)
		}
		seen[description] = i
	}
}

func TestDiffLines(t *testing.T) {
	split := func(letters string) []string { return strings.Split(letters, "") }
	for _, tt := range []struct{ want, got, diff string }{
		{"abc", "abc", ""},
		{"abc", "axcd", "    a\n  - b\n  - c\n  + x\n  + c\n  + d\n"},
		{"ab", "", "  - a\n  - b\n"},
		{"aab", "aaab", "    a\n    a\n  + a\n    b\n"},
		{"abcdefghi", "abcdEfghi", "    b\n    c\n    d\n  - e\n  + E\n    f\n    g\n    h\n"},
	} {
		if got := diffLines(split(tt.want), split(tt.got)); got != tt.diff {
			t.Errorf("%q and %q: got\n%swant\n%s", tt.want, tt.got, got, tt.diff)
		}
	}
}
