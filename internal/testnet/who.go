package testnet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// ServeName answers each [AskName] with name until ln is closed, and returns when all
// connections that it accepted have ended.
func ServeName(ln net.Listener, name string) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer c.Close()
			if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				fmt.Fprintln(c, name)
				io.Copy(io.Discard, c) // the client closes first
			}
		})
	}
}

// AskName connects to a TCP address and returns the name that its [ServeName] answers
// with. It may be called from any goroutine.
func AskName(address string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.(*net.TCPConn).SetLinger(0) // or the ports run out
	c.SetDeadline(time.Now().Add(HangTimeout))
	if _, err := io.WriteString(c, "who\n"); err != nil {
		return "", err
	}
	name, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(name, "\n"), err
}
