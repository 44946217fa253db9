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
// The rest of this comment is about what it is made of, for programs that need it otherwise.
//
// # Give and Take
//
// The old process starts the new one, or the new one connects to it, and then calls [Give]:
//
//	hangup := make(chan os.Signal, 1)
//	signal.Notify(hangup, syscall.SIGHUP) // first of all: see below
//	...
//	server := httpadapter.Wrap(srv)
//	go server.Serve(ln)
//	...
//	<-hangup
//	cmd := new(exec.Cmd) // this program, or another
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
//			case <-time.After(10 * time.Second): // for the requests that it already has
//				cmd.Process.Kill()
//			}
//		}
//	}
//	if err != nil {
//		log.Print(err) // this process goes on serving
//	} else {
//		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
//		server.Drain(ctx) // for connections that could not move: those over TLS, say
//		cancel()
//		server.Shutdown(context.Background()) // waits for the connections that are left
//	}
//
// The new process calls [Take]:
//
//	var successor *handover.Successor
//	c, err := handover.Inherited()
//	if c != nil {
//		successor, err = handover.Take(ctx, c)
//	}
//	if err != nil {
//		log.Fatal(err) // the other process goes on serving
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
//			log.Print(err) // the other process goes on serving: this one shuts down
//			server.Shutdown(context.Background())
//		}
//	}
//
// Call signal.Notify before Take. SIGHUP ends a process that doesn't handle it: a second SIGHUP,
// sent to all processes of a terminal or a service, would end the successor with the connections
// that it has taken over.
//
// A successor whose handover has failed ends by itself, as above, unless it hangs. Then it still
// has descriptors of the sockets. Clients would not see this process close their connections, since
// the kernel ends a connection with its last descriptor; and if this process ended, new connections
// of a listener that both have would wait forever. So the process that started the successor kills
// it after a while.
//
// The process that was started first ends. If a container or a supervisor waits for it and doesn't
// follow the new pid, that is the end of the service: docs/OPERATIONS.md has a table.
//
// # What moves
//
// All sockets of the listeners move, with the connections in their backlogs. So do the connections
// that the [Source] gives: with httpadapter, plain HTTP/1 connections, as soon as they wait for a
// request. Bytes that have arrived and were not read go with them, and so do the client's addresses
// from a PROXY header. Accept of the successor's listener returns them, so any server can take
// them. OnAccept is called for them, and MaxConns counts them but doesn't hold them up. The clients
// notice nothing. Connections that stay with the predecessor are not in the successor's MaxConns: until
// they end both processes together may have twice as many.
//
// Connections over TLS, connections with HTTP/2, and hijacked connections stay: their state is in the
// memory of the process. ([Conns.Carry] is for hijacked ones whose state can be written down, such as
// WebSockets of wsadapter.Group.) They end when the predecessor shuts down ([Conns] tells hijacked
// ones); clients of
// httpadapter's HTTP2 are told before to open their next streams elsewhere. A
// connection that never waits for a request, because its client pipelines requests endlessly, stays
// too.
//
// # When a process fails
//
// Until the successor calls Ready the predecessor serves as usual. From then on it leaves new
// connections in the backlog, which both processes share. Every 2 seconds each process sends the
// other a sign of life. If the successor fails, is killed, hangs or is stopped, sends something
// invalid, or doesn't answer for 10 seconds, the predecessor accepts again, and still has all
// connections that it has not committed to the successor; the error of [Give] says so.
//
// At the end the successor says that it has taken over. Without that message the predecessor goes on
// serving.
//
// A process counts only the time while it is running itself. If it was stopped, or its machine
// slept, it doesn't blame the other process for that. The signs of life show that a process runs,
// not that its server answers.
//
// A batch of at most 253 connections is committed when the successor has said that it holds them.
// Before that they belong to the predecessor, and afterwards to the successor: at any time at most
// one process reads from a connection. A process that gives up, but lives, never loses one.
// Connections that were committed to a process that is then killed end with it, as with any crash.
//
// If the predecessor is killed, or gives no sign of life for 10 seconds, the successor has the
// listeners and the connections that were committed until then, and goes on serving: Ready fails
// with [ErrGone]. A predecessor that wakes up notices this: Give returns nil, and the caller shuts
// down. If two processes take each other for hung at the same time, the kernel decides which of
// them goes on serving, and both know.
//
// # Ports that come and go
//
// A new version that listens at more addresses opens the others itself. One that no longer wants a
// port calls [Successor.Drop] for it. The predecessor closes it when it shuts down.
//
// # Named sockets
//
// A successor that this process didn't start, but a service manager for example, finds its
// predecessor through a unix socket with a name. The predecessor listens, and calls Give for each
// connection; the successor dials, and calls Take. The network is "unixpacket" (SOCK_SEQPACKET), which
// preserves the boundaries of messages. Keep the socket in a folder that is closed to other users.
//
// # Security
//
// A process that gets the sockets gets the clients. Each process checks the one at the other end
// (SO_PEERCRED): it must have the same effective user, even if that is root, and be in the same mount
// and pid namespaces, so that a container that shares the network of its host gets nothing. The pair of
// sockets that Start makes has no name, so no other process can connect to it. Messages are checked
// before anything moves, and an invalid one ends the handover with an error of one line.
//
// That leaves processes of the same user in the same namespaces. They may take over, as they may
// trace this process (ptrace(2)). And the kernel lets each process of the same user, in any
// container with the same network, listen on a TCP port beside a listener that has SO_REUSEPORT
// set, as percore's listeners with several sockets have, and get some of the new connections.
//
// # Facts about the kernel
//
// Descriptors are sent beside messages (SCM_RIGHTS; unix(7), cmsg(3)), at most 253 with each
// message. They arrive as copies like those of dup(2): they refer to the same sockets, with their
// options and unread bytes, and a connection ends when its last copy is closed. They are
// close-on-exec in the successor, which needs as many descriptors as the predecessor has
// connections: if its RLIMIT_NOFILE is too low, Take fails before anything moves.
//
// # Platforms
//
// Off Linux, with the build tag percore_net, and with PERCOREDEBUG=engine=net, Give and Take fail
// with an error that wraps [errors.ErrUnsupported]. Service then serves, and refuses to restart: stop
// the process and start another.
package handover
