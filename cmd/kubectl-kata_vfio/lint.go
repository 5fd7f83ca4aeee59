package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/lint"
)

// linting has the flags of lint.
type linting struct {
	files    []string
	policies string
	cluster  bool
	// system is the chart's namespace, which has the view of DeviceClasses.
	system string
}

func lintCommand(s *session) *cobra.Command {
	formats := command.Formats{"text", "json", "yaml", "sarif"}
	var format string
	var l linting
	cmd := &cobra.Command{
		Use:   "lint -f FILE",
		Short: "Check claims, pods and whatever makes pods before the cluster refuses them",
		Long: "lint asks the chart's admission policies and the plugin's reader of parameters about ResourceClaims, ResourceClaimTemplates, Pods\n" +
			"and the pod templates of Deployments, Jobs and all other kinds, and shows file, line, field and fix of each fault. It needs no\n" +
			"cluster: it takes the policies as the chart has them with its own values, and the namespace as a tenant's. --policies names\n" +
			"those of other values. --cluster asks the cluster for the namespace's labels and, as far as you may read them, for policies and\n" +
			"DeviceClasses. An object that names a namespace is judged in it; with -n or --cluster, another namespace is a fault. lint can't\n" +
			"know what only the cluster knows, such as quotas, or policies of others. Policies that only warn or audit (admission.action)\n" +
			"refuse nothing, and are not asked.\n" +
			"\n" +
			exitCodeHelp("lint"),
		Example: "  kubectl kata-vfio lint -f pod.yaml\n  kustomize build . | kubectl kata-vfio lint -f -\n  kubectl kata-vfio lint -f deploy/ -n team-a --cluster\n" +
			"  helm template kata-vfio CHART -f values.yaml > policies.yaml && kubectl kata-vfio lint --policies policies.yaml -f pod.yaml",
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error {
			if len(l.files) == 0 {
				return command.Usagef("-f is missing: name a file, a directory, or - for the standard input")
			}
			return formats.Check(format)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := s.lint(cmd, &l)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if format == "sarif" {
				err = writeLintSARIF(out, report)
			} else if done, failed := output.Document(out, format, "lint", report); done {
				err = failed
			} else {
				err = writeLines(out, lintLines(report, output.Width(out), output.Colorful(out)))
			}
			if n := len(report.Problems); n > 0 {
				err = errors.Join(err, &verdictError{output.Count(n, "problem")})
			}
			return err
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringArrayVarP(&l.files, "filename", "f", nil, "`FILE`, directory (its .yaml, .yml and .json files, at any depth), or - for the standard input; repeat it for several")
	cmd.Flags().StringVar(&l.policies, "policies", "", "`FILE` with the policies, as `helm template` or `kubectl get -o yaml` prints them")
	cmd.Flags().BoolVar(&l.cluster, "cluster", false, "ask the cluster for its policies, DeviceClasses and the namespace's labels")
	cmd.Flags().StringVar(&l.system, "system-namespace", systemNamespace, "`namespace` of the chart, for --cluster")
	return cmd
}

// lint checks the files.
func (s *session) lint(cmd *cobra.Command, l *linting) (*lint.Report, error) {
	linter := &lint.Linter{}
	// A kubeconfig is not needed: without one that can be read, the namespace is "default".
	linter.NamespaceName, _ = s.kube.Namespace()
	named, err := cmd.Flags().GetString("namespace")
	if err != nil {
		return nil, err
	}
	// With --cluster, what was read is about one namespace.
	linter.OneNamespace = named != "" || l.cluster
	if l.policies != "" {
		linter.Policies, err = readPolicies(l.policies)
	} else {
		linter.Policies, err = lint.OfChart()
	}
	if err != nil {
		return nil, err
	}
	if l.cluster {
		if err := s.askCluster(cmd, linter, l); err != nil {
			return nil, err
		}
	}
	for _, name := range l.files {
		if err := addFiles(linter, cmd.InOrStdin(), name); err != nil {
			return nil, err
		}
	}
	return linter.Report(cmd.Context())
}

func readPolicies(name string) (*lint.Policies, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, command.Usagef("read the policies: %w", err)
	}
	p, err := lint.ParsePolicies(text)
	if err != nil {
		return nil, command.Usagef("policies %s: %w", name, err)
	}
	if len(p.Names()) == 0 {
		return nil, command.Usagef("policies %s: it has no ValidatingAdmissionPolicy of kata-vfio", name)
	}
	return p, nil
}

// addFiles adds a file, all files of a directory, or the standard input.
func addFiles(linter *lint.Linter, stdin io.Reader, name string) error {
	if name == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return fmt.Errorf("read the standard input: %w", err)
		}
		if linter.Add("-", text) == 0 {
			return nothingIn("the standard input")
		}
		return nil
	}
	found, documents := 0, 0
	// A file that is named itself counts with any ending.
	err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path != name && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		documents += linter.Add(path, text)
		return nil
	})
	if err != nil {
		return command.Usagef("read the manifests: %w", err)
	}
	if found == 0 {
		return command.Usagef("directory %s has no .yaml, .yml or .json file", name)
	}
	if documents == 0 {
		return nothingIn(name)
	}
	return nil
}

