//go:build !percore_net

package percore

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/zerocopy"
)

// accepted makes a connection of ours over a listener of the kind, and its peer.
func accepted(t testing.TB, kind testnet.Kind) (c *Conn, peer net.Conn) {
	t.Helper()
	network, address := testnet.Address(t, kind)
	return connect(t, listen(t, ListenConfig{}, network, address))
}

// noise returns n bytes that don't repeat soon.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// catcher takes the values that ReadFrom and WriteTo of the standard library pass to io.Copy.
type catcher struct{ got any }

func (c *catcher) Write(p []byte) (int, error)            { return len(p), nil }
func (c *catcher) Read([]byte) (int, error)               { return 0, io.EOF }
func (c *catcher) ReadFrom(r io.Reader) (int64, error)    { c.got = r; return 0, nil }
func (c *catcher) WriteTo(w io.Writer) (n int64, e error) { c.got = w; return 0, nil }

func caughtBy(f func(*catcher) (int64, error)) any {
	var c catcher
	f(&c)
	return c.got
}

// upgradedBodyOf makes net/http's client switch protocols with a server that sends ahead at once,
// and returns the body it gets.
func upgradedBodyOf(t testing.TB, ahead string) (body io.ReadWriteCloser, server net.Conn) {
	t.Helper()
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n"+ahead)
		accepted <- c
	}()
	req, err := http.NewRequest("GET", "http://"+ln.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "upgrade")
	req.Header.Set("Upgrade", "test")
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("switching protocols: %v", err)
	}
	server = testnet.Receive(t, "the server's connection", accepted)
	t.Cleanup(func() { resp.Body.Close(); server.Close() })
	return resp.Body.(io.ReadWriteCloser), server
}

// TestHiddenTypes fails if a version of Go renames or changes the types in which its packages wrap
// connections. Then hiddenTypes must be updated, or bytes are copied.
func TestHiddenTypes(t *testing.T) {
	a, _ := testnet.Pair(t, net.Listen, testnet.TCP4)
	tcp := a.(*net.TCPConn)
	f := testnet.TempFile(t, nil)
	body, _ := upgradedBodyOf(t, "")
	for _, c := range []struct {
		name string
		v    any
		as   hiding
		file bool
	}{
		{"net.TCPConn.WriteTo", caughtBy(func(c *catcher) (int64, error) { return tcp.WriteTo(c) }), tcpConnWithoutWriteTo, false},
		{"net.TCPConn.ReadFrom", caughtBy(func(c *catcher) (int64, error) { return tcp.ReadFrom(c) }), tcpConnWithoutReadFrom, false},
		{"os.File.WriteTo", caughtBy(func(c *catcher) (int64, error) { return f.WriteTo(c) }), fileWithoutWriteTo, true},
		{"os.File.ReadFrom", caughtBy(func(c *catcher) (int64, error) { return f.ReadFrom(c) }), fileWithoutReadFrom, true},
		{"net/http's upgraded body", body, upgradedBody, false},
	} {
		for range 2 { // the second time from the cache
			e, ok := endpointOf(c.v)
			if !ok || e.hidden != c.as {
				t.Errorf("%s hands over a %T: got %t as %d, want it recognized, as %d", c.name, c.v, ok, e.hidden, c.as)
				continue
			}
			if isFile, isTCP := e.file == f, e.peer == net.Conn(tcp); isFile != c.file || !c.file && c.as != upgradedBody && !isTCP {
				t.Errorf("%s: got the file %t, the connection %t, want what is in the %T", c.name, isFile, isTCP, c.v)
			}
		}
	}
}

