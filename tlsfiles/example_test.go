package tlsfiles_test

import (
	"context"
	"log"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
	"github.com/percore/percore/tlsfiles"
)

// A server whose certificate is renewed without a restart, and which is restarted without an end of its
// clients' sessions.
func Example() {
	files, err := tlsfiles.Open(tlsfiles.Paths{Cert: "cert.pem", Key: "key.pem"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	go files.Watch(context.Background(), 5*time.Second)
	server := httpadapter.Wrap(&http.Server{TLSConfig: files.Config()})
	err = (&handover.Service{
		Restart: syscall.SIGHUP,
		Parts: []handover.Part{{
			Name: "https", Address: ":8443", Server: server,
			Serve:   func(l net.Listener) error { return server.ServeTLS(l, "", "") },
			State:   files.State,
			Restore: files.Restore,
		}},
	}).Run(context.Background())
	if err != nil {
		log.Fatal(err)
	}
}
