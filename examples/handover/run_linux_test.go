//go:build !percore_net

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// TestRun keeps one connection of a client open over two restarts.
func TestRun(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(os.Args[0], "-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "HANDOVER_EXAMPLE=1")
	cmd.Stderr = w
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // or the process ignores it if this one does (nohup)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	log := bufio.NewScanner(r)
	// serving returns the next process that reports that it serves.
	serving := func() (pid int, address string) {
		t.Helper()
		for log.Scan() {
			_, line, _ := strings.Cut(log.Text(), "process ")
			if _, err := fmt.Sscanf(line, "%d serves http://%s", &pid, &address); err == nil {
				return pid, address
			}
			t.Log(log.Text())
		}
		t.Fatal("the processes have ended")
		return 0, ""
	}
	pid, address := serving()
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for generation := range 3 {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example\r\n\r\n"); err != nil {
			t.Fatalf("generation %d: %v", generation, err)
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("generation %d: %v", generation, err)
		}
		body, err := io.ReadAll(resp.Body)
		if want := fmt.Sprintln("hello from process", pid); err != nil || string(body) != want {
			t.Errorf("generation %d: got %q, %v, want %q", generation, body, err, want)
		}
		if generation < 2 {
			_ = syscall.Kill(pid, syscall.SIGHUP)
			before := pid
			if pid, _ = serving(); pid == before {
				t.Fatal("the same process again")
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the first process: %v", err)
	}
}
