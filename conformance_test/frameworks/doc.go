// Package frameworks runs the libraries that people build HTTP servers with, unchanged and with
// real clients, on package net, on percore, and through httpadapter: web frameworks, RPC,
// WebSockets, listeners that wrap others, TLS certificates on demand, reverse proxies and
// files. A test must see on every engine the same as on net everywhere.
package frameworks
