//go:build !linux || percore_net

package percore

import "net"

// adopt makes a Conn of package net's connection, which stays as it is.
func (d *Dialer) adopt(_ string, nc net.Conn, _ bool) (*Conn, error) { return newConn(nc), nil }

func (d *Dialer) hold(string) error { return nil }
func (d *Dialer) release()          {}
