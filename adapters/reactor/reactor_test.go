package reactor

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestEcho(t *testing.T) {
	testnet.NoLeaks(t)
	for _, kind := range testnet.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			end, ended := closes()
			_, dial := serveOn(t, kind, &handler{data: echo, close: end})
			c := dial()
			for _, n := range []int{1, 128, 4 << 10, 64 << 10, 1 << 20} {
				message := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
				go c.Write(message)
				got := make([]byte, n)
				if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, message) {
					t.Fatalf("%d bytes: got %d, %v, want the same", n, len(got), err)
				}
			}
			c.(interface{ CloseWrite() error }).CloseWrite()
			if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
				t.Errorf("after the end: got %d bytes, %v, want the end", n, err)
			}
			if err := testnet.Receive(t, "Close", ended); err != io.EOF {
				t.Errorf("Close: got %v, want EOF", err)
			}
		})
	}
}

// The bytes that Data doesn't use come again with more.
func TestUnusedBytes(t *testing.T) {
	testnet.NoLeaks(t)
	lines := func(c *Conn, p []byte) int {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			return 0
		}
		c.Write(p[:i+1])
		return i + 1
	}
	end, ended := closes()
	_, dial := serve(t, &handler{data: lines, close: end}, Config{ReadBufferMax: 3000})
	c := dial()
	long := bytes.Repeat([]byte("x"), 2000)
	for _, piece := range [][]byte{[]byte("one\ntw"), []byte("o\n"), long[:1500], long[1500:], []byte("\nthree\nfour\nfi")} {
		c.Write(piece)
	}
	want := "one\ntwo\n" + string(long) + "\nthree\nfour\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, c)
	if err := testnet.Receive(t, "Close", ended); err != io.ErrUnexpectedEOF {
		t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
	}
	c = dial()
	c.Write(make([]byte, 3000))
	if err := testnet.Receive(t, "Close", ended); err != ErrReadBufferFull {
		t.Errorf("got %v, want %v", err, ErrReadBufferFull)
	}
}

func TestClose(t *testing.T) {
	testnet.NoLeaks(t)
	end, ended := closes()
	big := bytes.Repeat([]byte("0123456789"), 1<<20)
	_, dial := serve(t, &handler{close: end, data: func(c *Conn, p []byte) int {
		c.Write(big)
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := c.Write(big); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a Write after it: got %v, want %v", err, net.ErrClosed)
		}
		return len(p)
	}})
	c := dial()
	c.Write([]byte("x"))
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, big) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(big))
	}
	if err := testnet.Receive(t, "Close", ended); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
}

func TestDetach(t *testing.T) {
	testnet.NoLeaks(t)
	_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			return 0
		}
		c.Write([]byte("hello "))
		conn, buffered, err := c.Detach()
		if err != nil {
			t.Error(err)
		}
		go func() {
			defer conn.Close()
			conn.Write(buffered[i+1:])
			io.Copy(conn, conn)
		}()
		return 0
	}})
	c := dial()
	io.WriteString(c, "header")
	io.WriteString(c, "\nrest")
	io.WriteString(c, " and more")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "hello rest and more" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
