package sys

import (
	"encoding/binary"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlMessage builds one as the kernel does.
func controlMessage(level, kind int32, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(len(data)))
	copy(b[unix.CmsgLen(0):], data)
	return b
}

// extendedErr builds a sock_extended_err, followed by an address.
func extendedErr(errno uint32, origin, code uint8, info, data uint32) []byte {
	b := make([]byte, 16, 32)
	binary.NativeEndian.PutUint32(b, errno)
	b[4], b[6] = origin, code
	binary.NativeEndian.PutUint32(b[8:], info)
	binary.NativeEndian.PutUint32(b[12:], data)
	return append(b, make([]byte, 16)...)
}

func TestParseCompletion(t *testing.T) {
	const v4, v6 = int32(unix.SOL_IP), int32(unix.SOL_IPV6)
	zerocopy := uint8(unix.SO_EE_ORIGIN_ZEROCOPY)
	whole := controlMessage(v4, unix.IP_RECVERR, extendedErr(0, zerocopy, 0, 7, 9))
	for _, test := range []struct {
		name    string
		control []byte
		want    Completion
		ok      bool
	}{
		{"nothing", nil, Completion{}, false},
		{"IPv4", whole, Completion{First: 7, Last: 9}, true},
		{"IPv6", controlMessage(v6, unix.IPV6_RECVERR, extendedErr(0, zerocopy, 0, 7, 9)), Completion{First: 7, Last: 9}, true},
		{"copied", controlMessage(v4, unix.IP_RECVERR, extendedErr(0, zerocopy, 1, 0, 0)), Completion{Copied: true}, true},
		{"across the wrap", controlMessage(v4, unix.IP_RECVERR, extendedErr(0, zerocopy, 0, ^uint32(0), 1)), Completion{First: ^uint32(0), Last: 1}, true},
		{"after a time stamp", append(controlMessage(unix.SOL_SOCKET, unix.SO_TIMESTAMPING, make([]byte, 48)), whole...), Completion{First: 7, Last: 9}, true},
		{"an ICMP error", controlMessage(v4, unix.IP_RECVERR, extendedErr(uint32(unix.EHOSTUNREACH), unix.SO_EE_ORIGIN_ICMP, 0, 7, 9)), Completion{}, false},
		{"an error of its own", controlMessage(v4, unix.IP_RECVERR, extendedErr(1, zerocopy, 0, 7, 9)), Completion{}, false},
		{"another type", controlMessage(v4, unix.IP_TTL, extendedErr(0, zerocopy, 0, 7, 9)), Completion{}, false},
		{"IPv4's type at IPv6's level", controlMessage(v6, unix.IP_RECVERR, extendedErr(0, zerocopy, 0, 7, 9)), Completion{}, false},
		{"too short", controlMessage(v4, unix.IP_RECVERR, make([]byte, 15)), Completion{}, false},
		{"cut off in the header", whole[:10], Completion{}, false},
		{"cut off in the data", whole[:24], Completion{}, false},
	} {
		if got, ok := parseCompletion(test.control); got != test.want || ok != test.ok {
			t.Errorf("%s: got %+v, %t, want %+v, %t", test.name, got, ok, test.want, test.ok)
		}
	}
}

// FuzzParseCompletion looks for control messages that the parser stumbles over.
func FuzzParseCompletion(f *testing.F) {
	f.Add(controlMessage(unix.SOL_IP, unix.IP_RECVERR, extendedErr(0, unix.SO_EE_ORIGIN_ZEROCOPY, 0, 7, 9)))
	f.Add(controlMessage(unix.SOL_IP, unix.IP_RECVERR, nil))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, control []byte) { parseCompletion(control) })
}

// The error queue of a socket without any completion is empty.
func TestRecvCompletionEmpty(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if c, ok, errno := RecvCompletion(fd); ok || errno != syscall.EAGAIN {
		t.Errorf("got %+v, %t, %v, want EAGAIN", c, ok, errno)
	}
}
