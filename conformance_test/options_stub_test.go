//go:build !linux

package conformance

import "net"

// Only Linux can read the options back here; on other systems percore's sockets are net's.

func (a *actor) noteOptions(string) {}

func (s *stage) noteListenerOptions(net.Listener) {}
