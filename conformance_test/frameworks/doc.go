// Package frameworks runs what people build HTTP servers with, unchanged and with
// real clients, on package net, on percore, and through httpadapter: web
// frameworks, RPC, WebSockets, listeners that wrap others, TLS certificates on
// demand, reverse proxies and files. What a test sees on net is what it must see
// everywhere.
package frameworks
