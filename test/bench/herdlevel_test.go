//go:build e2e

package bench

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// pluginLevel is the name of the chart's FlowSchema and of its priority level.
const pluginLevel = "kata-vfio-plugin"

// levelName returns the priority level of the plugins' requests.
func (h *herd) levelName() string {
	if h.level {
		return pluginLevel
	}
	return "workload-low" // of all service accounts
}

// addLevel creates what the chart does with flowControl.enabled.
func (h *herd) addLevel(b *testing.B) {
	b.Helper()
	all := int32(100)
	_, err := h.admin.FlowcontrolV1().PriorityLevelConfigurations().Create(b.Context(), &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: pluginLevel},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: new(int32(20)), LendablePercent: &all,
				LimitResponse: flowcontrolv1.LimitResponse{
					Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 10_000},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	_, err = h.admin.FlowcontrolV1().FlowSchemas().Create(b.Context(), levelSchema(b), metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
}

// levelSchema leads the plugins' requests to their level.
func levelSchema(b *testing.B) *flowcontrolv1.FlowSchema {
	b.Helper()
	namespace, name, err := serviceaccount.SplitUsername(account().Name)
	if err != nil {
		b.Fatal(err)
	}
	every := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: pluginLevel},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: pluginLevel}, MatchingPrecedence: 8000,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{
					Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: name},
				}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: every, APIGroups: every, Resources: every, Namespaces: every, ClusterScope: true}},
			}},
		},
	}
}
