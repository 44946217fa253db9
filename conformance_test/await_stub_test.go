//go:build !linux

package conformance

import "time"

// There is no portable way to look into a socket, so just wait a moment.

func (a *actor) awaitReadable(int) { time.Sleep(50 * time.Millisecond) }

func (a *actor) awaitPeerClosed() { time.Sleep(50 * time.Millisecond) }

func (a *actor) awaitBroken() { time.Sleep(50 * time.Millisecond) }

func (a *actor) rawRead(size int) (int, string) { return a.readOnce(size) }
