package testnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// leakVariable makes this binary's tests leave something behind on purpose.
const leakVariable = "PERCORE_TEST_LEAK"

func TestMain(m *testing.M) {
	check := func() error { return nil }
	if leak := os.Getenv(leakVariable); leak != "" {
		leakGrace = 100 * time.Millisecond
		check = func() error {
			if leak == "buffer" {
				return errors.New("1 buffer not released")
			}
			return nil
		}
	}
	Main(m, WithCheck(check), WithChild("echo", echoOneLine), WithChild("leaky", leakInChild))
}

// TestLeaveSomething passes, and leaves behind the leak that leakVariable asks for.
func TestLeaveSomething(t *testing.T) {
	switch os.Getenv(leakVariable) {
	case "goroutine":
		go func() { select {} }()
	case "descriptor":
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		leakedListener = ln
	}
}

var leakedListener net.Listener

func TestMainFailsOnLeak(t *testing.T) {
	for leak, want := range map[string]string{
		"goroutine":  "testnet.TestLeaveSomething.func1",
		"descriptor": "local=127.0.0.1:",
		"buffer":     "1 buffer not released",
		"nothing":    "",
	} {
		t.Run(leak, func(t *testing.T) {
			if leak == "descriptor" && runtime.GOOS != "linux" {
				t.Skip("descriptors are checked on Linux only")
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestLeaveSomething$")
			cmd.Env = append(os.Environ(), leakVariable+"="+leak)
			out, err := cmd.CombinedOutput()
			if failed := err != nil; failed != (want != "") {
				t.Errorf("got failure %v (%v), want %v\n%s", failed, err, want != "", out)
			}
			if !strings.Contains(string(out), want) {
				t.Errorf("got output %q, want it to mention %q", out, want)
			}
		})
	}
}

func TestCheckForgetsWhatEnded(t *testing.T) {
	before := takeSnapshot()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	go func() { <-stop }()
	if err := before.check(); err == nil {
		t.Error("got no leak while a goroutine and a listener are there")
	}
	close(stop)
	ln.Close()
	if err := awaitNoLeak(before.check); err != nil {
		t.Errorf("got %v after both ended, want no leak", err)
	}
}

func TestLeakedFDs(t *testing.T) {
	before := map[int]string{0: "/dev/null", 3: "socket:[1]", 4: "pipe:[2]"}
	after := map[int]string{0: "/dev/null", 3: "socket:[9]", 900000: "pipe:[7]", 5: "/sys/fs/cgroup/cpu.max"}
	got := fmt.Sprint(leakedFDs(before, after))
	if want := "[3 socket:[9]"; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want it to start with %s", got, want)
	}
	if want := "900000 pipe:[7]]"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want it to end in %s", got, want)
	}
	if strings.Contains(got, "cgroup") {
		t.Errorf("got %s, want the runtime's own file left out", got)
	}
}

// echoOneLine is the child of TestChild.
func echoOneLine() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		os.Exit(3)
	}
	fmt.Printf("%s %s", os.Getenv("GREETING"), text)
}

// leakInChild leaves a goroutine behind.
func leakInChild() { go func() { select {} }() }

func TestChild(t *testing.T) {
	child := StartChild(t, "echo", "GREETING=hello")
	io.WriteString(child.Stdin, "there")
	child.Stdin.Close()
	got, err := io.ReadAll(child.Stdout)
	if err != nil || string(got) != "hello there" {
		t.Errorf("got %q, %v, want %q", got, err, "hello there")
	}
	if err := child.Wait(); err != nil {
		t.Errorf("got %v, want a clean exit", err)
	}
	err = StartChild(t, "leaky", leakVariable+"=child").Wait()
	if err == nil || !strings.Contains(err.Error(), "testnet.leakInChild") {
		t.Errorf("leaking helper: got %v, want an error naming the goroutine", err)
	}
	if err := StartChild(t, "nobody").Wait(); err == nil || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("unknown helper: got %v, want an error naming it", err)
	}
}

