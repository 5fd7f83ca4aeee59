// Command vendor-driver runs the stand-in for a vendor's DRA driver on a node: a plugin of its kubelet that gives GPUs to
// containers. It withdraws its slice when it is asked to end.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/vendordriver"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the node")
	node := flag.String("node", "", "the node's name")
	gpus := flag.String("gpus", "", "PCI addresses of the GPUs, with commas between")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	err := run(ctx, *kubeconfig, *node, strings.Split(*gpus, ","))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vendor-driver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, node string, addresses []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c := vendordriver.Config{Client: client, Node: node, KernelDriver: kernelDriver}
	for _, text := range addresses {
		a, err := pci.ParseAddress(text)
		if err != nil {
			return err
		}
		c.GPUs = append(c.GPUs, vendordriver.GPU{Address: a})
	}
	return serve(ctx, vendordriver.New(c))
}

// serve registers the driver with the kubelet and publishes its GPUs until ctx ends.
func serve(ctx context.Context, d *vendordriver.Driver) error {
	dir := filepath.Join(kubeletplugin.KubeletPluginsDir, vendordriver.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(vendordriver.Name), kubeletplugin.KubeClient(d.Client),
		kubeletplugin.NodeName(d.Node), kubeletplugin.PluginDataDirectoryPath(dir))
	if err != nil {
		return err
	}
	defer helper.Stop()
	if err := registered(ctx, helper); err != nil {
		return err
	}
	if err := d.Publish(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return d.Withdraw(context.WithoutCancel(ctx))
}

// registered waits until the kubelet has the plugin: it tries a claim that came before again only a quarter of a minute later.
func registered(ctx context.Context, helper *kubeletplugin.Helper) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		status := helper.RegistrationStatus()
		return status != nil && status.GetPluginRegistered(), nil
	})
}

// kernelDriver returns the driver that a function is bound to; empty for none.
func kernelDriver(a pci.Address) string {
	driver, err := os.Readlink("/sys/bus/pci/devices/" + a.String() + "/driver")
	if err != nil {
		return ""
	}
	return filepath.Base(driver)
}
