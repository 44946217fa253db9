package percore_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"

	"github.com/percore/percore"
)

// tlvsKey is the key of a connection's TLVs in the contexts of its requests.
type tlvsKey struct{}

// withTLVs is for http.Server's ConnContext.
func withTLVs(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, tlvsKey{}, percore.ProxyTLVs(c))
}

// A handler of net/http reads what the proxy says about the client. github.com/pires/go-proxyproto
// splits the bytes (proxyproto.SplitTLVs) and knows many types (package tlvparse).
func ExampleProxyTLVs() {
	lc := percore.ListenConfig{ProxyProtocol: &percore.ProxyProtocol{
		Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{
		ConnContext: withTLVs,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s, TLVs %q", r.RemoteAddr, r.Context().Value(tlvsKey{}))
		}),
	}
	go srv.Serve(ln)
	defer srv.Close()

	proxy, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer proxy.Close()
	const (
		addresses = "\xc0\x00\x02\x01" + "\xc6\x33\x64\x01" + "\x30\x39" + "\x01\xbb"
		uniqueID  = "\x05" + "\x00\x04" + "i-37" // PP2_TYPE_UNIQUE_ID
	)
	io.WriteString(proxy, "\r\n\r\n\x00\r\nQUIT\n"+"\x21\x11"+"\x00\x13"+addresses+uniqueID)
	io.WriteString(proxy, "GET / HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(proxy)
	fmt.Printf("%s %v\n", answer[len(answer)-len(`192.0.2.1:12345, TLVs "\x05\x00\x04i-37"`):], err)
	// Output: 192.0.2.1:12345, TLVs "\x05\x00\x04i-37" <nil>
}
