//go:build !go1.27

package client

const drains = false

const retriesBreaches = true
