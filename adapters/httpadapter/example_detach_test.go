package httpadapter_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
)

// A chat's server-sent events. A member that waits holds neither a goroutine nor a buffer.
func ExampleDetach() {
	var mu sync.Mutex
	members := make(map[*httpadapter.Answer]bool)
	joined := make(chan bool, 1)
	events := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		err := httpadapter.Detach(w, r, func(s *httpadapter.Answer) {
			mu.Lock()
			members[s] = true
			mu.Unlock()
			s.SetLimit(1<<20, true) // a slow member has to come back
			s.OnEnd(func(error) {   // not before this function has returned
				mu.Lock()
				defer mu.Unlock()
				delete(members, s)
			})
			joined <- true
		})
		if err != nil {
			log.Print(err)
		}
	}
	each := func(do func(*httpadapter.Answer)) {
		mu.Lock()
		all := make([]*httpadapter.Answer, 0, len(members))
		for s := range members {
			all = append(all, s)
		}
		mu.Unlock()
		for _, s := range all {
			do(s)
		}
	}

	server := httpadapter.Wrap(&http.Server{Handler: http.HandlerFunc(events)})
	server.RegisterOnDrain(func() { each(func(s *httpadapter.Answer) { s.Close() }) })
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(ln)

	resp, err := http.Get("http://" + ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	<-joined
	each(func(s *httpadapter.Answer) {
		fmt.Fprint(s, "data: hello\n\n")
		s.Flush()
	})
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	fmt.Printf("%q %v\n", line, err)
	fmt.Println(server.Shutdown(context.Background()))
	// Output:
	// "data: hello\n" <nil>
	// <nil>
}

// A long poll: whichever comes first, a message or the end of its time, answers.
func ExampleDetach_longPoll() {
	var mu sync.Mutex
	polls := make(map[*httpadapter.Answer]*time.Timer)
	take := func(s *httpadapter.Answer) (first bool) {
		mu.Lock()
		defer mu.Unlock()
		timer, first := polls[s]
		if first {
			timer.Stop()
			delete(polls, s)
		}
		return first
	}
	http.HandleFunc("/next", func(w http.ResponseWriter, r *http.Request) {
		_ = httpadapter.Detach(w, r, func(s *httpadapter.Answer) {
			mu.Lock()
			polls[s] = time.AfterFunc(30*time.Second, func() {
				if take(s) {
					s.WriteHeader(http.StatusNoContent)
					s.Close()
				}
			})
			mu.Unlock()
			s.OnEnd(func(error) { take(s) }) // not before this function has returned
		})
	})
	http.HandleFunc("/send", func(w http.ResponseWriter, r *http.Request) {
		message, _ := io.ReadAll(r.Body)
		mu.Lock()
		var all []*httpadapter.Answer
		for s := range polls {
			all = append(all, s)
		}
		mu.Unlock()
		for _, s := range all {
			if take(s) {
				_, _ = s.Write(message)
				s.Close()
			}
		}
	})
}
