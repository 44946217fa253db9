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
//	cmd := exec.Command(os.Args[0], os.Args[1:]...)
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
//	var arrival *handover.Arrival
//	c, err := handover.Inherited()
//	if c != nil {
//		arrival, err = handover.Take(ctx, c)
//	}
//	if err != nil {
//		log.Fatal(err) // the other process serves on
//	}
//	var ln net.Listener
//	if arrival != nil {
//		ln, err = arrival.Listener("web", nil)
//	} else {
//		ln, err = percore.Listen("tcp", ":8080")
//	}
//	...
//	go server.Serve(ln)
//	if arrival != nil {
//		if err := arrival.Ready(ctx); err != nil && !errors.Is(err, handover.ErrGone) {
//			log.Print(err) // the other process serves on: this one shuts down
//			server.Shutdown(context.Background())
//		}
//	}
//
// A process asks for its signals before it calls Take. SIGHUP ends a process that has not asked for it,
// and a second one, for all processes of a terminal or a service, would end the successor with the
// connections that it has taken over.
//
// A successor whose hand-over has failed ends by itself, as above, unless it hangs. Then it keeps
// descriptors of the sockets: clients would not see this process close their connections, since the
// kernel ends a connection with its last descriptor, and new connections of a listener that both have
// would wait in vain if this process ended. So the process that has started it ends it, after a while.
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
// Until the successor calls Ready the predecessor serves as if nothing were. From then on it leaves new
// connections in the backlog, which both processes have. If the successor fails then, or is killed, or
// answers nonsense, or doesn't answer for 10 seconds, the predecessor accepts again, and still has all
// connections that it has not committed to the successor; [Give] says so in its error.
//
// A batch of at most 253 connections is committed when the successor has said that it holds them.
// Before that the predecessor has them, and after that the successor: at each moment at most one
// process reads from a connection. A process that gives up, but lives, never loses one. Connections that
// were committed to a process that is killed end with it, as with any crash.
//
// If the predecessor is killed the successor has the listeners, and the connections that were committed
// until then, and serves on: Ready fails with [ErrGone].
//
// # Named sockets
//
// A successor that is started by others, a service manager for instance, finds its predecessor by a
// unix socket with a name. The predecessor listens, and calls Give for each connection:
//
//	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: "/run/web/handover"})
//	...
//	c, err := l.AcceptUnix()
//	...
//	err = handover.Give(ctx, c, servers...)
//
// and the successor dials:
//
//	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: "/run/web/handover"})
//
// When Give has returned nil the predecessor closes l, which removes the name, before the successor
// listens there. The network must be "unixpacket" (SOCK_SEQPACKET), which keeps messages apart.
//
// # Security
//
// A process that gets the sockets gets the clients. Both processes compare their effective user with
// that at the other end, as the kernel tells it (SO_PEERCRED; unix(7)), and refuse any other, root
// included. Of a pair of sockets, which Start makes, the kernel knows the process that has made it. To
// connect to a named socket takes write permission on its file, and search permission on its folder:
// keep it in a folder of mode 0700, since net.ListenUnix makes the file with the mode that the umask
// leaves. Messages are checked before anything moves, and a bad one ends the hand-over with an error of
// one line.
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
