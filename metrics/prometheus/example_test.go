package prometheus_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	percoreprom "github.com/percore/percore/metrics/prometheus"
)

// A registry of the program's own has percore's metrics beside those of the program.
func ExampleNewCollector() {
	orders := prom.NewCounter(prom.CounterOpts{Name: "shop_orders_total", Help: "Orders taken"})
	reg := prom.NewRegistry()
	reg.MustRegister(orders, percoreprom.NewCollector())
	metrics := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})

	orders.Inc()
	rec := httptest.NewRecorder()
	metrics.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	answer := rec.Body.String()
	fmt.Println(strings.Contains(answer, "\nshop_orders_total 1\n"), strings.Contains(answer, "\npercore_"))
	// Output: true true
}

// A program without a registry serves Handler, on an address that only Prometheus and operators reach.
func ExampleHandler() {
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", percoreprom.Handler())
	admin := &http.Server{Addr: "localhost:9090", Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(admin.ListenAndServe())
}
