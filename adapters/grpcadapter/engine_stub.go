//go:build !linux || percore_net

package grpcadapter

import (
	"errors"
	"syscall"
	"time"
)

// connsAreNets says whether percore's connections wrap package net's. For those grpc-go does the
// work of this package itself.
const connsAreNets = true

// setUserTimeout is never called where connections are package net's.
func setUserTimeout(syscall.Conn, time.Duration) error { return errors.ErrUnsupported }
