package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

// apiServer has the flags for the API server of a cluster.
type apiServer struct {
	kube    kube.Flags
	options cluster.Options
	// reports are files of nodes' own audits.
	reports []string
	// nodeName is the node of the reports without a name.
	nodeName string
}

func clusterCommand() *cobra.Command {
	var a apiServer
	j := newJudging(report.Formats())
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Judge a cluster through its API",
		Long: "cluster checks through the API server whether tenants' pods with devices run in VMs, who can bypass that, and whether\n" +
			"what runs matches what was allocated. It needs the verb list. To test the policies it makes dry runs, which need the\n" +
			"verb create for pods and resourceclaims in one namespace, whose quota admits no object (--probe-namespace; empty for\n" +
			"no dry runs). The chart's audit.enabled creates a ServiceAccount with exactly these permissions, and the namespace.\n" +
			"\n" +
			"--node-report adds reports of nodes (`node -o json`, or the log of `node --every`): each node's verdict, failures of\n" +
			"many nodes with the nodes' names, and differences between the nodes and the API server. The latest report of a node\n" +
			"counts; checkpoints in its earlier reports verify its ledger. In a log of `kubectl logs --prefix`, a report counts only\n" +
			"if its pod is on the node that it names. Without prefixes, a failure counts until no report of the last two hours has it.\n" +
			"\n" +
			nodeExitCodes,
		Example: "  kata-vfio-audit cluster\n  kata-vfio-audit cluster --context prod -o sarif > cluster.sarif\n" +
			"  kubectl logs -n kata-vfio-system -l app.kubernetes.io/component=node-audit --since=2h --tail=-1 --max-log-requests=100 --prefix |\n" +
			"    kata-vfio-audit cluster --node-report -",
		Args:    command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return j.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			reports, err := fleet.ReadReports(cmd.InOrStdin(), a.reports, a.nodeName)
			if err != nil {
				return err
			}
			doc, err := a.judge(cmd.Context(), j, reports)
			if err != nil {
				return err
			}
			if err := warnOnce(cmd.ErrOrStderr(), unusedWords(doc.UnusedWaivers)); err != nil {
				return err
			}
			return j.finish(cmd.OutOrStdout(), doc)
		},
	}
	j.flags(cmd)
	f, o := cmd.Flags(), &a.options
	a.kube.Add(cmd)
	f.StringVarP(&o.Namespace, "namespace", "n", pluginNamespace, "namespace of the plugin")
	f.StringVar(&o.TenantLabel, "tenant-label", "kata-vfio.dev/tenant", "label that marks tenants' namespaces")
	f.StringSliceVar(&o.RuntimeClasses, "runtime-class", []string{"kata-gpu"}, "RuntimeClasses whose pods may have devices")
	f.StringArrayVar(&a.reports, "node-report", nil, "report of a node's own audit, or a directory of reports; - for standard input; may be repeated")
	f.StringVar(&a.nodeName, "node-name", "", nodeNameUsage)
	f.StringVar(&o.ProbeNamespace, "probe-namespace", "kata-vfio-audit-probe", "namespace for dry runs; if it is empty, there are none")
	f.StringVar(&o.SchedulerName, "scheduler-name", "", "scheduler of the pods in dry runs: what the chart's admission.tenants.schedulerName says")
	return cmd
}

// nodeNameUsage describes the flag of commands that read nodes' reports.
const nodeNameUsage = "the node of the reports that have no node name, because the machine did not know it"

// requestLimit is the time that the API server may take for all requests.
const requestLimit = 2 * time.Minute

// judge reads the cluster and runs all checks.
func (a *apiServer) judge(ctx context.Context, j *judging, reports []*finding.Report) (*report.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	client, host, err := a.connect()
	if err != nil {
		return nil, err
	}
	s, err := cluster.Read(ctx, client, a.options)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	s.Reports, s.Now = reports, now
	checks, err := cluster.Catalogue(j.rules)
	if err != nil {
		return nil, err
	}
	r := cluster.Run(s, checks, finding.Options{Profile: j.wantedProfile, Waivers: j.accepted, Today: now.Format(time.DateOnly)})
	r.Subject = finding.Subject{Kind: "cluster", Name: host, Time: now.Format(time.RFC3339), Version: command.Build()}
	r.RuleFiles = j.rules.Files
	asked := j.rules.OfClusters()
	if len(reports) > 0 {
		// The reports bring findings of the nodes' own rules.
		asked = j.rules.Rules
	}
	return &report.Document{Report: r, Rules: asked}, nil
}

// connect returns a client of the API server, and its address.
func (a *apiServer) connect() (client *kube.Client, host string, err error) {
	config, err := a.kube.Config("kata-vfio-audit")
	if err != nil {
		return nil, "", err
	}
	config.WarningHandler = rest.NoWarnings{} // dry runs return warnings, and the findings have them
	client, err = kube.NewClient(config)
	return client, config.Host, err
}
