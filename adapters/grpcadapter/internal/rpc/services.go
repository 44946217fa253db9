package rpc

import (
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// services are the registered services. They don't change once a server serves.
type services struct {
	byName map[string]*service
	byPath map[string]*method // "/service/method"
}

// service is a registered service.
type service struct {
	impl     any
	metadata any
	methods  map[string]*method
}

// method is a method of a service. A unary method is a stream too, as in grpc-go since 1.85.
type method struct {
	desc *grpc.StreamDesc
	impl any
}

// isUnary reports whether there is one message in each direction.
func (m *method) isUnary() bool { return !m.desc.ClientStreams && !m.desc.ServerStreams }

// check returns an error, in grpc-go's words, if a service can't be registered.
func (s *services) check(desc *grpc.ServiceDesc, impl any) error {
	if impl != nil {
		if desc.HandlerType == nil {
			return fmt.Errorf("grpc: Server.RegisterService found no HandlerType in the description of %q", desc.ServiceName)
		}
		want, got := reflect.TypeOf(desc.HandlerType).Elem(), reflect.TypeOf(impl)
		if !got.Implements(want) {
			return fmt.Errorf("grpc: Server.RegisterService found the handler of type %v that does not satisfy %v", got, want)
		}
	}
	if _, ok := s.byName[desc.ServiceName]; ok {
		return fmt.Errorf("grpc: Server.RegisterService found duplicate service registration for %q", desc.ServiceName)
	}
	return nil
}

// add registers a service. unary makes a stream handler from a unary method.
func (s *services) add(desc *grpc.ServiceDesc, impl any, unary func(*grpc.MethodDesc) grpc.StreamHandler) {
	to := s.addService(desc.ServiceName, impl, desc.Metadata)
	for i := range desc.Streams {
		d := &desc.Streams[i]
		s.addMethod(desc.ServiceName, to, d.StreamName, d)
	}
	for i := range desc.Methods {
		d := &desc.Methods[i]
		s.addMethod(desc.ServiceName, to, d.MethodName, &grpc.StreamDesc{StreamName: d.MethodName, Handler: unary(d)})
	}
}

func (s *services) addService(name string, impl, metadata any) *service {
	to := &service{impl: impl, metadata: metadata, methods: make(map[string]*method)}
	if s.byName == nil {
		s.byName, s.byPath = make(map[string]*service), make(map[string]*method)
	}
	s.byName[name] = to
	return to
}

func (s *services) addMethod(serviceName string, to *service, name string, desc *grpc.StreamDesc) {
	m := &method{desc: desc, impl: to.impl}
	to.methods[name] = m
	if !strings.Contains(name, "/") { // the last slash of a path is before the method
		s.byPath["/"+serviceName+"/"+name] = m
	}
}

// unaryHandler makes a stream handler from a unary method.
func unaryHandler(d *grpc.MethodDesc, interceptor grpc.UnaryServerInterceptor) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		reply, err := d.Handler(srv, stream.Context(), stream.RecvMsg, interceptor)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	}
}

// find returns the method of a path. If there is none, st says why. malformed reports that the path
// can't be the name of a method.
func (s *services) find(path string) (m *method, malformed bool, st *status.Status) {
	if m := s.byPath[path]; m != nil {
		return m, false, nil
	}
	name, rooted := strings.CutPrefix(path, "/")
	slash := strings.LastIndexByte(name, '/')
	if !rooted || slash < 0 {
		return nil, true, status.New(codes.Unimplemented, fmt.Sprintf("malformed method name: %q", path))
	}
	service, methodName := name[:slash], name[slash+1:]
	known := s.byName[service]
	if known == nil {
		return nil, false, status.New(codes.Unimplemented, fmt.Sprintf("unknown service %v", service))
	}
	return nil, false, status.New(codes.Unimplemented, fmt.Sprintf("unknown method %v for service %v", methodName, service))
}

// info describes the services.
func (s *services) info() map[string]grpc.ServiceInfo {
	all := make(map[string]grpc.ServiceInfo, len(s.byName))
	for name, from := range s.byName {
		methods := make([]grpc.MethodInfo, 0, len(from.methods))
		for _, streams := range []bool{false, true} { // unary methods come first
			for name, m := range from.methods {
				if m.isUnary() != streams {
					methods = append(methods, grpc.MethodInfo{
						Name: name, IsClientStream: m.desc.ClientStreams, IsServerStream: m.desc.ServerStreams,
					})
				}
			}
		}
		all[name] = grpc.ServiceInfo{Methods: methods, Metadata: from.metadata}
	}
	return all
}
