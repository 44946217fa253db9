package percore

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

func TestScratchDeadline(t *testing.T) {
	ln := (&ListenConfig{}).listenIn(t, "tcp", "127.0.0.1:0")
	testnet.Within(t, "deadlines", func() {
		for i := range 20000 {
			ln.SetDeadline(time.Now().Add(time.Duration(i%500)))
			if _, err := ln.Accept(); err == nil {
				panic("accepted")
			}
		}
	})
}

func TestScratchShutdown(t *testing.T) {
	ln := (&ListenConfig{}).listenIn(t, "tcp", "127.0.0.1:0")
	srv := &http.Server{}
	var wg sync.WaitGroup
	for _, s := range ln.PerLoop() {
		wg.Go(func() { t.Log(srv.Serve(s)) })
	}
	time.Sleep(100 * time.Millisecond)
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestScratchHijack(t *testing.T) {
	a := (&ListenConfig{}).listenIn(t, "tcp", "127.0.0.1:0")
	b, err := (&ListenConfig{ReusePort: true}).Listen(context.Background(), "tcp", a.Addr().String())
	if err == nil {
		b.Close()
		t.Error("shared")
	}
}
func TestScratchKeepAlive(t *testing.T) {
	nl, err := (&net.ListenConfig{KeepAlive: 24 * time.Hour}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	t.Log(err)
	nl.Close()
	l, err := (&ListenConfig{KeepAlive: 24 * time.Hour}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
func TestScratchQueue(t *testing.T) {
	q := newAcceptQueue(10)
	q.push(&Conn{})
	for range 1 << 20 {
		q.push(&Conn{})
		q.pop()
	}
	t.Log(cap(q.mu.conns))
}

func init() {
	children["scratchblock"] = func() {
		nl, _ := net.Listen("tcp", "127.0.0.1:0")
		f, _ := nl.(*net.TCPListener).File()
		l, err := FileListener(f)
		if err != nil {
			fatalChild("fl", err)
		}
		nl.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go echoAll(c)
			}
		}()
		c1, _ := net.Dial("tcp", l.Addr().String())
		println(roundTrip(c1, "one"))
		f.Fd()
		c2, _ := net.Dial("tcp", l.Addr().String())
		println(roundTrip(c2, "two"))
		println(roundTrip(c1, "three"))
		os.Stdout.WriteString("done\n")
	}
}

func TestScratchBlock(t *testing.T) {
	c := testnet.StartChild(t, "scratchblock", "GOMAXPROCS=1")
	testnet.Within(t, "child", func() {
		b, _ := io.ReadAll(c.Stdout)
		t.Log(string(b), c.Wait())
	})
}
