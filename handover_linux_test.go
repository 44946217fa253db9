//go:build !percore_net

package percore

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// load is clients that connect, ask for their server's name, and disconnect, for as long
// as they are not stopped.
type load struct {
	t       *testing.T
	address string
	stopped atomic.Bool
	clients sync.WaitGroup

	mu struct {
		sync.Mutex
		served map[string]int // connections, by the name of the server
	}
}

func startLoad(t *testing.T, address string) *load {
	l := &load{t: t, address: address}
	l.mu.served = map[string]int{}
	for range 6 {
		l.clients.Go(l.client)
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.clients.Wait()
}

func (l *load) client() {
	for !l.stopped.Load() {
		name, err := askName(l.address)
		if err != nil {
			l.t.Errorf("a client: got %v, want to be served", err)
			return
		}
		l.mu.Lock()
		l.mu.served[name]++
		l.mu.Unlock()
	}
}

// awaitServer waits until a server of that name has had a few connections.
func (l *load) awaitServer(name string) {
	l.t.Helper()
	testnet.Eventually(l.t, "connections served by "+name, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.mu.served[name] >= 5 || l.t.Failed()
	})
}

// askName asks for the server of a new connection.
func askName(address string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.(*net.TCPConn).SetLinger(0) // or the ports run out
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.WriteString(c, "who\n"); err != nil {
		return "", err
	}
	name, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(name, "\n"), err
}

// serveName answers what askName asks until ln is closed, and then finishes what
// it has begun.
func serveName(ln net.Listener, name string) {
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
				io.Copy(io.Discard, c)
			}
		})
	}
}

// TestHandOver hands the sockets of a listener to a successor again and again,
// under load. No client may notice.
func TestHandOver(t *testing.T) {
	testnet.NoLeaks(t)
	const generations = 30
	lns := []*Listener{listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")}
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { serveName(lns[0], "0") })
	load := startLoad(t, lns[0].Addr().String())
	load.awaitServer("0")
	for generation := range generations {
		name := strconv.Itoa(generation + 1)
		var heirs []*Listener
		for _, ln := range lns {
			files, err := ln.Files()
			if err != nil {
				t.Fatalf("Files: %v", err)
			}
			for _, f := range files {
				heir, err := FileListener(f)
				f.Close()
				if err != nil {
					t.Fatalf("FileListener: %v", err)
				}
				t.Cleanup(func() { heir.Close() })
				heirs = append(heirs, heir.(*Listener))
			}
		}
		for _, heir := range heirs {
			serving.Go(func() { serveName(heir, name) })
		}
		for _, ln := range lns {
			if err := ln.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		load.awaitServer(name)
		lns = heirs
	}
	load.stop()
	for _, ln := range lns {
		ln.Close()
	}
}

// fdsInherited is how the successor process learns how many sockets it has got.
const fdsInherited = "PERCORE_TEST_INHERITED"

func init() {
	// Serves on the sockets that it has inherited until its standard input ends.
	children["successor"] = func() {
		n, err := strconv.Atoi(os.Getenv(fdsInherited))
		if err != nil {
			exitChild(fdsInherited, err)
		}
		var lns []net.Listener
		var serving sync.WaitGroup
		for i := range n {
			f := os.NewFile(uintptr(3+i), "inherited") // os/exec puts ExtraFiles there
			ln, err := FileListener(f)
			if err != nil {
				exitChild("FileListener", err)
			}
			f.Close()
			lns = append(lns, ln)
			serving.Go(func() { serveName(ln, "successor") })
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		for _, ln := range lns {
			ln.Close()
		}
		serving.Wait()
	}
}

// TestRestart hands the sockets to another process, as a server does that
// restarts as a new version of itself, under load. No client may notice.
func TestRestart(t *testing.T) {
	testnet.NoLeaks(t)
	ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
	var serving sync.WaitGroup
	serving.Go(func() { serveName(ln, "predecessor") })
	load := startLoad(t, ln.Addr().String())
	load.awaitServer("predecessor")

	files, err := ln.Files()
	if err != nil {
		t.Fatalf("Files: %v", err)
	}
	successor := exec.Command(os.Args[0])
	successor.Env = append(os.Environ(), "PERCORE_TEST_CHILD=successor", fdsInherited+"="+strconv.Itoa(len(files)))
	successor.ExtraFiles = files
	var complaints strings.Builder
	successor.Stderr = &complaints
	stdin, err := successor.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := successor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := successor.Start(); err != nil {
		t.Fatal(err)
	}
	defer successor.Process.Kill()
	for _, f := range files {
		f.Close()
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the successor: got %q, %v, want it to be ready", line, err)
	}
	if err := ln.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	serving.Wait()
	load.awaitServer("successor")
	load.stop()
	stdin.Close()
	if err := successor.Wait(); err != nil {
		t.Errorf("the successor: %v\n%s", err, complaints.String())
	}
}
