//go:build !linux

package sockaddr

// Off Linux package net makes all addresses.
