//go:build !linux

package conformance

import "time"

// Without a portable way to look into a socket, a moment has to do.

func (a *actor) awaitReadable(int) { time.Sleep(50 * time.Millisecond) }

func (a *actor) awaitPeerClosed() { time.Sleep(50 * time.Millisecond) }

func (a *actor) awaitBroken() { time.Sleep(50 * time.Millisecond) }
