//go:build !linux

package loop

import (
	"errors"
	"fmt"
	"syscall"
)

// poller can't be made off Linux: newPoller always fails, so that no other method is ever called.
type poller struct{}

// eventArray stays empty.
type eventArray struct{}

func (a *eventArray) event(int) (token, Readiness) { return token{}, 0 }

const (
	closeIsExpensive = false

	toReads, toWrites, toMasked = 0, 0, 0
)

var wakeToken = token{slot: ^uint32(0), gen: ^uint32(0)}

func newPoller() (*poller, error) {
	return nil, fmt.Errorf("loop: the engine needs Linux's epoll: %w", errors.ErrUnsupported)
}

func (p *poller) close()                               {}
func (p *poller) waitNested(func(uintptr) bool)        {}
func (p *poller) waitBlocking(func(uintptr) bool)      {}
func (p *poller) kick()                                {}
func (p *poller) poll(*eventArray) (int, bool)         { return 0, false }
func (p *poller) glance(*eventArray) int               { return 0 }
func (p *poller) linger(*eventArray) int               { return 0 }
func (p *poller) add(int, token) syscall.Errno         { return syscall.ENOSYS }
func (p *poller) change(int, token, int) syscall.Errno { return syscall.ENOSYS }
func (p *poller) del(int)                              {}
func (p *poller) wake()                                {}
func (p *poller) awake()                               {}
func (p *poller) sleep(int) (Readiness, bool)          { return 0, false }

func pinThread(int) {}
