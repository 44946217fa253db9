package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/serviceconfig"
)

// This file parses service configs as grpc-go does. The load balancing policies are pick_first and
// round_robin; the first known policy of a list counts.

// A serviceConfig tells how calls are made. It usually comes from the resolver.
type serviceConfig struct {
	serviceconfig.Config

	js       string // as the resolver has brought it
	policy   string
	shuffles bool                     // pick_first shuffles the addresses
	methods  map[string]*methodConfig // by "/service/method", "/service/", or "" for all
	throttle *throttlePolicy          // nil: retries are not throttled
	health   *healthConfig            // nil: no health checks
}

// A healthConfig names the service whose health counts for the whole server; see client_health.go.
type healthConfig struct{ ServiceName string }

// A methodConfig is the part of a serviceConfig for one method.
type methodConfig struct {
	waitForReady              *bool
	timeout                   *time.Duration
	requestMost, responseMost *int
	retry                     *retryPolicy // nil: the call is tried once

	plain atomic.Pointer[callInfo] // for calls without options; nil before the first such call
}

// A retryPolicy tells how calls are retried.
type retryPolicy struct {
	attempts      int // including the first
	first, most   time.Duration
	multiplier    float64
	retryableCode map[codes.Code]bool
}

type throttlePolicy struct{ MaxTokens, TokenRatio float64 }

// jsonDuration is a duration in protobuf's JSON format, such as "1.5s".
type jsonDuration time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (d *jsonDuration) UnmarshalJSON(p []byte) error {
	var s string
	if err := json.Unmarshal(p, &s); err != nil {
		return err
	}
	seconds, ok := strings.CutSuffix(s, "s")
	if !ok || seconds == "" || strings.Trim(seconds, "-.0123456789") != "" {
		return fmt.Errorf("malformed duration %q", s)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("malformed duration %q: %v", s, err)
	}
	*d = jsonDuration(parsed)
	return nil
}

// jsonService is the JSON form of a service config.
type jsonService struct {
	LoadBalancingPolicy *string
	LoadBalancingConfig *[]map[string]json.RawMessage
	MethodConfig        []struct {
		Name []struct{ Service, Method string }

		WaitForReady            *bool
		Timeout                 *jsonDuration
		MaxRequestMessageBytes  *int64
		MaxResponseMessageBytes *int64
		RetryPolicy             *struct {
			MaxAttempts                int
			InitialBackoff, MaxBackoff jsonDuration
			BackoffMultiplier          float64
			RetryableStatusCodes       []codes.Code
		}
	}
	RetryThrottling   *throttlePolicy
	HealthCheckConfig *healthConfig
}

// policies are the known load balancing policies.
var policies = map[string]bool{"pick_first": true, "round_robin": true}

// parseServiceConfig parses a service config. attemptsMost limits the attempts per call.
func parseServiceConfig(js string, attemptsMost int) (*serviceConfig, error) {
	if js == "" {
		return nil, errors.New("no JSON service config provided")
	}
	var from jsonService
	if err := json.Unmarshal([]byte(js), &from); err != nil {
		return nil, err
	}
	c := &serviceConfig{js: js, policy: "pick_first", methods: make(map[string]*methodConfig), throttle: from.RetryThrottling, health: from.HealthCheckConfig}
	if err := c.findPolicy(&from); err != nil {
		return nil, err
	}
	for i := range from.MethodConfig {
		if err := c.addMethod(&from, i, attemptsMost); err != nil {
			return nil, err
		}
	}
	if t := c.throttle; t != nil {
		if t.MaxTokens <= 0 || t.MaxTokens > 1000 {
			return nil, fmt.Errorf("invalid retry throttling config: maxTokens (%v) out of range (0, 1000]", t.MaxTokens)
		}
		if t.TokenRatio <= 0 {
			return nil, fmt.Errorf("invalid retry throttling config: tokenRatio (%v) may not be negative", t.TokenRatio)
		}
	}
	return c, nil
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

// parsePolicy parses the configuration of a policy. round_robin has no settings.
func (c *serviceConfig) parsePolicy(config json.RawMessage) error {
	if c.policy != "pick_first" {
		return nil
	}
	var from struct{ ShuffleAddressList bool }
	if err := json.Unmarshal(config, &from); err != nil {
		return fmt.Errorf("error parsing config for policy %q: pickfirst: unable to unmarshal LB policy config: %s, error: %v",
			c.policy, config, err)
	}
	c.shuffles = from.ShuffleAddressList
	return nil
}

func (c *serviceConfig) addMethod(all *jsonService, i, attemptsMost int) error {
	from := &all.MethodConfig[i]
	m := &methodConfig{
		waitForReady: from.WaitForReady, timeout: (*time.Duration)(from.Timeout),
		requestMost: bytesOf(from.MaxRequestMessageBytes), responseMost: bytesOf(from.MaxResponseMessageBytes),
	}
	if r := from.RetryPolicy; r != nil {
		if r.MaxAttempts <= 1 || r.InitialBackoff <= 0 || r.MaxBackoff <= 0 || r.BackoffMultiplier <= 0 || len(r.RetryableStatusCodes) == 0 {
			return fmt.Errorf("invalid retry policy (%+v): ", r)
		}
		m.retry = &retryPolicy{
			attempts: min(r.MaxAttempts, attemptsMost), first: time.Duration(r.InitialBackoff), most: time.Duration(r.MaxBackoff),
			multiplier: r.BackoffMultiplier, retryableCode: make(map[codes.Code]bool),
		}
		for _, code := range r.RetryableStatusCodes {
			m.retry.retryableCode[code] = true
		}
	}
	for _, name := range from.Name {
		path := ""
		switch {
		case name.Service != "":
			path = "/" + name.Service + "/" + name.Method
		case name.Method != "":
			return errors.New("cannot combine empty 'service' and non-empty 'method'")
		}
		if c.methods[path] != nil {
			return errors.New("duplicated name")
		}
		c.methods[path] = m
	}
	return nil
}

func bytesOf(n *int64) *int {
	if n == nil {
		return nil
	}
	bytes := int(min(*n, math.MaxInt))
	return &bytes
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
