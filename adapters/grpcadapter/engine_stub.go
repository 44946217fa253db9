//go:build !linux || percore_net

package grpcadapter

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// connsAreNets says whether percore's connections wrap package net's. For those grpc-go does the
// work of this package itself.
const connsAreNets = true

// Listen is net.Listen here: for package net's connections grpc-go itself does the work that this
// package does for percore's on Linux.
func Listen(network, address string) (net.Listener, error) { return net.Listen(network, address) }

// setUserTimeout is never called where connections are package net's.
func setUserTimeout(syscall.Conn, time.Duration) error { return errors.ErrUnsupported }
