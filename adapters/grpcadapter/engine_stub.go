//go:build !linux || percore_net

package grpcadapter

import (
	"errors"
	"syscall"
	"time"
)

// connsAreNets says whether percore's connections wrap package net's. For those grpc-go does by
// itself what serveByGRPC does for percore's.
const connsAreNets = true

// setUserTimeout is the engine's only: connections are as good without.
func setUserTimeout(syscall.Conn, time.Duration) error { return errors.ErrUnsupported }

// acceptQueue is asked only where setUserTimeout succeeds.
func acceptQueue(syscall.Conn) int64 { return 0 }
