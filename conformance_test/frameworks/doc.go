// Package frameworks runs the libraries that people build HTTP servers with, unchanged and with real
// clients, on package net, on percore, and through httpadapter. They are web frameworks, RPC,
// WebSockets, listeners that wrap others, TLS certificates on demand, reverse proxies and files. A
// test must see the same on every engine as on net.
package frameworks