// TestEndsAreExact: a value that only looks like a socket, because it embeds one, must not
// be moved past.
func TestEndsAreExact(t *testing.T) {
	a, b := testnet.Pair(t, net.Listen, testnet.TCP4)
	ours, _ := accepted(t, testnet.TCP4)
	gram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(testnet.ShortTempDir(t), "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer gram.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	type tcpConnWithoutWriteTo struct{ *net.TCPConn } // of another package
	type peeking struct{ *Conn }
	body, _ := upgradedBodyOf(t, "")
	for _, v := range []any{
		nil, (*Conn)(nil), new(Conn), (*net.TCPConn)(nil), new(net.TCPConn), (*net.UnixConn)(nil), (*os.File)(nil),
		gram, udp, tls.Client(b, &tls.Config{}), struct{ *net.TCPConn }{a.(*net.TCPConn)}, struct{ net.Conn }{a},
		tcpConnWithoutWriteTo{a.(*net.TCPConn)}, peeking{ours}, &peeking{ours}, struct{ *Conn }{ours}, bufio.NewReader(a),
		io.LimitReader(a, 10), struct{ io.ReadWriteCloser }{body}, new(bytes.Buffer), strings.NewReader(""), *a.(*net.TCPConn),
	} {
		if e, ok := endpointOf(v); ok {
			t.Errorf("%T: got %+v, want it not to be an endpoint", v, e)
		}
	}
	for _, v := range []any{a, ours, connWithoutWriteTo{c: ours}, testnet.TempFile(t, nil)} {
		if _, ok := endpointOf(v); !ok {
			t.Errorf("%T: got no endpoint, want one", v)
		}
	}
}

// used returns the counters' increase since before, in bytes.
func used(before zerocopy.Stats) string {
	now := ReadStats().ZeroCopy
	return fmt.Sprintf("sendfile %d, splice %d, copied %d", now.SendfileBytes-before.SendfileBytes,
		now.SpliceBytes-before.SpliceBytes, now.CopiedBytes-before.CopiedBytes)
}

// wantUsed fails the test unless a copy has moved size bytes, all of them by splice or none.
func wantUsed(t *testing.T, n int64, err error, size int64, before zerocopy.Stats, spliced bool) {
	t.Helper()
	want := fmt.Sprintf("sendfile 0, splice 0, copied %d", size)
	if spliced {
		want = fmt.Sprintf("sendfile 0, splice %d, copied 0", size)
	}
	if got := used(before); n != size || err != nil || got != want {
		t.Errorf("got %d, %v, by %s, want %d, by %s", n, err, got, size, want)
	}
}

func wantReceived(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("received: got %d bytes, the right ones: false, want all %d", len(got), len(want))
	}
}

// TestTransfers copies with io.Copy from and to a connection of ours, with the fast paths and
// without, and checks the counters.
func TestTransfers(t *testing.T) {
	const size = 300_000
	data := noise(size)
	conn := func(kind testnet.Kind, ours bool) func(t testing.TB) (near, far io.ReadWriteCloser) {
		return func(t testing.TB) (near, far io.ReadWriteCloser) {
			if ours {
				return accepted(t, kind)
			}
			return testnet.Pair(t, net.Listen, kind)
		}
	}
	type kind struct {
		name string
		make func(t testing.TB) (near, far io.ReadWriteCloser)
	}
	conns := []kind{
		{"our TCP", conn(testnet.TCP4, true)}, {"our unix", conn(testnet.Unix, true)},
		{"net's TCP", conn(testnet.TCP4, false)}, {"net's unix", conn(testnet.Unix, false)},
	}
	pipe := func(reading bool) func(t testing.TB) (near, far io.ReadWriteCloser) {
		return func(t testing.TB) (near, far io.ReadWriteCloser) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close(); w.Close() })
			if reading {
				return r, w
			}
			return w, r
		}
	}
	fifo := kind{"a FIFO", func(t testing.TB) (near, far io.ReadWriteCloser) {
		name := filepath.Join(testnet.ShortTempDir(t), "fifo")
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		r, err := os.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}}
	body := func(t testing.TB) (near, far io.ReadWriteCloser) { return upgradedBodyOf(t, "") }
	sources := append(conns, kind{"a pipe", pipe(true)}, fifo, kind{"an upgraded body", body})
	sinks := append(conns, kind{"a pipe", pipe(false)}, kind{"an upgraded body", body})
	for _, from := range sources {
		for _, to := range sinks {
			if !strings.HasPrefix(from.name, "our") && !strings.HasPrefix(to.name, "our") {
				continue
			}
			for _, on := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s to %s/splice %t", from.name, to.name, on), func(t *testing.T) {
					testnet.NoLeaks(t)
					defer features.Splice.Force(on)()
					near, feeder := from.make(t)
					sink, far := to.make(t)
					feed(feeder, data)
					received := receiving(far)
					before := ReadStats().ZeroCopy
					n, err := io.Copy(sink, near)
					wantUsed(t, n, err, size, before, on)
					for _, end := range []any{near, sink} {
						if c, ok := end.(*Conn); ok && !c.sock.fd.Stream().Nonblocking() {
							t.Error("the connection's descriptor counts as exposed: reads will be slower from now on")
						}
					}
					sink.Close()
					wantReceived(t, received(), data)
				})
			}
		}
	}
}

