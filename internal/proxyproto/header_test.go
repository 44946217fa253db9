package proxyproto_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	. "github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

const v2Signature = "\r\n\r\n\x00\r\nQUIT\n"

// v2 makes a binary header.
func v2(command, family byte, body string) string {
	return v2Signature + string([]byte{command, family, byte(len(body) >> 8), byte(len(body))}) + body
}

const (
	tcp4Body = "\xc0\x00\x02\x01\xc6\x33\x64\x01\x30\x39\x01\xbb" // 192.0.2.1:12345, 198.51.100.1:443
	tcp6Body = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x30\x39\x01\xbb"
)

func unixBody(source, destination string) string {
	pad := func(s string) string { return s + strings.Repeat("\x00", 108-len(s)) }
	return pad(source) + pad(destination)
}

// withChecksum returns a header with a checksum, after an unknown TLV.
func withChecksum(command, family byte, body string) string {
	h := []byte(v2(command, family, body+"\xea\x00\x02ab"+"\x03\x00\x04\x00\x00\x00\x00"))
	sum := crc32.Checksum(h, crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(h[len(h)-4:], sum)
	return string(h)
}

// describe is a header in one line.
func describe(h Header) string {
	text := "none"
	switch {
	case h.IsUnix:
		text = h.SourceName + " > " + h.DestinationName
	case h.Source.IsValid():
		text = h.Source.String() + " > " + h.Destination.String()
	}
	if h.TLVs != "" {
		text += fmt.Sprintf(" %x", h.TLVs)
	}
	return text
}

var good = []struct{ header, want string }{
	{"PROXY TCP4 192.0.2.1 198.51.100.1 12345 443\r\n", "192.0.2.1:12345 > 198.51.100.1:443"},
	{"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535 > 255.255.255.255:65535"},
	{"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", "0.0.0.0:0 > 0.0.0.0:0"},
	{"PROXY TCP6 2001:db8::1 2001:db8::2 12345 443\r\n", "[2001:db8::1]:12345 > [2001:db8::2]:443"},
	{"PROXY UNKNOWN\r\n", "none"},
	{"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", "none"},
	{v2(0x21, 0x11, tcp4Body), "192.0.2.1:12345 > 198.51.100.1:443"},
	{v2(0x21, 0x21, tcp6Body), "[2001:db8::1]:12345 > [2001:db8::2]:443"},
	{v2(0x21, 0x31, unixBody("/run/a", "\x00b")), "/run/a > @b"},
	{v2(0x21, 0x31, unixBody("", "")), " > "},
	{v2(0x21, 0x31, unixBody(strings.Repeat("x", 108), "/b")), strings.Repeat("x", 108) + " > /b"},
	{v2(0x20, 0x00, ""), "none"},
	{v2(0x20, 0x11, tcp4Body), "none"},
	{v2(0x20, 0x21, "\x01"), "none"},
	{v2(0x21, 0x00, "whatever"), "none"},
	{v2(0x21, 0x12, tcp4Body), "none"},
	{v2(0x21, 0x12, tcp4Body+"\x04\x00\x03abc"), "none"},
	{v2(0x21, 0x11, tcp4Body+"\x04\x00\x03abc"), "192.0.2.1:12345 > 198.51.100.1:443 040003616263"},
	{v2(0x21, 0x11, tcp4Body+"\x04\x00\x00\x02\x00\x01a"), "192.0.2.1:12345 > 198.51.100.1:443 04000002000161"},
	{v2(0x21, 0x31, unixBody("/a", "/b")+"\xea\x00\x01a"), "/a > /b ea000161"},
	{v2(0x21, 0x11, tcp4Body+"\x00"), "192.0.2.1:12345 > 198.51.100.1:443"},
	{v2(0x21, 0x11, tcp4Body+"\x04\x00"), "192.0.2.1:12345 > 198.51.100.1:443"},
	{v2(0x21, 0x11, tcp4Body+"\x04\x00\x02a"), "192.0.2.1:12345 > 198.51.100.1:443"},
	{v2(0x21, 0x11, tcp4Body+"\x04\x00\x01a\x00\x00"), "192.0.2.1:12345 > 198.51.100.1:443 04000161"},
	{v2(0x21, 0x21, tcp6Body+"\xff"), "[2001:db8::1]:12345 > [2001:db8::2]:443"},
	{v2(0x21, 0x31, unixBody("/a", "/b")+"\x00"), "/a > /b"},
	{v2(0x21, 0x11, tcp4Body+"\x04\xff\xf0"+strings.Repeat("x", 0xfff0)),
		"192.0.2.1:12345 > 198.51.100.1:443 04fff0" + strings.Repeat("78", 0xfff0)},
	{v2(0x21, 0x00, "\x04\x00\x03abc"), "none 040003616263"},
	{v2(0x20, 0x00, "\x04\x00\x03abc"), "none"},
	{v2(0x20, 0x11, tcp4Body+"\x04\x00\x03abc"), "none"},
	{withChecksum(0x21, 0x00, ""), fmt.Sprintf("none %x", withChecksum(0x21, 0x00, "")[16:])},
	{withChecksum(0x21, 0x11, tcp4Body),
		fmt.Sprintf("192.0.2.1:12345 > 198.51.100.1:443 %x", withChecksum(0x21, 0x11, tcp4Body)[16+12:])},
	{v2(0x21, 0x11, tcp4Body+"\x04\x0f\x00"+strings.Repeat("x", 0xf00)),
		"192.0.2.1:12345 > 198.51.100.1:443 040f00" + strings.Repeat("78", 0xf00)},
}

// TestGood reads each header with data behind it, and from each of its beginnings on: no byte of
// the data may be asked for.
func TestGood(t *testing.T) {
	for _, c := range good {
		n, complete, err := Scan([]byte(c.header + "GET / HTTP/1.1\r\n\r\n"))
		if n != len(c.header) || !complete || err != nil {
			t.Errorf("%q: got %d, %t, %v, want %d", c.header, n, complete, err, len(c.header))
			continue
		}
		h, err := Parse([]byte(c.header))
		if got := describe(h); got != c.want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", c.header, got, err, c.want)
		}
		for i := range c.header {
			n, complete, err := Scan([]byte(c.header[:i]))
			if complete || err != nil || n < 1 || i+n > len(c.header) {
				t.Errorf("the first %d bytes of %q: got %d, %t, %v, want 1 to %d more", i, c.header, n, complete, err, len(c.header)-i)
			}
		}
	}
}

