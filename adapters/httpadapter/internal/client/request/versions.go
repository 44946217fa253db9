//go:build go1.27

package request

// Drains says that a body that was closed early is drained.
const Drains = true

// RetriesBreaches says that a request is sent again whose stream the server has reset with
// PROTOCOL_ERROR.
const RetriesBreaches = false
