package handover

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/seam"
)

// TestLongestMessage: what 253 connections may have at most fits in a message, and arrives unchanged.
func TestLongestMessage(t *testing.T) {
	name := strings.Repeat("\xff", 108) // the longest that sockaddr_un has room for
	addr := netip.MustParseAddrPort("[1111:2222:3333:4444:5555:6666:7777:8888]:65535")
	all := []proxyproto.Header{
		{SourceName: name, DestinationName: name, IsUnix: true, TLVs: strings.Repeat("\xff", proxyproto.BytesMax)},
		{Source: addr, Destination: addr, TLVs: strings.Repeat("\xff", proxyproto.BytesMax)},
	}
	m := &message{Kind: conns, Carrier: strings.Repeat("\x01", carrierNameMax)}
	for i := range descriptorsMax {
		m.Conns = append(m.Conns, movedConnOf(listenersMax, true, seam.ConnInfo{Client: all[i%2]}))
	}
	m.Conns[0].State = make([]byte, CarriedBytesMax)
	p, err := m.encode()
	if err != nil || len(p) > bytesMax {
		t.Fatalf("got %d bytes, %v, want %d at most", len(p), err, bytesMax)
	}
	got, err := decode(p, descriptorsMax)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Conns {
		if got, want := got.Conns[i].info(), (seam.ConnInfo{Served: true, Client: all[i%2]}); got != want {
			t.Errorf("connection %d: got %.200v, want %.200v", i, got, want)
		}
	}
	if !bytes.Equal(got.Conns[0].State, m.Conns[0].State) {
		t.Errorf("got %d bytes of state, want %d", len(got.Conns[0].State), CarriedBytesMax)
	}
}

// TestDecode: each message that is not as it should be is refused with a line that says why.
func TestDecode(t *testing.T) {
	const start = `{"protocol":"percore-handover","version":3,`
	for _, test := range []struct{ name, message, want string }{
		{"empty", "", "not of the protocol"},
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", `not of the protocol percore-handover, or is cut off: it begins with "GET / HTTP/1.1\r\nHost"`},
		{"cut off", start + `"kind":"hel`, "cut off"},
		{"two at once", start + `"kind":"hello"}` + start + `"kind":"hello"}`, "cut off"},
		{"other JSON", `{"jsonrpc":"2.0"}`, "not of the protocol"},
		{"an array", `[1,2]`, "not of the protocol"},
		{"newer", `{"protocol":"percore-handover","version":7,"kind":["x"]}`, "speaks version 7 of the protocol, and this one version 3: replace"},
		{"newer, of which it speaks one before", `{"protocol":"percore-handover","version":7,"oldest":6,"kind":"hello"}`, "speaks version 7"},
		{"older", `{"protocol":"percore-handover","version":0,"kind":"hello"}`, "speaks version 0"},
		{"wrong type", start + `"kind":7}`, "can't be read"},
		{"connections without descriptors", start + `"kind":"conns","conns":[{"listener":0}]}`, "1 connections and 0 descriptors"},
		{"bad address", start + `"kind":"conns","conns":[{"client":{"source":"x"}}]}`, "can't be read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := decode([]byte(test.message), 0)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("got %+v, %v, want an error of one line with %q", m, err, test.want)
			}
		})
	}
	if m, err := decode([]byte(`{"protocol":"percore-handover","version":7,"oldest":3,"kind":"hello"}`), 0); err != nil || m.Kind != hello {
		t.Errorf("a newer process that also speaks this version: got %+v, %v, want hello", m, err)
	}
	m, err := decode([]byte(start+`"later":{"than":["this"]},"kind":"hello"}`), 0)
	if err != nil || m.Kind != hello {
		t.Errorf("with a field that is not known: got %+v, %v, want hello", m, err)
	}
}

// TestOneLine: another process' text is one line, of bounded length.
func TestOneLine(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"plain", "plain"},
		{"a\nb\x00c\x7f", "a b c "},
		{"\xff", "?"},
		{strings.Repeat("ä", 1000), strings.Repeat("ä", reasonBytesMax/2) + "…"},
		{"x" + strings.Repeat("ä", 1000), "x" + strings.Repeat("ä", reasonBytesMax/2-1) + "…"},
	} {
		if got := oneLine(test.in); got != test.want {
			t.Errorf("%.20q: got %q, want %q", test.in, got, test.want)
		}
	}
}

// FuzzMessage: decode refuses or understands any bytes, and understands again the message that it has
// understood.
func FuzzMessage(f *testing.F) {
	for _, m := range []*message{
		{Kind: hello},
		{Kind: offer, Listeners: []offeredListener{{"a", "tcp", "[::]:80", 2, false, []byte{0}}, {"", "unix", "/s", 1, true, nil}}, Open: 7},
		{Kind: conns, Conns: []movedConn{{Served: true, Client: &client{SourceName: []byte("\x00")}}}},
		{Kind: refuse, Reason: "no"},
	} {
		p, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p, len(m.Conns))
		f.Add(p[:len(p)-1], 0)
	}
	f.Add([]byte(`{"protocol":"percore-handover","version":3}`), 0)
	f.Fuzz(func(t *testing.T, p []byte, descriptors int) {
		m, err := decode(p, descriptors)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("got an error of several lines: %q", err)
			}
			return
		}
		_ = m.checkOffer()
		for i := range m.Conns {
			_ = m.Conns[i].info()
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("got %v from encoding %+v", err, m)
		}
		m2, err := decode(again, descriptors)
		if err != nil {
			t.Fatalf("got %v from decoding %s again", err, again)
		}
		if third, _ := json.Marshal(m2); !bytes.Equal(again, third) && !reflect.DeepEqual(m, m2) {
			t.Errorf("got %s, want %s", third, again)
		}
	})
}
