//go:build !linux || percore_net

package handover

import (
	"errors"
	"net"
	"os"
)

// Descriptors travel on Linux only. These few functions are there so that the code above them
// compiles; movingListener and inherited let no handover begin.

const (
	descriptorsTravel = false
	rightsBytesMax    = 0
)

func writeMsg(*net.UnixConn, []byte, []int) error { return errUnsupported }

func readMsg(*net.UnixConn, []byte, []byte) ([]byte, descriptors, error) {
	return nil, nil, errUnsupported
}

func hasCome(*net.UnixConn) bool { return false }

func socketpair() (*net.UnixConn, *os.File, error) { return nil, nil, errUnsupported }

func inherit(fd, uid int) (*net.UnixConn, error) { return nil, errUnsupported }

func checkDescriptors(uint64) error { return errUnsupported }

type place struct{}

func placeOf(int) (place, error) { return place{}, errUnsupported }

func (place) check(int) (ended bool, err error) { return false, errors.ErrUnsupported }
