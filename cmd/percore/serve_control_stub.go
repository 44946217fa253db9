//go:build !linux || percore_net

package main

// isOwn reports false: there are no sockets for -upgrade.
func isOwn(string) bool { return false }
