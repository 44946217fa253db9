// Command systemd is a service whose sockets systemd opens. The units percore-example.socket and
// percore-example.service are in the same folder. Connections wait in the sockets while the service
// is stopped, started or updated, and no connection is refused.
//
//	systemd-socket-activate -l 8080 go run ./systemd
//	curl http://localhost:8080/
package main

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

func main() {
	listeners, err := listen(activation.Files(true))
	if err != nil {
		log.Fatal(err)
	}
	server := httpadapter.Wrap(&http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "hello from a service of systemd's")
		}),
	})
	ended := make(chan error)
	for _, ln := range listeners {
		go func() { ended <- server.Serve(ln) }()
	}
	log.Fatal(<-ended)
}

// listen makes a listener from the sockets of each name. FileDescriptorName= in the unit names
// them, and each name stands for one address. With ReusePort=yes and one line ListenStream= per
// processor, an address has several sockets.
func listen(files []*os.File) (map[string]net.Listener, error) {
	if len(files) == 0 {
		return nil, errors.New("no sockets: start this program by systemd or systemd-socket-activate")
	}
	named := make(map[string][]*os.File)
	for _, f := range files {
		named[f.Name()] = append(named[f.Name()], f)
	}
	listeners := make(map[string]net.Listener)
	for name, sockets := range named {
		ln, err := percore.FileListeners(sockets...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, errors.Join(err, closeAll(listeners)))
		}
		listeners[name] = ln
		for _, f := range sockets {
			f.Close() // the listener has its own copies
		}
	}
	return listeners, nil
}

func closeAll(listeners map[string]net.Listener) error {
	var errs []error
	for _, ln := range listeners {
		errs = append(errs, ln.Close())
	}
	return errors.Join(errs...)
}
