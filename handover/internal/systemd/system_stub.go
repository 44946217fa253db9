//go:build !linux || percore_net

package systemd

// monotonicUsec has no time: there are no handovers here.
func monotonicUsec() string { return "" }

// closeOnExec does nothing: the caller closes the sockets soon.
func closeOnExec(int) {}
