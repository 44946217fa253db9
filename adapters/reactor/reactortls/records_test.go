package reactortls

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/internal/testnet"
)

// dialRecords connects a client that makes its own records.
func dialRecords(t testing.TB, ln net.Listener, config *tls.Config) (net.Conn, *tls.Conn, *testnet.Records) {
	t.Helper()
	tcp := testnet.Dial(t, ln)
	tcp.SetDeadline(time.Now().Add(testnet.HangTimeout))
	tc, records := testnet.DialRecords(t, tcp, config)
	return tcp, tc, records
}

// KeyUpdates between data change nothing, however they are cut. Too many in a row end the
// connection, and so do other messages after the handshake.
func TestMessages(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	for _, cut := range []int{1, 7, 1 << 20} {
		_, ln := serve(t, server, Limits{}, &handler{data: echo})
		tcp, tc, records := dialRecords(t, ln, client)
		var stream []byte
		var want []byte
		for i := range 50 {
			message := testnet.KeyUpdate
			if i%8 == 0 { // the client, crypto/tls, allows 16 in a row, too
				message = testnet.KeyUpdateWithResponse
			}
			stream = append(stream, records.Update(message)...)
			stream = append(stream, records.Make(testnet.RecordHandshake, message[:2])...) // in two records
			stream = append(stream, records.Update(message[2:])...)
			stream = append(stream, records.Make(testnet.RecordData, nil)...)
			text := fmt.Sprint("text ", i)
			stream = append(stream, records.Make(testnet.RecordData, []byte(text))...)
			want = append(want, text...)
		}
		go func() {
			for len(stream) > 0 {
				n := min(cut, len(stream))
				tcp.Write(stream[:n])
				stream = stream[n:]
			}
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(tc, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("cut into %d bytes: got %q, %v, want %q", cut, got, err, want)
		}
	}
	for name, flood := range map[string]func(r *testnet.Records) []byte{
		"KeyUpdates":                func(r *testnet.Records) []byte { return r.Update(testnet.KeyUpdate) },
		"KeyUpdates with responses": func(r *testnet.Records) []byte { return r.Update(testnet.KeyUpdateWithResponse) },
		"empty records":             func(r *testnet.Records) []byte { return r.Make(testnet.RecordData, nil) },
		"a ClientHello": func(r *testnet.Records) []byte {
			return r.Make(testnet.RecordHandshake, append([]byte{1, 0, 0, 100}, make([]byte, 100)...))
		},
		"a lost record": func(r *testnet.Records) []byte { r.Skip(); return r.Make(testnet.RecordData, []byte("x")) },
	} {
		closed, ended := closes()
		_, ln := serve(t, server, Limits{}, &handler{data: echo, close: closed})
		tcp, _, records := dialRecords(t, ln, client)
		var stream []byte
		for range 20 { // crypto/tls allows 16
			stream = append(stream, flood(records)...)
		}
		tcp.Write(stream)
		if err := testnet.Receive(t, "Close", ended); err == nil || err == io.EOF {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
}

// A client that asks for KeyUpdates and doesn't read the answers is read no more once they are many.
func TestKeyUpdateFlood(t *testing.T) {
	if onGoroutines {
		t.Skip("the answers would have to fill a socket's buffer of megabytes: run it on the loops")
	}
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	const mark = 8 << 10
	conns := make(chan *reactor.Conn, 1)
	data := make(chan bool, 1)
	closed, ended := closes()
	s, ln := serve(t, server, Limits{}, &handler{open: func(c *reactor.Conn) {
		smallBuffer(c)
		conns <- c
	}, data: func(c *reactor.Conn, p []byte) int {
		select {
		case data <- true:
		default:
		}
		return len(p)
	}, close: closed}, reactor.Config{WriteHighWaterMark: mark})
	tcp, _, records := dialRecords(t, ln, client)
	tcp.(*net.TCPConn).SetReadBuffer(bufferBytes)
	c := testnet.Receive(t, "Open", conns)
	sent := make(chan bool)
	go func() {
		defer close(sent)
		for err := error(nil); err == nil; { // until the test closes the connection
			var stream []byte
			for range 100 {
				stream = append(stream, records.Update(testnet.KeyUpdateWithResponse)...)
				stream = append(stream, records.Make(testnet.RecordData, []byte("x"))...)
			}
			_, err = tcp.Write(stream)
		}
	}()
	testnet.Receive(t, "the first data", data)
	testnet.Eventually(t, "answers that wait", func() bool { return c.Unsent() > mark })
	// The bound is the mark, and what one turn of reading adds: 64 KiB of records, each with an answer.
	if n := c.Unsent(); n > mark+128<<10 {
		t.Errorf("got %d bytes that wait, want %d at most", n, mark+128<<10)
	}
	tcp.Close()
	<-sent
	s.Close()
	testnet.Receive(t, "Close", ended)
}

// talk is a random conversation of a client: it writes messages in pieces, reads the answers, and ends
// in one of several ways. A message is a length of two bytes and its body; the answer is the message.
func talk(t testing.TB, ln net.Listener, config *tls.Config, seed uint64) (got []byte, err error) {
	random := rand.New(rand.NewPCG(seed, 11))
	c := dial(t, ln, config)
	defer c.Close()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for range random.IntN(20) {
		size := random.IntN(1 << random.IntN(16))
		out = append(out, byte(size>>8), byte(size))
		for range size {
			out = append(out, byte(random.Uint32()))
		}
	}
	cut := func() {
		for len(out) > 0 {
			n := min(len(out), 1+random.IntN(1<<random.IntN(18)))
			if _, err := c.Write(out[:n]); err != nil {
				return
			}
			out = out[n:]
		}
	}
	whole := len(out)
	end := random.IntN(4)
	if end == 0 && whole > 0 {
		out = out[:random.IntN(whole)] // the last message is torn
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		cut()
		switch end {
		case 1:
			c.NetConn().(*net.TCPConn).CloseWrite() // without close_notify
		case 2:
			c.NetConn().Write([]byte{23, 3, 3, 0, 50, 1}) // a part of a record
			c.NetConn().(*net.TCPConn).CloseWrite()
		default:
			c.CloseWrite()
		}
	}()
	got, err = io.ReadAll(c)
	<-done
	return got, err
}

// The same conversation over crypto/tls on package net, and over a server of ours, has the same answers
// and the same end.
func TestConversations(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		checkConversation(t, at(server, versions[seed%2]), client, seed)
	}
}

func FuzzConversations(f *testing.F) {
	server, client := testnet.TLS(f)
	for seed := range uint64(4) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkConversation(t, at(server, versions[seed%2]), client, seed) })
}

