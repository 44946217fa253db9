package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/grpcadapter/internal/channel"
)

// This file watches the health of servers if the service config says so (gRFC A17).

var healthDesc = &grpc.StreamDesc{ServerStreams: true}

// healthCheck implements [channel.Config.HealthCheck].
func (c *Client) healthCheck(conn channel.Conn) func(context.Context, func(connectivity.State, error)) {
	config := c.service.Load().health
	if config == nil || c.config.DisableHealthCheck {
		return nil
	}
	return func(ctx context.Context, set func(connectivity.State, error)) {
		conn.(*clientConn).watchHealth(ctx, config.ServiceName, set)
	}
}

// watchHealth watches the health of a service until ctx ends, or the server doesn't implement health
// checks. It pauses before another attempt, unless the last attempt got an answer.
func (cc *clientConn) watchHealth(ctx context.Context, service string, set func(connectivity.State, error)) {
	for failures := 0; ; failures++ {
		if failures > 0 {
			select {
			case <-time.After(channel.Backoff(backoff.DefaultConfig, failures-1)):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		set(connectivity.Connecting, nil)
		s, err := cc.askHealth(ctx, service)
		if err != nil {
			continue
		}
		answered, err := receiveHealth(s, set)
		if status.Code(err) == codes.Unimplemented {
			logger.Errorf("Subchannel health check is unimplemented at server side, thus health check is disabled")
			set(connectivity.Ready, nil)
			return
		}
		set(connectivity.TransientFailure, fmt.Errorf("connection active but received health check RPC error: %v", err))
		if answered {
			failures = -1
		}
	}
}

// receiveHealth receives answers until the call ends.
func receiveHealth(s *clientCall, set func(connectivity.State, error)) (answered bool, err error) {
	for answer := new(healthpb.HealthCheckResponse); ; answered = true {
		if err := s.recvMsg(answer); err != nil {
			return answered, err
		}
		if answer.Status == healthpb.HealthCheckResponse_SERVING {
			set(connectivity.Ready, nil)
		} else {
			set(connectivity.TransientFailure, fmt.Errorf("connection active but health check failed. status=%s", answer.Status))
		}
	}
}

// askHealth begins the health call on the connection. It isn't a call of the user: neither interceptors
// nor stats handlers see it, and it doesn't keep the client from becoming idle.
func (cc *clientConn) askHealth(ctx context.Context, service string) (*clientCall, error) {
	c := cc.client
	hidden := &Client{config: c.config, Channel: c.Channel, http: c.http, scheme: c.scheme, userAgent: c.userAgent, accepts: c.accepts}
	s := &clientCall{
		client: hidden, method: healthpb.Health_Watch_FullMethodName, desc: healthDesc, config: &noMethodConfig, pinned: cc, committed: true,
	}
	s.told.Store(true)
	s.ctx, s.cancel = context.WithCancel(ctx)
	err := s.heedOptions()
	if err == nil {
		err = s.SendMsg(&healthpb.HealthCheckRequest{Service: service})
	}
	if err != nil {
		s.finish(err)
		return nil, err
	}
	return s, nil
}
