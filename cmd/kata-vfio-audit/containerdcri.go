package main

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// askCRI asks the CRI plugin for its status in full, which holds its configuration as it is in use (containerd
// internal/cri/server status.go).
func askCRI(ctx context.Context, conn grpc.ClientConnInterface) (*facts.CRI, error) {
	status, err := cri.NewRuntimeServiceClient(conn).Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("its CRI's status: %w", err)
	}
	return decodeCRI(status.Info["config"])
}

// decodeCRI decodes the configuration as containerd encodes it (internal/cri/config config.go). It ignores other
// fields.
func decodeCRI(text string) (*facts.CRI, error) {
	var config struct {
		Containerd struct {
			Runtimes map[string]criRuntime `json:"runtimes"`
		} `json:"containerd"`
		CDISpecDirs []string `json:"cdiSpecDirs"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("its CRI's configuration: %w", err)
	}
	c := &facts.CRI{Handlers: make(map[string]facts.CRIHandler, len(config.Containerd.Runtimes)), CDIDirs: config.CDISpecDirs}
	for name, r := range config.Containerd.Runtimes {
		c.Handlers[name] = r.handler()
	}
	return c, nil
}

type criRuntime struct {
	Type                 string   `json:"runtimeType"`
	Path                 string   `json:"runtimePath"`
	PodAnnotations       []string `json:"PodAnnotations"`
	ContainerAnnotations []string `json:"ContainerAnnotations"`
	Options              struct {
		ConfigPath string `json:"ConfigPath"`
	} `json:"options"`
	PrivilegedWithoutHostDevices bool   `json:"privileged_without_host_devices"`
	AllDevicesAllowed            bool   `json:"privileged_without_host_devices_all_devices_allowed"`
	Sandboxer                    string `json:"sandboxer"`
}

func (r *criRuntime) handler() facts.CRIHandler {
	return facts.CRIHandler{
		Type: r.Type, Path: r.Path, Config: r.Options.ConfigPath,
		PodAnnotations: r.PodAnnotations, ContainerAnnotations: r.ContainerAnnotations,
		PrivilegedWithoutHostDevices: r.PrivilegedWithoutHostDevices, AllDevicesAllowed: r.AllDevicesAllowed,
		Sandboxer: r.Sandboxer,
	}
}
