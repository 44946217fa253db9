//go:build !linux || percore_net

package main

import "net"

// peer is the process at the other end of a unix socket.
type peer struct{ pid, uid int }

// peerOf returns no process: none can connect here, where listenControl makes no listener.
func peerOf(*net.UnixConn) peer { return peer{uid: -1} }
