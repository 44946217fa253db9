package admission_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/admission"
)

// noContent answers with a status only.
var noContent = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(http.StatusNoContent) })

// A server and a job in the background share the places of a Limiter, so that together they never do
// more work than the machine can bear. A request that finds no place in time is refused.
func Example() {
	limiter := admission.New(admission.Limits{Handlers: 1, Wait: 10 * time.Millisecond, Queue: 100})
	healthy := func(r *http.Request) bool { return r.URL.Path == "/healthz" } // needs no place
	server := httpadapter.Wrap(&http.Server{Handler: noContent}, httpadapter.LimitWork(limiter, healthy))
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(ln)
	get := func(path string) {
		resp, err := http.Get("http://" + ln.Addr().String() + path)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(path, resp.StatusCode)
	}

	if limiter.TryEnter() { // the job begins only if there is room for it
		get("/work")
		get("/healthz")
		limiter.Leave()
	}
	get("/work")
	fmt.Println(server.Shutdown(context.Background()), limiter.Stats().Refused)
	// Output:
	// /work 503
	// /healthz 204
	// /work 204
	// <nil> 1
}
