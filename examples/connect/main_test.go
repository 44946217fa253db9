package main

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func start(t *testing.T) net.Listener {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server := newServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		testnet.Receive(t, "the server's end", done)
	})
	return ln
}

// target serves one connection: it sends a greeting, and then sends back what it receives.
func target(t *testing.T) string {
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		question, _ := io.ReadAll(c)
		c.Write(append([]byte("you said: "), question...))
		c.Close()
	}()
	return ln.Addr().String()
}

// TestConnect sends the header in one piece and in several, with bytes after it and without.
func TestConnect(t *testing.T) {
	ln := start(t)
	for _, pieces := range [][]string{
		{"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\nhello"},
		{"CONN", "ECT %s HTTP/1.1\r\n", "Host: x\r\n\r", "\nhel", "lo"},
		{"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", "hello"},
	} {
		c, address := testnet.Dial(t, ln), target(t)
		for _, p := range pieces {
			if _, err := io.WriteString(c, strings.ReplaceAll(p, "%s", address)); err != nil {
				t.Fatal(err)
			}
		}
		c.(*net.TCPConn).CloseWrite()
		want := "HTTP/1.1 200 OK\r\n\r\nyou said: hello"
		if answer, err := io.ReadAll(c); err != nil || string(answer) != want {
			t.Errorf("%q: got %q, %v, want %q", pieces, answer, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	ln := start(t)
	// A client's port refuses connections. No other program can take it, unlike the port of a
	// closed listener.
	unused := testnet.Dial(t, ln).LocalAddr().String()
	for header, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":                  "HTTP/1.1 405 ",
		"CONNECT nowhere HTTP/1.1\r\nHost: x\r\n\r\n":        "HTTP/1.1 405 ",
		"CONNECT " + unused + " HTTP/1.1\r\nHost: x\r\n\r\n": "HTTP/1.1 502 ",
		strings.Repeat("x", 2*headerBytesMax):                "",
	} {
		c := testnet.Dial(t, ln)
		io.WriteString(c, header)
		answer, _ := io.ReadAll(c) // a reset may end it
		if !strings.HasPrefix(string(answer), want) || want == "" && len(answer) > 0 {
			t.Errorf("%.40q: got %q, want %q", header, answer, want)
		}
	}
}
