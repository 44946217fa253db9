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

func TestServe(t *testing.T) {
	server := testnet.Listen(t, net.Listen, testnet.TCP4)
	go func() {
		c, err := server.Accept()
		if err != nil {
			return
		}
		question, _ := io.ReadAll(c)
		c.Write(append([]byte("you said: "), question...))
		c.Close()
	}()
	proxy := testnet.Listen(t, percore.Listen, testnet.TCP4)
	done := make(chan error, 1)
	go func() { done <- serve(proxy, server.Addr().String()) }()

	c := testnet.Dial(t, proxy)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || string(answer) != "you said: hello" {
		t.Errorf("got %q, %v, want the server's answer", answer, err)
	}
	proxy.Close()
	testnet.Receive(t, "the proxy's end", done)
}

// Without -to the program says so at once, and not to each client.
func TestMissingTo(t *testing.T) {
	if err := serve(testnet.Listen(t, percore.Listen, testnet.TCP4), ""); err == nil || !strings.Contains(err.Error(), "-to") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
