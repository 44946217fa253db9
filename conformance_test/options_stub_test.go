//go:build !linux

package conformance

import "net"

// Reading options back is written for Linux only; elsewhere percore's sockets
// are net's.

func (a *actor) noteOptions(string) {}

func (s *stage) noteListenerOptions(net.Listener) {}
