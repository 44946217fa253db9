package rpc

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/serviceconfig"
)

// This file is about service configs. grpc-go parses what they say about methods; the load balancing
// policies are pick_first and round_robin, of which the first in a list counts.

// A serviceConfig tells how calls are made. It usually comes from the resolver.
type serviceConfig struct {
	serviceconfig.Config

	js           string // as the resolver has brought it
	policy       string
	policyConfig serviceconfig.LoadBalancingConfig
	methods      map[string]*methodConfig // by "/service/method", "/service/", or "" for all
	throttle     *throttlePolicy          // nil: retries are not throttled
	health       *healthConfig            // nil: no health checks
}

// A healthConfig names the service whose health counts for the whole server; see client_health.go.
type healthConfig struct{ ServiceName string }

// A methodConfig is the part of a serviceConfig for one method.
type methodConfig struct {
	grpc.MethodConfig

	plain atomic.Pointer[callInfo] // for calls without options; nil before the first such call
}

type throttlePolicy struct{ MaxTokens, TokenRatio float64 }

// jsonService has the parts of a service config that grpc-go's parser keeps to itself.
type jsonService struct {
	LoadBalancingPolicy *string
	LoadBalancingConfig *[]map[string]json.RawMessage
	RetryThrottling     *throttlePolicy
	HealthCheckConfig   *healthConfig
}

// policies are the known load balancing policies.
var policies = map[string]bool{pickfirst.Name: true, roundrobin.Name: true}

// parseServiceConfig parses a service config.
func parseServiceConfig(js string) *serviceconfig.ParseResult {
	var from jsonService
	_ = json.Unmarshal([]byte(js), &from) // grpc-go's parser returns the error
	c := &serviceConfig{js: js, policy: pickfirst.Name, methods: make(map[string]*methodConfig), throttle: from.RetryThrottling, health: from.HealthCheckConfig}
	if err := c.findPolicy(&from); err != nil {
		return &serviceconfig.ParseResult{Err: err}
	}
	result := ofGRPC().parse(js)
	if result.Err != nil {
		return result
	}
	//lint:ignore SA1019 as above
	parsed, ok := result.Config.(*grpc.ServiceConfig)
	if !ok { // of a later grpc-go
		return &serviceconfig.ParseResult{Err: errNoParser}
	}
	for path, m := range parsed.Methods {
		c.methods[path] = &methodConfig{MethodConfig: m}
	}
	return &serviceconfig.ParseResult{Config: c}
}

// findPolicy finds the first known load balancing policy. An unknown name in the old field means
// pick_first, as in grpc-go.
func (c *serviceConfig) findPolicy(from *jsonService) error {
	if from.LoadBalancingConfig == nil {
		if name := from.LoadBalancingPolicy; name != nil && policies[*name] {
			c.policy = *name
		}
		return nil
	}
	var names []string
	for _, one := range *from.LoadBalancingConfig {
		if len(one) != 1 {
			return fmt.Errorf("expected a JSON struct with one entry; received entry %v", one)
		}
		for name, config := range one {
			if policies[name] {
				c.policy = name
				return c.parsePolicy(config)
			}
			names = append(names, name)
		}
	}
	return fmt.Errorf("no supported policies found in config: %v (grpcadapter's client has pick_first and round_robin)", names)
}

// parsePolicy parses the configuration of a policy.
func (c *serviceConfig) parsePolicy(config json.RawMessage) (err error) {
	if parser, ok := balancer.Get(c.policy).(balancer.ConfigParser); ok {
		if c.policyConfig, err = parser.ParseConfig(config); err != nil {
			err = fmt.Errorf("error parsing config for policy %q: %v", c.policy, err)
		}
	}
	return err
}

var noMethodConfig methodConfig

// of returns the config of a method.
func (c *serviceConfig) of(method string) *methodConfig {
	if len(c.methods) > 0 {
		for _, name := range [...]string{method, method[:strings.LastIndexByte(method, '/')+1], ""} {
			if m := c.methods[name]; m != nil {
				return m
			}
		}
	}
	return &noMethodConfig
}

// A throttle stops retries from overloading a failing server: each failure takes a token, and while
// half of the tokens are gone there are no retries (gRFC A6). A nil throttle doesn't throttle.
type throttle struct {
	policy throttlePolicy // immutable

	mu     sync.Mutex
	tokens float64
}

// newThrottle returns the throttle that c configures, or nil.
func (c *serviceConfig) newThrottle() *throttle {
	if c.throttle == nil {
		return nil
	}
	return &throttle{policy: *c.throttle, tokens: c.throttle.MaxTokens}
}

// failed records a failure, and reports whether retries are forbidden.
func (t *throttle) failed() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = max(t.tokens-1, 0)
	return t.tokens <= t.policy.MaxTokens/2
}

// succeeded records a success.
func (t *throttle) succeeded() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens = min(t.tokens+t.policy.TokenRatio, t.policy.MaxTokens)
}
