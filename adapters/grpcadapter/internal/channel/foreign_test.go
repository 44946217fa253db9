package channel

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// A foreignPolicy calls what grpc-go's policies don't. It is its own builder and picker.
type foreignPolicy struct {
	balancer.Balancer // nil

	t    *testing.T
	cc   balancer.ClientConn
	conn balancer.SubConn
	made balancer.SubConn // what Pick returns
}

func (f *foreignPolicy) Name() string { return pickfirst.Name }

func (f *foreignPolicy) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	f.cc = cc
	return f
}

func (f *foreignPolicy) UpdateClientConnState(s balancer.ClientConnState) error {
	//lint:ignore SA1019 it is how SubConns are made
	if _, err := f.cc.NewSubConn(nil, balancer.NewSubConnOptions{}); err == nil {
		f.t.Error("got a SubConn without an address")
	}
	addrs := s.ResolverState.Endpoints[0].Addresses
	//lint:ignore SA1019 as above
	f.conn, _ = f.cc.NewSubConn(addrs, balancer.NewSubConnOptions{})
	//lint:ignore SA1019 old policies call it
	f.cc.UpdateAddresses(f.conn, addrs)
	//lint:ignore SA1019 as above
	f.conn.UpdateAddresses(addrs)
	f.conn.GetOrBuildProducer(producerBuilder{f.t})
	f.conn.Connect()
	return nil
}

func (f *foreignPolicy) UpdateSubConnState(conn balancer.SubConn, s balancer.SubConnState) {
	if s.ConnectivityState == connectivity.Ready {
		conn.RegisterHealthListener(nil)
		f.publish(struct{ balancer.SubConn }{conn})
	}
}

func (f *foreignPolicy) publish(conn balancer.SubConn) {
	f.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: &foreignPolicy{made: conn}})
}

func (f *foreignPolicy) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: f.made}, info.Ctx.Err()
}

func (f *foreignPolicy) Close() {
	//lint:ignore SA1019 old policies call it
	f.cc.RemoveSubConn(f.conn)
}

type producerBuilder struct{ t *testing.T }

func (b producerBuilder) Build(conn any) (balancer.Producer, func()) {
	cc := conn.(grpc.ClientConnInterface)
	_, err := cc.NewStream(b.t.Context(), new(grpc.StreamDesc), "/s/m")
	for _, err := range []error{err, cc.Invoke(b.t.Context(), "/s/m", nil, nil)} {
		if status.Code(err) != codes.Unimplemented {
			b.t.Errorf("got %v of a producer's call", err)
		}
	}
	return nil, func() {}
}

// TestForeignPolicy: a program's own policy with a name of grpc-go's gets by with what it finds. A call
// waits if it picks a SubConn that isn't the channel's.
func TestForeignPolicy(t *testing.T) {
	own := balancer.Get(pickfirst.Name)
	defer balancer.Register(own)
	synctest.Test(t, func(t *testing.T) {
		f := &foreignPolicy{t: t}
		balancer.Register(f)
		c, r, made := makeChannel(t, nil)
		r.InitialState(resolver.State{Addresses: addresses([]string{"a"})})
		c.Connect()
		synctest.Wait()
		if conn := c.Ready(); conn != nil {
			t.Errorf("got %v of a SubConn that is wrapped", conn)
		}
		f.publish(f.conn)
		if conn := pickNow(t, c); conn != <-made {
			t.Errorf("got %v", conn)
		}
		c.Close()
	})
}
