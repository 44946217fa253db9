// Package handover restarts a server without closing its connections: a successor process takes over
// the listeners, and the connections that are idle between requests.
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
// On the signal, the process starts the program again, hands over to the new process, and exits. If
// a container or a supervisor waits for the first process and doesn't follow the new pid, the whole
// service ends: docs/OPERATIONS.md has a table.
//
// # What moves
//
// All sockets of the listeners move, with the connections in their backlogs. If a server has
// httpadapter's method HandOver, its plain HTTP/1 connections move as well, as soon as they wait for
// a request. Bytes that have arrived but were not read go with them, and so do the client's
// addresses from a PROXY header. The successor's listener returns these connections from Accept, so
// any server can take them. It calls OnAccept for them, and MaxConns counts them but doesn't hold
// them up. The clients notice nothing. The successor's MaxConns doesn't count connections that stay
// with the predecessor: until those end, the two processes together may have twice as many.
//
// TLS connections, HTTP/2 connections and hijacked connections stay, because their state is in the
// memory of the process. ([Conns.Carry] is for hijacked connections whose state can be written down,
// such as the WebSockets of package wsadapter/moving.) They end when the predecessor shuts down. [Conns]
// tells hijacked connections about it, and httpadapter tells its HTTP/2 clients beforehand to open
// their next streams elsewhere. A connection that never waits for a request, because its client
// keeps pipelining, stays too.
//
// A new version that listens at more addresses opens the additional ones itself. If it no longer
// wants a port, the predecessor closes that port when it shuts down.
//
// A server must go on calling Accept during the handover, and must know a connection before it calls
// Accept again, as http.Server does: that call is how a Service learns that the last connection has
// reached the server. It waits until as many goroutines are in Accept as have ever waited there at
// the same time. After 5 seconds it logs a line to slog's default logger, and goes on.
//
// # When a process fails
//
// The predecessor serves as usual until the successor serves all its listeners, for which it has 30
// seconds. From then on the predecessor leaves new connections in the backlog, which both processes
// share. If the successor fails, is killed, hangs or is stopped, sends something invalid, or doesn't
// answer for 10 seconds, the predecessor accepts again. It still has all connections that it has not
// committed to the successor.
//
// At the end the successor reports that it has taken over. Without that message the predecessor goes
// on serving. A successor that could not take over exits by itself. If it hangs instead, the
// predecessor kills it after a while, because it holds copies of the sockets: clients would not see
// the predecessor close their connections, and once the predecessor had exited, new connections
// would wait for the successor forever.
//
// A process counts only the time during which it runs itself. It doesn't blame the other process if
// it was stopped, or if the machine slept.
//
// Connections move in batches of at most 253. A batch is committed when the successor has confirmed
// that it holds the connections. Before that they belong to the predecessor, and afterwards to the
// successor, so at most one process reads from a connection at any time. A process that gives up but
// lives never loses a connection. If a process is killed, its committed connections end with it, as
// in any crash.
//
// If the predecessor is killed after that, or sends nothing for 10 seconds, the successor goes on
// serving with the listeners and the connections committed so far. A predecessor that wakes up later
// notices this, and shuts down. If both processes believe at the same time that the other one hangs,
// the kernel decides which of them goes on serving, and both learn of the decision.
//
// # Security
//
// A process that gets the sockets gets the clients. The sockets are sent through a socket pair that
// the predecessor makes for the process it starts. The pair has no name, so no other process can
// connect to it. The started process takes nothing from it unless the process that made the pair has
// the same effective user, even if that is root (SO_PEERCRED). Messages are checked before anything
// moves, and an invalid one ends the handover with a one-line error.
//
// percore's listeners with several sockets set SO_REUSEPORT. The kernel then lets any process of the
// same user, in any container with the same network, listen on the same TCP port, and get some of
// the new connections.
//
// # Facts about the kernel
//
// Descriptors are sent along with messages (SCM_RIGHTS; unix(7), cmsg(3)), at most 253 with each
// message. They arrive as copies, as dup(2) makes them: they refer to the same sockets, with their
// options and unread bytes, and a connection ends when its last copy is closed. In the successor
// they are close-on-exec. It needs as many descriptors as the predecessor has connections: if its
// RLIMIT_NOFILE is too low, it fails before anything moves.
//
// # Platforms
//
// Off Linux, with the build tag percore_net, and with PERCOREDEBUG=engine=net, a Service serves but
// refuses to restart: stop the process and start another.
package handover
