package debug_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/debug"
)

// A server for operators has the page and the profiles, on an address that only this machine reaches.
// It is an ordinary http.Server, so that it answers when something is wrong with the other one.
func ExampleHandler() {
	pages := http.NewServeMux()
	pages.Handle("/debug/percore", debug.Handler())
	pages.HandleFunc("/debug/pprof/", pprof.Index)
	pages.HandleFunc("/debug/pprof/profile", pprof.Profile)
	admin := &http.Server{
		Addr:              "localhost:6060",
		Handler:           debug.RefuseHostNames(debug.RefuseCrossOrigin(pages)),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { log.Print(admin.ListenAndServe()) }()

	app := http.NewServeMux() // not http.DefaultServeMux, which has the profiles, too
	server := httpadapter.Wrap(&http.Server{Addr: ":8080", Handler: app, ReadHeaderTimeout: 10 * time.Second})
	log.Fatal(server.ListenAndServe())
}

// A script reads the metrics as JSON.
func ExampleHandler_json() {
	rec := httptest.NewRecorder()
	debug.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/debug/percore?format=json", nil))

	var answer struct {
		Goroutines int
		Stats      percore.Stats
	}
	err := json.NewDecoder(rec.Body).Decode(&answer)
	fmt.Println(rec.Code, err, answer.Goroutines > 0)
	// Output: 200 <nil> true
}
