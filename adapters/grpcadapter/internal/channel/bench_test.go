package channel

import (
	"context"
	"testing"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// BenchmarkPick is the channel's part of a call.
func BenchmarkPick(b *testing.B) {
	for _, policy := range []string{"pick_first", "round_robin"} {
		b.Run(policy, func(b *testing.B) {
			c, r, _ := makeChannel(b, func(config *Config) {
				config.Policy = func() (string, serviceconfig.LoadBalancingConfig) { return policy, nil }
			})
			defer c.Close()
			r.UpdateState(resolver.State{Addresses: addresses([]string{"a", "b", "c"})})
			ctx := context.Background()
			c.Connect()
			for s := c.GetState(); s != connectivity.Ready; s = c.GetState() {
				c.WaitForStateChange(ctx, s)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.CallStarted()
					c.Pick(ctx, false)
					c.CallEnded()
				}
			})
		})
	}
}
