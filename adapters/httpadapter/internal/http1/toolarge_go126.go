//go:build !go1.27

package http1

const tooLargeInHeader = true // see toolarge.go
