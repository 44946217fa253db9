// Package handover restarts a server without closing its connections: a successor process gets the
// listeners, and the connections that are idle between requests.
//
// [Service] does all of it, and stops the server as load balancers expect:
//
//	service := handover.Service{
//		Parts:      []handover.Part{{Name: "web", Address: ":8080", Server: httpadapter.Wrap(srv)}},
//		Restart:    syscall.SIGHUP,
//		DrainDelay: 5 * time.Second,
//		Drain:      time.Minute,
//		Leaving:    func() { ready.Store(false) },
//	}
//	err := service.Run(context.Background())
//
// At the signal the process starts the program anew, and hands over to that process. The process that
// was started first ends. If a container or a supervisor waits for it and doesn't follow the new pid,
// that is the end of the service: docs/OPERATIONS.md has a table.
//
// # What moves
//
// All sockets of the listeners move, with the connections in their backlogs. So do the connections of
// servers that have httpadapter's method HandOver: plain HTTP/1 connections, as soon as they wait for a
// request. Bytes that have arrived and were not read go with them, and so do the client's addresses
// from a PROXY header. Accept of the successor's listener returns them, so any server can take
// them. OnAccept is called for them, and MaxConns counts them but doesn't hold them up. The clients
// notice nothing. Connections that stay with the predecessor are not in the successor's MaxConns: until
// they end both processes together may have twice as many.
//
// Connections over TLS, connections with HTTP/2, and hijacked connections stay: their state is in the
// memory of the process. ([Conns.Carry] is for hijacked ones whose state can be written down, such as
// WebSockets of wsadapter.Group.) They end when the predecessor shuts down ([Conns] tells hijacked
// ones); clients of httpadapter's HTTP2 are told before to open their next streams elsewhere. A
// connection that never waits for a request, because its client pipelines requests endlessly, stays
// too.
//
// A new version that listens at more addresses opens the others itself. The predecessor closes a port
// that the new version doesn't want when it shuts down.
//
// A server must go on calling Accept during the handover, and must know a connection before it calls
// Accept again, as http.Server does: that call is how a Service learns that the last connection has
// reached the server. It waits for 5 seconds for as many goroutines as have ever waited in Accept at the
// same time, logs a line to slog's default logger, and goes on.
//
// # When a process fails
//
// Until all listeners of the successor are served, for which it has 30 seconds, the predecessor serves
// as usual. From then on it leaves new connections in the backlog, which both processes share. If the
// successor fails, is killed, hangs or is stopped, sends something invalid, or doesn't answer for 10
// seconds, the predecessor accepts again, and still has all connections that it has not committed to the
// successor.
//
// At the end the successor says that it has taken over. Without that message the predecessor goes on
// serving. A successor that could not take over ends by itself, unless it hangs: then the predecessor
// kills it after a while. It has copies of sockets, so clients would not see the predecessor close their
// connections, and once that had ended, new connections would wait for the successor forever.
//
// A process counts only the time while it is running itself. If it was stopped, or its machine
// slept, it doesn't blame the other process for that.
//
// A batch of at most 253 connections is committed when the successor has said that it holds them.
// Before that they belong to the predecessor, and afterwards to the successor: at any time at most
// one process reads from a connection. A process that gives up, but lives, never loses one.
// Connections that were committed to a process that is then killed end with it, as with any crash.
//
// If the predecessor is killed after that, or sends nothing for 10 seconds, the successor has the
// listeners and the connections that were committed until then, and goes on serving. A predecessor that
// wakes up notices this, and shuts down. If two processes take each other for hung at the same time, the
// kernel decides which of them goes on serving, and both know.
//
// # Security
//
// A process that gets the sockets gets the clients. They go through a pair of sockets that the
// predecessor makes for the process which it starts. It has no name, so no other process can connect to
// it. A process that was started with such a socket takes nothing from it unless the process that made
// it has the same effective user, even if that is root (SO_PEERCRED). Messages are checked before
// anything moves, and an invalid one ends the handover with an error of one line.
//
// The kernel lets each process of the same user, in any container with the same network, listen on a
// TCP port beside a listener that has SO_REUSEPORT set, as percore's listeners with several sockets
// have, and get some of the new connections.
//
// # Facts about the kernel
//
// Descriptors are sent beside messages (SCM_RIGHTS; unix(7), cmsg(3)), at most 253 with each
// message. They arrive as copies like those of dup(2): they refer to the same sockets, with their
// options and unread bytes, and a connection ends when its last copy is closed. They are
// close-on-exec in the successor, which needs as many descriptors as the predecessor has
// connections: if its RLIMIT_NOFILE is too low, it fails before anything moves.
//
// # Platforms
//
// Off Linux, with the build tag percore_net, and with PERCOREDEBUG=engine=net, a Service serves, and
// refuses to restart: stop the process and start another.
package handover
