// Package handover restarts a server without closing its connections: a successor process gets the
// listeners, and the connections that wait between requests.
//
// [Give] is for the process that leaves, [Take] for the one that comes. They talk over a unix socket of
// the network "unixpacket", which the successor inherits ([Start], [Inherited]) or which has a name
// (net.ListenUnix, net.DialUnix).
package handover
