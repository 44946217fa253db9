//go:build go1.27

package client

// drains says that a body that was closed early is drained.
const drains = true

// retriesBreaches says that a request is sent again whose stream the server has reset with
// PROTOCOL_ERROR.
const retriesBreaches = false
