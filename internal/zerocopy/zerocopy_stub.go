//go:build !linux

package zerocopy

// There are no functions here: percore is package net, which may have shortcuts of its own.
