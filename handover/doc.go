// Package handover restarts a server without closing its connections: a successor process gets the
// listeners, and the connections that wait between requests.
//
// The process that leaves starts the new one, or is asked for by it, and calls [Give]:
//
//	hangup := make(chan os.Signal, 1)
//	signal.Notify(hangup, syscall.SIGHUP) // first of all: see below
//	...
//	server := httpadapter.Wrap(srv)
//	go server.Serve(ln)
//	...
//	<-hangup
//	exe, err := handover.Executable()
//	...
//	cmd := exec.Command(exe, os.Args[1:]...)
//	c, err := handover.Start(cmd)
//	if err == nil {
//		ended := make(chan error, 1)
//		go func() { ended <- cmd.Wait() }()
//		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
//		err = handover.Give(ctx, c, handover.Server{Name: "web", Listener: ln, Source: server})
//		cancel()
//		if err != nil {
//			select {
//			case <-ended:
//			case <-time.After(10 * time.Second): // for the requests that it has got
//				cmd.Process.Kill()
//			}
//		}
//	}
//	if err != nil {
//		log.Print(err) // this process serves on
//	} else {
//		server.Shutdown(context.Background()) // waits for the connections that stayed
//	}
//
// The process that comes calls [Take]:
//
//	var successor *handover.Successor
//	c, err := handover.Inherited()
//	if c != nil {
//		successor, err = handover.Take(ctx, c)
//	}
//	if err != nil {
//		log.Fatal(err) // the other process serves on
//	}
//	var ln net.Listener
//	if successor != nil {
//		ln, err = successor.Listener("web", nil)
//	} else {
//		ln, err = percore.Listen("tcp", ":8080")
//	}
//	...
//	go server.Serve(ln)
//	if successor != nil {
//		if err := successor.Ready(ctx); err != nil && !errors.Is(err, handover.ErrGone) {
//			log.Print(err) // the other process serves on: this one shuts down
//			server.Shutdown(context.Background())
//		}
//	}
//
// A process asks for its signals before it calls Take. SIGHUP ends a process that has not asked for it,
// and a second one, for all processes of a terminal or a service, would end the successor with the
// connections that it has taken over.
//
// A successor whose handover has failed ends by itself, as above, unless it hangs. Then it keeps
// descriptors of the sockets: clients would not see this process close their connections, since the
// kernel ends a connection with its last descriptor, and new connections of a listener that both have
// would wait forever if this process ended. So the process that has started it ends it, after a while.
//
// The process that was started first ends. If another process waits for it, a container or a supervisor
// that does not follow the new pid, that is the end of the service: docs/OPERATIONS.md has a table.
//
// # What moves
//
// All sockets of the listeners, with the connections in their backlogs. And the connections that the
// [Source] gives: with httpadapter those of plain HTTP/1, as soon as they wait for a request. Bytes that
// have arrived and are not read yet go with them, and so do the client's addresses from a PROXY header.
// They come out of the Accept of the successor's listener, so that any server takes them, with its
// OnAccept and its MaxConns, which count them, but hold none of them up. The clients notice nothing.
//
// Connections over TLS, with HTTP/2, and those that a handler has hijacked, WebSockets for instance,
// stay: their state is in the memory of the process. They end when the predecessor shuts down. A
// connection that never waits for a request, since its requests are pipelined without end, stays too.
//
// # When a process fails
//
// Until the successor calls Ready the predecessor serves as if nothing were. From then on it leaves
// new connections in the backlog, which both processes have. All the time each process shows the
// other every 2 seconds that it lives. If the successor fails, is killed, hangs or is stopped, or
// answers nonsense, or doesn't give an answer that is due for 10 seconds, the predecessor accepts
// again, and still has all connections that it has not committed to the successor; [Give] says so
// in its error.
//
// At the end the successor says that it has taken over. Without that the predecessor serves on.
//
// A process counts the time in which it runs itself. One that was stopped, or whose machine slept,
// does not blame the other for that. These signs show that a process runs, and not that its server
// answers.
//
// A batch of at most 253 connections is committed when the successor has said that it holds them.
// Before that the predecessor has them, and after that the successor: at each moment at most one
// process reads from a connection. A process that gives up, but lives, never loses one. Connections that
// were committed to a process that is killed end with it, as with any crash.
//
// If the predecessor is killed, or gives no sign of life for 10 seconds, the successor has the
// listeners, and the connections that were committed until then, and serves on: Ready fails with
// [ErrGone]. A predecessor that wakes up finds out: Give returns nil, and the caller shuts down.
// The kernel decides which of two processes that take each other for hung in the same moment serves
// on, and both know.
//
// # Ports that come and go
//
// A new version that listens at more addresses opens the others itself. One that no longer wants a port
// calls [Successor.Drop] for it. The predecessor closes it when it shuts down.
//
// # Named sockets
//
// A successor that is started by others, a service manager for instance, finds its predecessor by a
// unix socket with a name. The predecessor listens, and calls Give for each connection:
//
//	control, err := handover.Listen("/run/web/control")
//	...
//	c, err := control.Accept()
//	...
//	err = handover.Give(ctx, c, servers...)
//
// and the successor dials:
//
//	c, err := handover.Dial("/run/web/control")
//
// The successor calls Listen with the same name when it is ready, and the predecessor calls Close when
// Give has returned nil. Programs that open the socket themselves use the network "unixpacket"
// (SOCK_SEQPACKET), which keeps messages apart.
//
// # Security
//
// A process that gets the sockets gets the clients. Both processes check the one at the other end,
// as the kernel describes it ([CheckPeer]): it must have the same effective user, root included,
// and be in the same mount and pid namespaces, so that a container that shares the network of its
// host gets nothing. A pair of sockets, which Start makes, has no name by which others could
// connect. The folder of a named socket is closed to other users ([Listen]). Messages are checked
// before anything moves, and a bad one ends the handover with an error of one line.
//
// A process of the same user in the same namespaces remains. It may take over, as it may trace this
// process (ptrace(2)). And the kernel lets each process of the same user, in any container with the same
// network, listen on a TCP port beside a listener that has SO_REUSEPORT set, as percore's listeners with
// several sockets have, and get a part of the new connections.
//
// # Facts about the kernel
//
// Descriptors travel beside messages (SCM_RIGHTS; unix(7), cmsg(3)), at most 253 with each message.
// They arrive as copies such as dup(2) makes: they refer to the same sockets, with their options and
// unread bytes, and a connection ends when its last copy is closed. They are close-on-exec in the
// successor, which needs as many numbers for them as the predecessor has connections: a process whose
// RLIMIT_NOFILE is too low is told so before anything moves.
//
// # Platforms
//
// Off Linux, with the build tag percore_net, and with PERCOREDEBUG=engine=net, Give and Take fail with
// an error that wraps [errors.ErrUnsupported].
package handover
