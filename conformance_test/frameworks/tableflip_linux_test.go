package frameworks

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
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

// runTableflip runs a server. SIGHUP makes it start a successor and give it the listener. It prints that
// it serves.
func runTableflip() {
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
	fmt.Printf("process %d serves http://%v\n", os.Getpid(), ln.Addr())
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

// startFlipping starts the first process of a chain that tableflip makes.
func startFlipping(t *testing.T, mode string) *testnet.Restarts {
	t.Setenv(tableflipMode, mode)
	t.Setenv("GOMAXPROCS", "3")
	return testnet.StartChildRestarts(t, "tableflip")
}

// TestTableflip replaces one process after another, under load. No client may notice.
func TestTableflip(t *testing.T) {
	server := startFlipping(t, "Files")
	address := server.Address
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
	for flips := range 5 {
		if flips > 0 {
			server.Restart()
		}
		testnet.Eventually(t, fmt.Sprintf("a client of process %d", server.PID), func() bool {
			_, ok := served.Load(strconv.Itoa(server.PID))
			return ok || t.Failed()
		})
	}
}

// TestTableflipOneSocket: with AddListener tableflip passes on only one of the sockets. The
// predecessor must report that.
func TestTableflipOneSocket(t *testing.T) {
	server := startFlipping(t, "AddListener")
	server.Restart()
	testnet.Eventually(t, "a warning that names FileListeners", func() bool {
		return server.Log.Has("WARN") && server.Log.Has("FileListeners")
	})
}
