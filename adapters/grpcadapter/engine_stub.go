//go:build !linux || percore_net

package grpcadapter

import (
	"errors"
	"syscall"
	"time"
)

// connsAreNets says whether percore's connections wrap package net's. If so, grpc-go does by itself
// what serveByGRPC does for percore's.
const connsAreNets = true

// setUserTimeout needs the engine; connections work without it.
func setUserTimeout(syscall.Conn, time.Duration) error { return errors.ErrUnsupported }

// acceptQueue is called only where setUserTimeout succeeds.
func acceptQueue(syscall.Conn) int64 { return 0 }