// TestTransfersOfFiles checks that sendfile is used for whole files and parts of them, and splice
// for bytes that are received into a file.
func TestTransfersOfFiles(t *testing.T) {
	const size = 300_000
	data := noise(size)
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/on %t", kind, on), func(t *testing.T) {
				defer features.Sendfile.Force(on)()
				defer features.Splice.Force(on)()
				c, peer := accepted(t, kind)
				f, g := testnet.TempFile(t, data), testnet.TempFile(t, nil)
				received := receiving(peer)
				expect := func(what string, n int64, err error, want int64, before zerocopy.Stats, bytes string) {
					t.Helper()
					if !on {
						bytes = fmt.Sprintf("sendfile 0, splice 0, copied %d", want)
					}
					if got := used(before); n != want || err != nil || got != bytes {
						t.Errorf("%s: got %d, %v, %s, want %d, %s", what, n, err, got, want, bytes)
					}
				}
				before := ReadStats().ZeroCopy
				n, err := io.Copy(c, f)
				expect("io.Copy", n, err, size, before, fmt.Sprintf("sendfile %d, splice 0, copied 0", size))
				f.Seek(100, io.SeekStart)
				before = ReadStats().ZeroCopy
				n, err = io.CopyN(c, f, 1000)
				expect("io.CopyN", n, err, 1000, before, "sendfile 1000, splice 0, copied 0")
				before = ReadStats().ZeroCopy
				n, err = c.ReadFrom(f)
				expect("ReadFrom", n, err, size-1100, before, fmt.Sprintf("sendfile %d, splice 0, copied 0", size-1100))
				c.CloseWrite()
				wantReceived(t, received(), append(data[:size:size], data[100:]...))
				feed(peer, data)
				before = ReadStats().ZeroCopy
				n, err = io.Copy(g, c)
				expect("io.Copy to a file", n, err, size, before, fmt.Sprintf("sendfile 0, splice %d, copied 0", size))
				if got, err := os.ReadFile(g.Name()); err != nil || !bytes.Equal(got, data) {
					t.Errorf("written: got %d bytes, %v, the right ones: false, want all %d", len(got), err, size)
				}
			})
		}
	}
}

// asResponse copies as an http.ResponseWriter does: io.Copy passes a connection to its ReadFrom,
// which passes it on to the connection it writes to.
type asResponse struct{ c *Conn }

func (r asResponse) Write(p []byte) (int, error)              { return r.c.Write(p) }
func (r asResponse) ReadFrom(source io.Reader) (int64, error) { return r.c.ReadFrom(source) }

// TestTransfersByDetour reaches ReadFrom and WriteTo in other ways than io.Copy
// between two connections does. Copied bytes are counted once in each.
func TestTransfersByDetour(t *testing.T) {
	data := noise(100_000)
	for _, c := range []struct {
		name string
		copy func(to, from *Conn) (int64, error)
	}{
		{"to.ReadFrom", func(to, from *Conn) (int64, error) { return to.ReadFrom(from) }},
		{"from.WriteTo", func(to, from *Conn) (int64, error) { return from.WriteTo(to) }},
		{"to a response", func(to, from *Conn) (int64, error) { return io.Copy(asResponse{to}, from) }},
		{"to what hides ReadFrom", func(to, from *Conn) (int64, error) { return from.WriteTo(connWithoutReadFrom{to}) }},
	} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/splice %t", c.name, on), func(t *testing.T) {
				defer features.Splice.Force(on)()
				from, feeder := accepted(t, testnet.TCP4)
				to, peer := accepted(t, testnet.TCP4)
				feed(feeder, data)
				received := receiving(peer)
				before := ReadStats().ZeroCopy
				n, err := c.copy(to, from)
				wantUsed(t, n, err, int64(len(data)), before, on && c.name != "to what hides ReadFrom")
				to.Close()
				wantReceived(t, received(), data)
			})
		}
	}
}

