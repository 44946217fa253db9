//go:build !linux

package zerocopy

import "syscall"

// Sender sends nothing on this platform.
type Sender struct{}

// NewSender returns a Sender whose Write fails.
func NewSender(fd int, holder Holder, bytesMin int) *Sender { return new(Sender) }

// Write fails with [syscall.ENOSYS].
func (s *Sender) Write(fd int, p []byte, b Buffer) (n int, err error) { return 0, syscall.ENOSYS }

// Drain does nothing.
func (s *Sender) Drain(fd int) {}
