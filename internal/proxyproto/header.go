// Package proxyproto parses headers of the PROXY protocol, versions 1 and 2, in which a proxy tells
// a server the addresses of its client (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt,
// "the specification" below). It uses no sockets: it turns bytes into addresses.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Header is the content of a header. At most one pair of addresses is set. If none is, the socket's
// own addresses are the right ones: the proxy speaks for itself (LOCAL, a health check) or doesn't
// know the client's (UNKNOWN, UNSPEC, and the packet protocols, section 2.2). LOCAL and the packet
// protocols have no TLVs either.
type Header struct {
	Source, Destination         netip.AddrPort `json:",omitzero"`  // of TCP
	SourceName, DestinationName string         `json:",omitempty"` // of unix sockets
	IsUnix                      bool           `json:",omitempty"`

	// TLVs are the complete type-length-value vectors after the addresses (section 2.2), as they were
	// sent.
	TLVs string `json:",omitempty"`
}

// Addrs returns the addresses as package net has them, those of the server and of its client, or
// nil if there are none.
func (h *Header) Addrs() (local, remote net.Addr) {
	switch {
	case h.IsUnix:
		return &net.UnixAddr{Name: h.DestinationName, Net: "unix"}, &net.UnixAddr{Name: h.SourceName, Net: "unix"}
	case h.Source.IsValid():
		return net.TCPAddrFromAddrPort(h.Destination), net.TCPAddrFromAddrPort(h.Source)
	}
	return nil, nil
}

// BytesMax is the longest header that there can be: the 16 bytes of version 2 before its addresses, and
// what their field for the length can say. Nearly all of that is for TLVs: the addresses take 216 bytes
// at most, a client's certificate 1 to 2 KiB, or more if it is signed with a post-quantum algorithm.
const BytesMax = 16 + 1<<16 - 1

const (
	v1Start    = "PROXY "
	v1BytesMin = len("PROXY UNKNOWN\r\n")
	v1BytesMax = 107
	v2Start    = "\r\n\r\n\x00\r\nQUIT\n"
	v2BytesMin = len(v2Start) + 4
)

// Scan looks for the end of the header at the start of b. If b has it, n is the length of the header.
// Otherwise all of b belongs to the header, and n is how many more bytes do at least, if it is
// well-formed. Scan fails as soon as b can't be the start of a header.
func Scan(b []byte) (n int, complete bool, err error) {
	switch {
	case startsLike(b, v1Start):
		return scanV1(b)
	case startsLike(b, v2Start):
		return scanV2(b)
	}
	return 0, false, fmt.Errorf("no PROXY header, which must come first: the connection starts with %q", b[:min(len(b), 16)])
}

// startsLike reports whether b starts with start, or start with b.
func startsLike(b []byte, start string) bool {
	n := min(len(b), len(start))
	return string(b[:n]) == start[:n]
}

func scanV1(b []byte) (n int, complete bool, err error) {
	line := b[:min(len(b), v1BytesMax)]
	switch i := bytes.IndexByte(line, '\n'); {
	case i >= 0 && i+1 < v1BytesMin:
		return 0, false, fmt.Errorf("a PROXY header of version 1, %q, is too short", line[:i+1])
	case i >= 0:
		return i + 1, true, nil
	case len(line) == v1BytesMax:
		return 0, false, fmt.Errorf("a PROXY header of version 1 has no end of line in its first %d bytes", v1BytesMax)
	case len(b) < v1BytesMin:
		return v1BytesMin - len(b), false, nil
	case b[len(b)-1] == '\r':
		return 1, false, nil
	}
	return len("\r\n"), false, nil
}

func scanV2(b []byte) (n int, complete bool, err error) {
	if len(b) < v2BytesMin {
		return v2BytesMin - len(b), false, nil
	}
	n = v2BytesMin + int(binary.BigEndian.Uint16(b[14:]))
	if len(b) < n {
		return n - len(b), false, nil
	}
	return n, true, nil
}

// Parse parses a complete header: b is exactly what Scan has found. It keeps nothing of b.
func Parse(b []byte) (Header, error) {
	if line, ok := bytes.CutPrefix(b, []byte(v1Start)); ok {
		h, err := parseV1(string(line))
		if err != nil {
			return Header{}, fmt.Errorf("a PROXY header of version 1, %q: %w", b, err)
		}
		return h, nil
	}
	h, err := parseV2(b)
	if err != nil {
		return Header{}, fmt.Errorf("a PROXY header of version 2: %w", err)
	}
	return h, nil
}

// parseV1 parses a line without its first word (section 2.1).
func parseV1(line string) (Header, error) {
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return Header{}, errors.New("the line does not end in CR LF")
	}
	protocol, rest, _ := strings.Cut(line, " ")
	if protocol == "UNKNOWN" {
		return Header{}, nil // the specification says to ignore the rest of the line
	}
	if protocol != "TCP4" && protocol != "TCP6" {
		return Header{}, errors.New("the protocol is neither TCP4, TCP6 nor UNKNOWN")
	}
	fields := strings.Split(rest, " ")
	if len(fields) != 4 {
		return Header{}, errors.New("want two addresses and two ports, with a space in between")
	}
	var addrs [2]netip.AddrPort
	for i := range addrs {
		addr, err := netip.ParseAddr(fields[i])
		if err != nil || addr.Is4() != (protocol == "TCP4") || addr.Zone() != "" {
			return Header{}, fmt.Errorf("%q is no address of %s", fields[i], protocol)
		}
		port, ok := parsePort(fields[2+i])
		if !ok {
			return Header{}, fmt.Errorf("%q is no port", fields[2+i])
		}
		addrs[i] = netip.AddrPortFrom(addr, port)
	}
	return Header{Source: addrs[0], Destination: addrs[1]}, nil
}

