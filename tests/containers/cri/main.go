// A client of the container runtime interface: it drives an engine as the kubelet does, one call an
// execution, requests and answers as JSON.
//
//	cri SOCKET METHOD < request.json > answer.json
//
// METHOD: Version, RunPodSandbox, StopPodSandbox, RemovePodSandbox, ListPodSandbox, CreateContainer,
// StartContainer, StopContainer, RemoveContainer, ContainerStatus, ListContainers, ExecSync, ListImages.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// call reads a request of that type, makes the call, and writes the answer.
func call[Request, Answer any](method func(context.Context, *Request, ...grpc.CallOption) (*Answer, error)) error {
	bytes, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	request := new(Request)
	if len(bytes) > 0 {
		if err := json.Unmarshal(bytes, request); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	answer, err := method(ctx, request)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func run(socket, method string) error {
	connection, err := grpc.Dial("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	runtime := cri.NewRuntimeServiceClient(connection)
	switch method {
	case "Version":
		return call(runtime.Version)
	case "RunPodSandbox":
		return call(runtime.RunPodSandbox)
	case "StopPodSandbox":
		return call(runtime.StopPodSandbox)
	case "RemovePodSandbox":
		return call(runtime.RemovePodSandbox)
	case "ListPodSandbox":
		return call(runtime.ListPodSandbox)
	case "CreateContainer":
		return call(runtime.CreateContainer)
	case "StartContainer":
		return call(runtime.StartContainer)
	case "StopContainer":
		return call(runtime.StopContainer)
	case "RemoveContainer":
		return call(runtime.RemoveContainer)
	case "ContainerStatus":
		return call(runtime.ContainerStatus)
	case "ListContainers":
		return call(runtime.ListContainers)
	case "ExecSync":
		return call(runtime.ExecSync)
	case "ListImages":
		return call(cri.NewImageServiceClient(connection).ListImages)
	}
	return fmt.Errorf("there is no method %s here", method)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: cri SOCKET METHOD < request.json")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}