// TestSplicePoolIsNoLeak makes package net splice. After that, net keeps a pipe for the next time.
func TestSplicePoolIsNoLeak(t *testing.T) {
	NoLeaks(t)
	from, source := Pair(t, net.Listen, TCP4)
	to, sink := Pair(t, net.Listen, TCP4)
	io.WriteString(source, "text")
	source.Close()
	if n, err := io.Copy(to, from); n != 4 || err != nil {
		t.Errorf("copying: got %d, %v, want 4 bytes", n, err)
	}
	sink.Close()
}

func TestLeakedPipe(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("descriptors are checked on Linux only")
	}
	before := takeSnapshot()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := before.check(); err == nil || !strings.Contains(err.Error(), "pipe:[") {
			t.Errorf("got %v while a pipe is open, want it named", err)
		}
	}
	r.Close()
	w.Close()
}

func TestGoBlocked(t *testing.T) {
	release := make(chan struct{})
	var begun, ended atomic.Bool
	GoBlocked(t, "waiting", func() {
		for range 100 {
			runtime.Gosched() // runnable is not blocked
		}
		begun.Store(true)
		<-release
		ended.Store(true)
	})
	if !begun.Load() || ended.Load() {
		t.Errorf("begun: %t, ended: %t, want true and false", begun.Load(), ended.Load())
	}
	close(release)
	Eventually(t, "the end", ended.Load)
	GoBlocked(t, "returning", func() {}) // does not hang
}

// A thread that the kernel holds up in a system call that never blocks looks asleep. For a while,
// that doesn't count as blocked.
func TestGoBlockedHeldUp(t *testing.T) {
	var held atomic.Bool
	release := make(chan struct{})
	GoBlocked(t, "held up", func() {
		time.Sleep(briefLooks / 4 * time.Millisecond)
		held.Store(true)
		<-release
	})
	if !held.Load() {
		t.Error("it counted as blocked while it was held up")
	}
	close(release)
}

// A goroutine that waits for the garbage collector is not blocked: any goroutine that allocates may
// have to.
func TestGoBlockedAllocating(t *testing.T) {
	var kept [][]byte
	for range 20 {
		ended, release := make(chan struct{}), make(chan struct{})
		GoBlocked(t, "allocating", func() {
			for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
				kept = kept[:0]
				for range 2000 {
					kept = append(kept, make([]byte, 1000))
				}
			}
			close(ended)
			<-release
		})
		select {
		case <-ended:
		default:
			t.Error("it counted as blocked while it was at work")
			<-ended
		}
		close(release)
	}
}

// A listener at a reserved address can be closed and opened again, and has the address for itself.
func TestReservedAddress(t *testing.T) {
	OnEachKind(t, func(t *testing.T, kind Kind) {
		network, address := ReservedAddress(t, kind)
		for range 2 {
			ln, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			if got := ln.Addr().String(); got != address {
				t.Errorf("got a listener at %s, want %s", got, address)
			}
			Dial(t, ln).Close()
			ln.Close()
			if c, err := net.Dial(network, address); err == nil {
				c.Close()
				t.Errorf("somebody listens at %s yet", address)
			}
		}
	})
}

// TestHeldEnd: the end of a connection is held back until it is closed, and everything else goes on.
func TestHeldEnd(t *testing.T) {
	CheckMethods[*HeldEnd](t, MethodTable{
		Own:      "Read Close SyscallConn HungUp",
		Promoted: map[string]string{"they don't read": "Write LocalAddr RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline"},
	})
	l := Listen(t, net.Listen, TCP4)
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Write([]byte("x"))
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	held := HoldEnd(c)
	reads := make(chan error)
	go func() {
		for range 2 {
			_, err := held.Read(make([]byte, 1))
			reads <- err
		}
	}()
	if err := Receive(t, "a byte", reads); err != nil {
		t.Error(err)
	}
	if runtime.GOOS == "linux" {
		Eventually(t, "the end", held.HungUp)
	}
	select {
	case err := <-reads:
		t.Errorf("the end came before Close: %v", err)
	default:
	}
	held.Close()
	if err := Receive(t, "the end", reads); err == nil {
		t.Error("got another byte")
	}
}
