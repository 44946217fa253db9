package frameworks

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	proxyproto "github.com/pires/go-proxyproto"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	ours "github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/testnet"
)

var (
	tcp4From, tcp4To = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}
	tcp6From, tcp6To = &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 4711}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}
	unixFrom, unixTo = &net.UnixAddr{Name: "/run/from", Net: "unix"}, &net.UnixAddr{Name: "/run/to", Net: "unix"}
)

// encodedHeaders returns headers as go-proxyproto writes them, with the peer's address that each
// announces; "" stands for the socket's own address.
func encodedHeaders(t testing.TB) map[string]string {
	t.Helper()
	headers := make(map[string]string)
	add := func(h *proxyproto.Header, want string) {
		b, err := h.Format()
		if err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		headers[string(b)] = want
	}
	add(proxyproto.HeaderProxyFromAddrs(1, tcp4From, tcp4To), tcp4From.String())
	add(proxyproto.HeaderProxyFromAddrs(1, tcp6From, tcp6To), tcp6From.String())
	add(proxyproto.HeaderProxyFromAddrs(2, tcp4From, tcp4To), tcp4From.String())
	add(proxyproto.HeaderProxyFromAddrs(2, tcp6From, tcp6To), tcp6From.String())
	add(proxyproto.HeaderProxyFromAddrs(2, unixFrom, unixTo), unixFrom.String())
	add(&proxyproto.Header{Version: 1, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}, "")
	add(&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}, "")
	extended := proxyproto.HeaderProxyFromAddrs(2, tcp4From, tcp4To)
	if err := extended.SetTLVs([]proxyproto.TLV{
		{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte("www.example.org")},
		{Type: proxyproto.PP2_TYPE_UNIQUE_ID, Value: bytes.Repeat([]byte("x"), 128)},
		{Type: proxyproto.PP2_TYPE_NOOP, Value: make([]byte, 700)},
	}); err != nil {
		t.Fatal(err)
	}
	add(extended, tcp4From.String())
	return headers
}

// TestProxyProtocolAtAccept: percore itself reads the headers that go-proxyproto writes. An
// http.Server sees the client's address on each request of a connection, and the adapter parks the
// connection between requests.
func TestProxyProtocolAtAccept(t *testing.T) {
	proxy := &percore.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	lc := percore.ListenConfig{ProxyProtocol: proxy}
	testnet.NoLeaks(t)
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpadapter.Wrap(&http.Server{Handler: whoAmI})
	testnet.ServeWeb(t, srv, ln, false)
	conns := 0
	for header, want := range encodedHeaders(t) {
		for _, at := range []int{0, 1, len(header) / 2} {
			c := testnet.Dial(t, ln)
			io.WriteString(c, header[:at])
			io.WriteString(c, header[at:])
			client := cmp.Or(want, c.LocalAddr().String())
			get := testnet.KeepAlive(t, c)
			conns++
			for i := range 3 {
				path := fmt.Sprint("/", i)
				if got := get(path); got != client+" "+path {
					t.Errorf("%q: got %q, want %q", header, got, client+" "+path)
				}
				testnet.Eventually(t, "parked", func() bool { return srv.Stats().Parked == conns })
			}
		}
	}
}

// FuzzProxyHeader compares percore's parser with go-proxyproto's. Both must accept the same headers,
// with the same length and the same addresses. They differ where the specification leaves a choice:
//
//   - percore refuses wrong checksums, and returns only complete TLVs, which go-proxyproto leaves to
//     its callers;
//   - go-proxyproto refuses PROXY with UNSPEC, returns the addresses of datagrams and the TLVs of
//     LOCAL, and has no names of abstract unix sockets.
func FuzzProxyHeader(f *testing.F) {
	for header := range encodedHeaders(f) {
		f.Add([]byte(header + "GET /"))
	}
	f.Add([]byte(headerWithTLVs(f)))
	f.Add([]byte(string(proxyproto.SIGV2) + "\x21\x11\x00\x0d" + "\x01\x02\x03\x04\x05\x06\x07\x08\x00\x01\x00\x02" + "\x00" + "GET /"))
	f.Add([]byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n"))
	f.Add([]byte("PROXY UNKNOWN and more\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, complete, err := ours.Scan(b)
		var h ours.Header
		if err == nil && complete {
			h, err = ours.Parse(b[:n])
		}
		source := bytes.NewReader(b)
		reader := bufio.NewReaderSize(source, 1<<17)
		theirs, theirErr := proxyproto.Read(reader)
		if len(b) >= 16 && strings.HasPrefix(string(b), string(proxyproto.SIGV2)) {
			isPacket := b[13] == 0x12 || b[13] == 0x22 || b[13] == 0x32
			isUnspec := b[13] == 0 && b[12] == 0x21
			if isPacket || isUnspec {
				return
			}
		}
		if theirErr != nil {
			if err == nil && complete {
				t.Fatalf("%q: got %+v, go-proxyproto says %v", b, h, theirErr)
			}
			return
		}
		tlvs, tlvErr := theirs.TLVs()
		if err != nil && strings.Contains(err.Error(), "checksum") {
			if tlvErr == nil && !slices.ContainsFunc(tlvs, func(tlv proxyproto.TLV) bool { return tlv.Type == proxyproto.PP2_TYPE_CRC32C }) {
				t.Fatalf("%q: got %v, go-proxyproto finds no checksum", b, err)
			}
			return
		}
		if err != nil || !complete {
			t.Fatalf("%q: got %v, %t, go-proxyproto takes %+v", b, err, complete, theirs)
		}
		if used := len(b) - source.Len() - reader.Buffered(); used != n {
			t.Fatalf("%q: got %d bytes, go-proxyproto takes %d", b, n, used)
		}
		if theirs.Command != proxyproto.LOCAL {
			ourTLVs, err := proxyproto.SplitTLVs([]byte(h.TLVs))
			if err != nil || tlvErr == nil && !reflect.DeepEqual(ourTLVs, tlvs) {
				t.Fatalf("%q: got the TLVs %v, %v, go-proxyproto %v, %v", b, ourTLVs, err, tlvs, tlvErr)
			}
		} else if h.TLVs != "" {
			t.Fatalf("%q: got TLVs of LOCAL", b)
		}
		want := "none"
		if theirs.Command != proxyproto.LOCAL && theirs.SourceAddr != nil {
			want = fmt.Sprint(theirs.SourceAddr, " ", theirs.DestinationAddr)
		}
		got := "none"
		switch {
		case h.IsUnix:
			if b[16] == 0 {
				h.SourceName = ""
			}
			if b[16+108] == 0 {
				h.DestinationName = ""
			}
			got = fmt.Sprint(&net.UnixAddr{Name: h.SourceName, Net: "unix"}, " ", &net.UnixAddr{Name: h.DestinationName, Net: "unix"})
		case h.Source.IsValid():
			got = fmt.Sprint(net.TCPAddrFromAddrPort(h.Source), " ", net.TCPAddrFromAddrPort(h.Destination))
		}
		if got != want {
			t.Fatalf("%q: got %s, go-proxyproto %s", b, got, want)
		}
	})
}