// parsePort parses decimal digits without leading zeros.
func parsePort(s string) (uint16, bool) {
	port, err := strconv.ParseUint(s, 10, 16)
	return uint16(port), err == nil && strconv.FormatUint(port, 10) == s
}

// The values of bytes 13 and 14 (section 2.2).
const (
	v2Local = 0x20
	v2Proxy = 0x21

	v2Unspec     = 0x00
	v2TCP4       = 0x11
	v2UDP4       = 0x12
	v2TCP6       = 0x21
	v2UDP6       = 0x22
	v2UnixStream = 0x31
	v2UnixPacket = 0x32
)

// parseV2 parses a binary header (section 2.2).
func parseV2(b []byte) (Header, error) {
	if len(b) < v2BytesMin {
		return Header{}, errors.New("it is cut off")
	}
	command, family := b[12], b[13]
	if command != v2Local && command != v2Proxy {
		return Header{}, fmt.Errorf("unknown version and command %#02x", command)
	}
	size, isUnix := 0, false // of an address
	switch family {
	case v2TCP4:
		size = 4
	case v2TCP6:
		size = 16
	case v2UnixStream:
		size, isUnix = 108, true
	case v2Unspec, v2UDP4, v2UDP6, v2UnixPacket:
	default:
		return Header{}, fmt.Errorf("unknown family and protocol %#02x", family)
	}
	if command == v2Local {
		return Header{}, nil // the specification says to ignore the rest
	}
	if family == v2Unspec {
		return parseUnspec(b)
	}
	if size == 0 {
		return Header{}, nil
	}
	var h Header
	body := b[v2BytesMin:]
	both := 2 * size
	if !isUnix {
		both += 4 // the ports
	}
	if len(body) < both {
		return Header{}, fmt.Errorf("its length, %d, is too short for two addresses", len(body))
	}
	tlvs, err := wholeTLVs(b, body[both:])
	if err != nil {
		return Header{}, err
	}
	h.TLVs = string(tlvs)
	if isUnix {
		h.IsUnix, h.SourceName, h.DestinationName = true, unixName(body[:size]), unixName(body[size:both])
		return h, nil
	}
	source, _ := netip.AddrFromSlice(body[:size])
	destination, _ := netip.AddrFromSlice(body[size : 2*size])
	h.Source = netip.AddrPortFrom(source, binary.BigEndian.Uint16(body[2*size:]))
	h.Destination = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(body[2*size+2:]))
	return h, nil
}

// parseUnspec parses a header with the protocol UNSPEC. It has no addresses that the receiver could
// know, so what follows is ignored unless it is TLVs.
func parseUnspec(b []byte) (Header, error) {
	rest := b[v2BytesMin:]
	tlvs, err := wholeTLVs(b, rest)
	if err != nil || len(tlvs) < len(rest) {
		return Header{}, err
	}
	return Header{TLVs: string(tlvs)}, nil
}

// unixName returns a name up to its first NUL. The leading NUL of an abstract name becomes "@", as in
// package net.
func unixName(b []byte) string {
	abstract := ""
	if b[0] == 0 && b[1] != 0 {
		abstract, b = "@", b[1:]
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	return abstract + string(name)
}

// typeCRC32C is the type of a checksum of the whole header (section 2.2.3).
const typeCRC32C = 0x03

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errChecksum says that the bytes have changed on their way. The specification demands that the
// connection is not served.
var errChecksum = errors.New("the checksum is wrong")

// wholeTLVs returns the complete TLVs at the end of the header, and verifies a checksum among them. It
// ignores what follows them, an odd byte or a TLV that is longer than the header, as other receivers do:
// the addresses don't depend on it.
func wholeTLVs(header, tlvs []byte) ([]byte, error) {
	rest := tlvs
	for len(rest) >= 3 {
		kind, size := rest[0], int(binary.BigEndian.Uint16(rest[1:]))
		if len(rest) < 3+size {
			break
		}
		if kind == typeCRC32C {
			at := len(header) - len(rest) + 3
			if size != 4 || checksumWithout(header, at) != binary.BigEndian.Uint32(header[at:]) {
				return nil, errChecksum
			}
		}
		rest = rest[3+size:]
	}
	return tlvs[:len(tlvs)-len(rest)], nil
}

// checksumWithout returns the checksum of the header with zeros for the four bytes at the given place.
func checksumWithout(header []byte, at int) uint32 {
	sum := crc32.Update(0, castagnoli, header[:at])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	return crc32.Update(sum, castagnoli, header[at+4:])
}
