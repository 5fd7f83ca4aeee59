package queue

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	yamls "sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
)

const (
	module         = "sigs.k8s.io/kueue"
	definitions    = "config/components/crd/bases"
	configurations = "config/components/webhook/manifests.yaml"
)

// install applies Kueue's own manifests: its CustomResourceDefinitions, and the webhooks that this host's controller serves.
func (k *Kueue) install(ctx context.Context, webhook int) error {
	sources, err := binaries.Sources(ctx, binaries.Kueue, module)
	if err != nil {
		return err
	}
	crds := filepath.Join(sources, definitions)
	if _, err := k.plane.Kubectl(ctx, "apply", "--server-side", "-f", crds); err != nil {
		return err
	}
	if _, err := k.plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "-f", crds); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(sources, configurations))
	if err != nil {
		return err
	}
	hooks, err := webhooks(text, webhook, k.plane.CA())
	if err != nil {
		return fmt.Errorf("read Kueue's webhooks: %w", err)
	}
	_, err = k.plane.KubectlInput(ctx, bytes.NewReader(hooks), "apply", "--server-side", "-f", "-")
	return err
}

// uninstall removes the webhooks.
func (k *Kueue) uninstall() {
	// The test's own context may be over. What stays ends with the control plane.
	_, _ = k.plane.Kubectl(context.Background(), "delete", "--ignore-not-found",
		"mutatingwebhookconfiguration/mutating-webhook-configuration", "validatingwebhookconfiguration/validating-webhook-configuration")
}

// webhooks returns the configurations of a manifest, of which only the webhooks of Kueue's own objects and of Jobs are
// left, and these lead to a port of this host.
func webhooks(manifest []byte, port int, ca []byte) ([]byte, error) {
	var all bytes.Buffer
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var u unstructured.Unstructured
		if err := documents.Decode(&u); errors.Is(err, io.EOF) {
			return all.Bytes(), nil
		} else if err != nil {
			return nil, err
		}
		if err := redirect(&u, port, ca); err != nil {
			return nil, err
		}
		text, err := yamls.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		all.WriteString("---\n")
		all.Write(text)
	}
}

// redirect keeps the webhooks that the controller of the tests serves, and has them called at a port of this host.
func redirect(u *unstructured.Unstructured, port int, ca []byte) error {
	hooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		return err
	}
	hooks = slices.DeleteFunc(hooks, func(hook any) bool { return !served(pathOf(hook)) })
	if len(hooks) == 0 {
		return fmt.Errorf("%s %s has no webhook for Jobs and for Kueue's own objects", u.GetKind(), u.GetName())
	}
	for _, hook := range hooks {
		hook.(map[string]any)["clientConfig"] = map[string]any{
			"url": "https://" + address(port) + pathOf(hook), "caBundle": base64.StdEncoding.EncodeToString(ca),
		}
	}
	return unstructured.SetNestedSlice(u.Object, hooks, "webhooks")
}

// pathOf returns the path that a webhook is served at, or "" if there is none.
func pathOf(hook any) string {
	fields, _ := hook.(map[string]any)
	path, _, err := unstructured.NestedString(fields, "clientConfig", "service", "path")
	if err != nil {
		return ""
	}
	return path
}

func served(path string) bool {
	return strings.HasSuffix(path, "-batch-v1-job") || strings.Contains(path, "-kueue-x-k8s-io-")
}
