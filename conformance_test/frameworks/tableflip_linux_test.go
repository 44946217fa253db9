package frameworks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cloudflare/tableflip"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func init() {
	platformChildren = append(platformChildren, testnet.WithChild("tableflip", runTableflip))
}

// tableflipMode says how the process "tableflip" passes its listener on.
const tableflipMode = "TABLEFLIP_MODE"

// runTableflip runs a server. SIGHUP makes it start a successor and give it the listener. It
// reports on its standard output that it serves, and logs there. It exits at the end of its
// standard input.
func runTableflip() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	go func() { // successors have the same standard input
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := serveTableflip(os.Getenv(tableflipMode)); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0) // tableflip leaves a goroutine and a descriptor behind, which tell the successor
}

func serveTableflip(mode string) error {
	upgrader, err := tableflip.New(tableflip.Options{UpgradeTimeout: testnet.HangTimeout})
	if err != nil {
		return err
	}
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, syscall.SIGHUP)
	listen := listenFiles
	if mode == "AddListener" {
		listen = listenOne
	}
	ln, err := listen(upgrader.Fds, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() { testnet.ServeName(ln, strconv.Itoa(os.Getpid())) })
	if err := upgrader.Ready(); err != nil {
		return err
	}
	fmt.Println("serving", os.Getpid(), ln.Addr())
	<-restart
	if err := upgrader.WaitForParent(context.Background()); err != nil {
		return err
	}
	if err := upgrade(upgrader); err != nil {
		return err
	}
	<-upgrader.Exit()
	ln.Close()
	serving.Wait()
	return nil
}

// upgrade is Upgrade, but first waits until the upgrader's goroutine has noticed that Ready was
// called and that the parent has exited. Ready and WaitForParent return before that.
func upgrade(upgrader *tableflip.Upgrader) error {
	for {
		err := upgrader.Upgrade()
		if err == nil || err.Error() != "process is not ready yet" && err.Error() != "parent hasn't exited" {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// listenFiles passes on all sockets, each under its own name. This is the recommended way.
func listenFiles(fds *tableflip.Fds, network, address string) (net.Listener, error) {
	name := func(i int) string { return fmt.Sprintf("%s %s #%d", network, address, i) }
	var inherited []*os.File
	for {
		f, err := fds.File(name(len(inherited)))
		if err != nil {
			return nil, err
		}
		if f == nil {
			break
		}
		defer f.Close()
		inherited = append(inherited, f)
	}
	if len(inherited) > 0 {
		return percore.FileListeners(inherited...) // tableflip passes them on by itself
	}
	ln, err := percore.Listen(network, address)
	if err != nil {
		return nil, err
	}
	files, err := ln.(*percore.Listener).Files()
	if err != nil {
		return nil, err
	}
	for i, f := range files {
		if err := fds.AddFile(name(i), f); err != nil {
			return nil, err
		}
		f.Close()
	}
	return ln, nil
}

// listenOne lets tableflip copy a descriptor, as it does with package net's listeners, which have
// only one.
func listenOne(fds *tableflip.Fds, network, address string) (net.Listener, error) {
	return fds.ListenWithCallback(network, address, percore.Listen)
}

// flipping is a chain of processes that tableflip makes.
type flipping struct {
	*testing.T
	lines chan string // their output
}

func startFlipping(t *testing.T, mode string) *flipping {
	if runtime.GOOS != "linux" {
		t.Skip("a listener has several sockets on Linux only")
	}
	first := testnet.StartChild(t, "tableflip", tableflipMode+"="+mode, "GOMAXPROCS=3")
	t.Cleanup(func() { first.Stdin.Close() }) // ends any that is left
	f := &flipping{T: t, lines: make(chan string, 64)}
	go func() {
		defer close(f.lines)
		scanner := bufio.NewScanner(first.Stdout) // from all of them
		for scanner.Scan() {
			f.lines <- scanner.Text()
		}
	}()
	return f
}

// serving waits until the next process serves.
func (f *flipping) serving() (pid int, address string) {
	f.Helper()
	line := testnet.Receive(f, "the next process", f.lines)
	if _, err := fmt.Sscanf(line, "serving %d %s", &pid, &address); err != nil {
		f.Fatalf("got %q, want the next process to serve", line)
	}
	return pid, address
}

// flip makes a process start its successor and exit.
func (f *flipping) flip(pid int) {
	f.Helper()
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		f.Fatalf("SIGHUP: %v", err)
	}
}

// TestTableflip replaces one process after another, under load. No client may notice.
func TestTableflip(t *testing.T) {
	f := startFlipping(t, "Files")
	pid, address := f.serving()
	var stopped atomic.Bool
	var served sync.Map // keys are process numbers
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stopped.Store(true)
	for range 6 {
		clients.Go(func() {
			for !stopped.Load() {
				pid, err := testnet.AskName(address)
				if err != nil {
					t.Errorf("a client: got %v, want to be served", err)
					return
				}
				served.Store(pid, true)
			}
		})
	}
	for range 4 {
		testnet.Eventually(t, fmt.Sprintf("a client of process %d", pid), func() bool {
			_, ok := served.Load(strconv.Itoa(pid))
			return ok || t.Failed()
		})
		f.flip(pid)
		pid, _ = f.serving()
	}
	testnet.Eventually(t, "a client of the last process", func() bool {
		_, ok := served.Load(strconv.Itoa(pid))
		return ok || t.Failed()
	})
}

// TestTableflipOneSocket: with AddListener tableflip passes on only one of the sockets. The
// predecessor must report that.
func TestTableflipOneSocket(t *testing.T) {
	f := startFlipping(t, "AddListener")
	pid, _ := f.serving()
	f.flip(pid)
	var lines []string // the successor's and the warning, in any order
	for range 2 {
		lines = append(lines, testnet.Receive(t, "a line", f.lines))
	}
	if all := strings.Join(lines, "\n"); !strings.Contains(all, "level=WARN") || !strings.Contains(all, "FileListeners") {
		t.Errorf("got %q, want a warning that names FileListeners", all)
	}
}
