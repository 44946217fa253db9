package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// startLocal runs n processes of this program on this machine until ctx ends.
func startLocal(ctx context.Context, n int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var routes []string
	for i := range n {
		routes = append(routes, fmt.Sprintf("localhost:%d", 6221+i))
	}
	var processes sync.WaitGroup
	for i := range n {
		cmd := exec.CommandContext(ctx, exe, "-addr", fmt.Sprintf("localhost:%d", 8081+i),
			"-cluster", routes[i], "-routes", strings.Join(routes, ","))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		if err := cmd.Start(); err != nil {
			return err
		}
		log.Printf("process %d: http://localhost:%d (to kill it: kill -9 %[1]d)", cmd.Process.Pid, 8081+i)
		processes.Go(func() { log.Printf("process %d: %v", cmd.Process.Pid, cmd.Wait()) })
	}
	processes.Wait()
	return nil
}