// nothingIn is the error for a source without a document. A pipeline whose renderer printed nothing must not pass.
func nothingIn(name string) error {
	return command.Usagef("%s has nothing to check, only empty lines or comments; want manifests in YAML or JSON, such as a Pod or a ResourceClaim", name)
}

// askCluster reads from the cluster the namespace, the policies and the DeviceClasses that decide there. If the user may not
// read the policies, it uses those of the chart.
func (s *session) askCluster(cmd *cobra.Command, linter *lint.Linter, l *linting) error {
	client, namespace, err := s.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), requestLimit)
	defer cancel()
	warn := func(what, instead string, err error) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s could not be read, %s: %s\n", what, instead, output.Visible(err.Error()))
	}
	// Labels of the namespace decide whether the policies' bindings select it.
	linter.Namespace = &corev1.Namespace{}
	if err := client.Get(ctx, "", namespace, linter.Namespace); err != nil {
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("read namespace %s: %w", namespace, err)
		}
		warn("namespace "+namespace, "so it is taken for a tenant's", err)
		linter.Namespace = nil
	}
	if l.policies == "" {
		of, err := clusterPolicies(ctx, client)
		if err == nil {
			linter.Policies = of
		} else {
			warn("the cluster's policies", "so those of the chart's own values are asked", err)
		}
	}
	if linter.Classes, err = clusterClasses(ctx, client, l.system, namespace); err != nil {
		warn("the DeviceClasses", "so grants are not checked", err)
	}
	linter.AllClasses = err == nil
	return nil
}

// clusterPolicies reads those policies of the chart that the cluster has. A tenant may get them by name, and not list them.
func clusterPolicies(ctx context.Context, client lister) (*lint.Policies, error) {
	chart, err := lint.OfChart()
	if err != nil {
		return nil, err
	}
	found := &lint.Policies{}
	for _, name := range chart.Names() {
		for _, object := range []runtime.Object{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}} {
			switch err := client.Get(ctx, "", name, object); {
			case apierrors.IsNotFound(err): // switched off
			case err != nil:
				return nil, err
			default:
				found.Add(object)
			}
		}
	}
	return found, nil
}

// clusterClasses returns the DeviceClasses as policies see them. If the user may not list DeviceClasses, it returns those of
// kata-vfio, as the view in namespace system describes them.
func clusterClasses(ctx context.Context, client lister, system, namespace string) ([]*resourceapi.DeviceClass, error) {
	var list resourceapi.DeviceClassList
	err := client.List(ctx, "", &list, metav1.ListOptions{})
	if err == nil {
		all := make([]*resourceapi.DeviceClass, len(list.Items))
		for i := range list.Items {
			all[i] = &list.Items[i]
		}
		return all, nil
	}
	if !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list DeviceClasses: %w", err)
	}
	v, err := classView(ctx, client, system)
	if err != nil {
		return nil, err
	}
	uid, err := namespaceUID(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	var all []*resourceapi.DeviceClass
	for i := range v.Classes {
		// The view has no labels: the class is rebuilt with the one grant that matters here.
		granted := ""
		if v.Granted(&v.Classes[i], uid) {
			granted = namespace
		}
		all = append(all, v.Classes[i].Class(granted))
	}
	return all, nil
}

// lintLines is a report for people.
func lintLines(r *lint.Report, width int, color bool) (lines []string) {
	for i := range r.Problems {
		p := &r.Problems[i]
		where := p.File
		if p.Line > 0 {
			where += fmt.Sprintf(":%d", p.Line)
		}
		text := strings.Join(slices.DeleteFunc([]string{p.Object, p.Field}, func(s string) bool { return s == "" }), " ")
		if p.Code != "" {
			text += " (" + string(p.Code) + ")"
		}
		lines = append(lines, indented(output.Paint(color, output.Red, "✗")+" ", "  ", strings.TrimSpace(where+": "+text), width)...)
		lines = append(lines, indented("    ", "    ", p.Text, width)...)
		if p.Fix != "" {
			lines = append(lines, indented("    → ", "      ", p.Fix, width)...)
		}
	}
	if len(r.Problems) > 0 {
		lines = append(lines, "")
	}
	summary := output.Count(r.Checked, "object") + " checked, " + output.Count(len(r.Problems), "problem")
	if others := slices.Sorted(maps.Keys(r.PassedOver)); len(others) > 0 {
		summary += "; no rule is about " + strings.Join(others, ", ")
	}
	return append(lines, indented("", "", summary, width)...)
}