func checkConversation(t *testing.T, server, client *tls.Config, seed uint64) {
	t.Helper()
	ends := make(chan error, 1)
	plain := testnet.Serve(t, testnet.Listen(t, net.Listen, testnet.TCP4), func(c net.Conn) {
		tc := tls.Server(c, server)
		defer tc.Close()
		ends <- answerAll(tc)
	})
	want, wantErr := talk(t, plain, client, seed)
	wantEnd := testnet.Receive(t, "the end on package net", ends)

	closed, ended := closes()
	_, ln := serve(t, server, Limits{}, &handler{close: closed, data: func(c *reactor.Conn, p []byte) int {
		if size := messageSize(p); size <= len(p) {
			c.Write(p[:size])
			return size
		}
		return 0
	}})
	got, gotErr := talk(t, ln, client, seed)
	gotEnd := testnet.Receive(t, "Close", ended)
	if wantErr != nil || gotErr != nil { // a reset: how far each got is a matter of time
		short, long := got, want
		if len(short) > len(long) {
			short, long = long, short
		}
		if !bytes.HasPrefix(long, short) {
			t.Errorf("seed %d: the bytes before a reset differ", seed)
		}
	} else if !bytes.Equal(got, want) {
		t.Errorf("seed %d: got %d bytes, want %d", seed, len(got), len(want))
	}
	if gotEnd != wantEnd {
		t.Errorf("seed %d: got %v at the end, want %v", seed, gotEnd, wantEnd)
	}
}

// messageSize returns the size of the message that p begins with; 1<<20 if that is not there yet.
func messageSize(p []byte) int {
	if len(p) < 2 {
		return 1 << 20
	}
	return 2 + int(p[0])<<8 + int(p[1])
}

// answerAll is the blocking server: it answers all whole messages, and returns how the stream ends.
func answerAll(c net.Conn) error {
	var in []byte
	p := make([]byte, 32<<10)
	for {
		n, err := c.Read(p)
		in = append(in, p[:n]...)
		for messageSize(in) <= len(in) {
			size := messageSize(in)
			if _, err := c.Write(in[:size]); err != nil {
				return err
			}
			in = in[size:]
		}
		if err == io.EOF && len(in) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
}
