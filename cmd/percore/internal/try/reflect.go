package try

import (
	"context"
	"fmt"
	"strings"

	"github.com/jhump/protoreflect/v2/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Message encodes text, a message in JSON, as protocol buffers for a unary method of the server at addr,
// such as "/package.Service/Method". The server must have gRPC's reflection service, in cleartext. If it
// has no such method, the error names those it has.
func Message(ctx context.Context, addr, method, text string) ([]byte, error) {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := grpcreflect.NewClientAuto(ctx, cc)
	defer client.Reset()
	m, err := unaryMethod(client, method)
	if err != nil {
		return nil, fmt.Errorf("ask %s, by gRPC's reflection service, for the method %s: %w", addr, method, err)
	}
	message := dynamicpb.NewMessage(m.Input())
	if err := protojson.Unmarshal([]byte(text), message); err != nil {
		return nil, fmt.Errorf("%s takes a %s: %w", method, m.Input().FullName(), err)
	}
	return proto.Marshal(message)
}

func unaryMethod(client *grpcreflect.Client, method string) (protoreflect.MethodDescriptor, error) {
	services, err := client.ListServices()
	if err != nil {
		return nil, err
	}
	var has []string
	for _, name := range services {
		file, err := client.FileContainingSymbol(name)
		if err != nil {
			return nil, err
		}
		service := file.Services().ByName(name.Name())
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if m.IsStreamingClient() || m.IsStreamingServer() {
				continue
			}
			path := fmt.Sprintf("/%s/%s", name, m.Name())
			if path == method {
				return m, nil
			}
			has = append(has, path)
		}
	}
	return nil, fmt.Errorf("it has no such unary method, but %s", strings.Join(append(has, "no others"), ", "))
}