// TestHasFields: a type with another field than expected is refused.
func TestHasFields(t *testing.T) {
	type other struct{ A, B, C int }
	for _, c := range []struct {
		names []string
		want  bool
	}{
		{[]string{"A", "B", "C"}, true},
		{[]string{"A", "B"}, false},
		{[]string{"A", "B", "C", "D"}, false},
		{[]string{"A", "C", "B"}, false},
	} {
		if got := hasFields(reflect.TypeFor[other](), c.names); got != c.want {
			t.Errorf("%v: got %t, want %t", c.names, got, c.want)
		}
	}
}

// TestTransferOfWhatWasReadAhead makes net/http's client read beyond the headers of the response.
// Those bytes come first, through a buffer.
func TestTransferOfWhatWasReadAhead(t *testing.T) {
	for _, limit := range []int64{-1, 3, 5, 8, 100} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			body, server := upgradedBodyOf(t, "ahead")
			c, peer := accepted(t, testnet.TCP4)
			io.WriteString(server, " and more")
			server.Close()
			want, copied := "ahead and more", int64(5)
			r := io.Reader(body)
			if limit >= 0 {
				r = &io.LimitedReader{R: body, N: limit}
				want, copied = want[:min(limit, int64(len(want)))], min(limit, copied)
			}
			before := ReadStats().ZeroCopy
			n, err := io.Copy(c, r)
			if n != int64(len(want)) || err != nil {
				t.Errorf("io.Copy: got %d, %v, want %d", n, err, len(want))
			}
			if got, want := used(before), fmt.Sprintf("sendfile 0, splice %d, copied %d", int64(len(want))-copied, copied); got != want && !strings.HasSuffix(got, fmt.Sprintf("splice 0, copied %d", n)) {
				t.Errorf("used: got %s, want %s", got, want)
			}
			c.Close()
			if got, err := io.ReadAll(peer); string(got) != want || err != nil {
				t.Errorf("received: got %q, %v, want %q", got, err, want)
			}
		})
	}
}

// TestTransferOverBlockingDescriptor: a user that has the descriptor can make the socket
// blocking. A transfer inside the kernel could then not be interrupted.
func TestTransferOverBlockingDescriptor(t *testing.T) {
	testnet.NoLeaks(t)
	from, feeder := accepted(t, testnet.TCP4)
	to, peer := accepted(t, testnet.TCP4)
	f, err := to.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Fd() // makes it blocking
	io.WriteString(feeder, "text")
	before := ReadStats().ZeroCopy
	done := make(chan error, 1)
	testnet.GoBlocked(t, "io.Copy", func() {
		_, err := io.Copy(to, from)
		done <- err
	})
	got := make([]byte, 4)
	if _, err := io.ReadFull(peer, got); string(got) != "text" || err != nil {
		t.Errorf("received: got %q, %v, want \"text\"", got, err)
	}
	from.Close()
	wantErr(t, "io.Copy", testnet.Receive(t, "io.Copy", done), "writeto", net.ErrClosed)
	if got, want := used(before), "sendfile 0, splice 0, copied 4"; got != want { // counted after they were sent
		t.Errorf("used: got %s, want %s", got, want)
	}
}

// TestTransferPastUrgentData sends a byte of urgent data in the middle of a copy from
// a connection that stays open.
func TestTransferPastUrgentData(t *testing.T) {
	testnet.NoLeaks(t)
	near, far := accepted(t, testnet.TCP4)
	dst, sink := accepted(t, testnet.TCP4)
	copied := make(chan error, 1)
	testnet.GoBlocked(t, "Copy", func() {
		_, err := io.Copy(dst, near)
		copied <- err
	})
	raw, err := far.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	send := func(text string, flags int) {
		if cerr := raw.Control(func(fd uintptr) { err = unix.Send(int(fd), []byte(text), flags) }); cerr != nil || err != nil {
			t.Errorf("send: %v, %v", cerr, err)
		}
	}
	receive := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if err := sink.SetReadDeadline(time.Now().Add(testnet.HangTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(sink, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	send("before", 0)
	receive("before")
	send("!", unix.MSG_OOB)
	send("after", 0)
	time.Sleep(time.Millisecond) // an edge more, should a signal have made the kernel say EAGAIN at the mark
	send(".", 0)
	receive("after.")
	far.Close()
	if err := testnet.Receive(t, "Copy", copied); err != nil {
		t.Errorf("Copy: got %v, want nil", err)
	}
}