func TestBad(t *testing.T) {
	wrongSum := []byte(withChecksum(0x21, 0x11, tcp4Body))
	wrongSum[20]++
	for _, c := range []struct{ header, want string }{
		{"GET / HTTP/1.1\r\n", "must come first"},
		{"proxy TCP4 192.0.2.1 198.51.100.1 1 2\r\n", "must come first"},
		{"\r\n\r\n\x00\r\nQUIX", "must come first"},
		{"PROXY " + strings.Repeat("x", 101), "no end of line"},
		{"PROXY UNKNOWN" + strings.Repeat(" ", 93) + "\r\n", "no end of line"},
		{"PROXY \r\n", "too short"},
		{"PROXY TCP4 \r\nxxxx", "too short"},
		{"PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n", "protocol"},
		{"PROXY tcp4 192.0.2.1 198.51.100.1 1 2\r\n", "protocol"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 1 2\n", "CR LF"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n", "two addresses"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3\r\n", "two addresses"},
		{"PROXY TCP4  192.0.2.1 198.51.100.1 1 2\r\n", "two addresses"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 1 2 \r\n", "two addresses"},
		{"PROXY TCP4 192.0.2 198.51.100.1 1 2\r\n", "no address"},
		{"PROXY TCP4 192.0.2.01 198.51.100.1 1 2\r\n", "no address"},
		{"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", "no address"},
		{"PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n", "no address"},
		{"PROXY TCP6 fe80::1%lo 2001:db8::2 1 2\r\n", "no address"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 65536 2\r\n", "no port"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 -1 2\r\n", "no port"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 01 2\r\n", "no port"},
		{"PROXY TCP4 192.0.2.1 198.51.100.1 1 +2\r\n", "no port"},
		{v2(0x11, 0x11, tcp4Body), "version and command"},
		{v2(0x22, 0x11, tcp4Body), "version and command"},
		{v2(0x21, 0x10, tcp4Body), "family"},
		{v2(0x21, 0x41, tcp4Body), "family"},
		{v2(0x20, 0xff, tcp4Body), "family"},
		{v2(0x21, 0x13, tcp4Body), "family"},
		{v2(0x21, 0x11, tcp4Body[1:]), "too short"},
		{v2(0x21, 0x21, tcp4Body), "too short"},
		{v2(0x21, 0x31, tcp6Body), "too short"},
		{v2(0x21, 0x11, tcp4Body+"\x03\x00\x04abcd\x01"), "checksum"},
		{v2(0x21, 0x11, tcp4Body+"\x03\x00\x04abcd"), "checksum"},
		{v2(0x21, 0x00, "\x03\x00\x04abcd"), "checksum"},
		{v2(0x21, 0x00, "\x03\x00\x04abcd\x01"), "checksum"},
		{v2(0x21, 0x11, tcp4Body+"\x03\x00\x03abc"), "checksum"},
		{string(wrongSum), "checksum"},
	} {
		n, complete, err := Scan([]byte(c.header))
		if err == nil {
			if !complete || n != len(c.header) {
				t.Errorf("%q: Scan: got %d, %t, want %d", c.header, n, complete, len(c.header))
			}
			_, err = Parse([]byte(c.header))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error about %q", c.header, err, c.want)
		}
	}
}

// FuzzHeader: whatever comes, Scan makes progress and does not change its mind, and Parse doesn't panic.
func FuzzHeader(f *testing.F) {
	for _, c := range good {
		f.Add([]byte(c.header + "x"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		at := 0
		for {
			n, complete, err := Scan(b[:at])
			if err != nil {
				return
			}
			if complete {
				if _, err := Parse(b[:n]); n != at && err == nil {
					t.Fatalf("read to %d of a header of %d bytes", at, n)
				}
				at = n
				break
			}
			if n < 1 || at+n > BytesMax {
				t.Fatalf("at %d: got %d more", at, n)
			}
			if at += n; at > len(b) {
				return
			}
		}
		if n, complete, err := Scan(b); n != at || !complete || err != nil {
			t.Fatalf("all at once: got %d, %t, %v, want %d", n, complete, err, at)
		}
		_, _ = Parse(b[:at])
	})
}
