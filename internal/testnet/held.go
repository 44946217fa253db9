package testnet

import (
	"net"
	"sync"
	"syscall"

	"github.com/percore/percore/internal/sys"
)

// HeldEnd is a connection whose reader doesn't find out that the peer has ended it, though the kernel
// knows, before Close is called. Make it with HoldEnd.
type HeldEnd struct {
	net.Conn
	raw     syscall.Conn
	held    chan struct{}
	release func()
}

// HoldEnd holds back the end of c, which must be a connection of package net's.
func HoldEnd(c net.Conn) *HeldEnd {
	held := make(chan struct{})
	return &HeldEnd{c, c.(syscall.Conn), held, sync.OnceFunc(func() { close(held) })}
}

// Read implements [net.Conn].
func (h *HeldEnd) Read(p []byte) (n int, err error) {
	if n, err = h.Conn.Read(p); n == 0 {
		<-h.held
	}
	return n, err
}

// Close implements [net.Conn].
func (h *HeldEnd) Close() error {
	defer h.release()
	return h.Conn.Close()
}

// SyscallConn implements [syscall.Conn].
func (h *HeldEnd) SyscallConn() (syscall.RawConn, error) { return h.raw.SyscallConn() }

// HungUp reports whether the kernel knows the end. Off Linux it is always false.
func (h *HeldEnd) HungUp() (hasEnded bool) {
	if raw, err := h.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { hasEnded = sys.HungUp(int(fd)) })
	}
	return hasEnded
}
