package kube_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

// apiServer answers each request by what answers has for its method and URL, and refuses the others as forbidden.
func apiServer(t *testing.T, answers map[string]string, bodies map[string]string) *kube.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := r.Method + " " + r.URL.RequestURI()
		body, _ := io.ReadAll(r.Body)
		if bodies != nil {
			bodies[asked] = string(body)
		}
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[asked]
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"asked for ` + asked + `"}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestClientNamesEachResourceAsTheAPIServerDoes(t *testing.T) {
	client := apiServer(t, nil, nil)
	for url, list := range map[string]runtime.Object{
		"/api/v1/pods": &corev1.PodList{}, "/api/v1/namespaces": &corev1.NamespaceList{}, "/api/v1/nodes": &corev1.NodeList{},
		"/api/v1/events": &corev1.EventList{}, "/api/v1/configmaps": &corev1.ConfigMapList{}, "/api/v1/resourcequotas": &corev1.ResourceQuotaList{},
		"/apis/apps/v1/daemonsets": &appsv1.DaemonSetList{}, "/apis/autoscaling/v2/horizontalpodautoscalers": &autoscalingv2.HorizontalPodAutoscalerList{}, "/apis/node.k8s.io/v1/runtimeclasses": &nodev1.RuntimeClassList{},
		"/apis/resource.k8s.io/v1/resourceslices": &resourceapi.ResourceSliceList{}, "/apis/resource.k8s.io/v1/resourceclaims": &resourceapi.ResourceClaimList{},
		"/apis/resource.k8s.io/v1/deviceclasses":                                            &resourceapi.DeviceClassList{},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles":                                   &rbacv1.ClusterRoleList{},
		"/apis/rbac.authorization.k8s.io/v1/rolebindings":                                   &rbacv1.RoleBindingList{},
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies":                 &admissionv1.ValidatingAdmissionPolicyList{},
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings?limit=500": &admissionv1.ValidatingAdmissionPolicyBindingList{},
	} {
		o := metav1.ListOptions{}
		if _, ok := list.(*admissionv1.ValidatingAdmissionPolicyBindingList); ok {
			o.Limit = 500
		}
		err := client.List(t.Context(), "", list, o)
		if status, ok := err.(apierrors.APIStatus); !ok || !apierrors.IsForbidden(err) || status.Status().Message != "asked for GET "+url {
			t.Errorf("%T: %v; want a request for %s", list, err, url)
		}
	}
}

func TestClientListsAndWatchesANamespace(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"team-a"}}`
	client := apiServer(t, map[string]string{
		"GET /version": `{"gitVersion":"v1.37.2"}`,
		"GET /api/v1/namespaces/team-a/pods?fieldSelector=spec.nodeName%3Dn1":            `{"kind":"PodList","apiVersion":"v1","items":[` + pod + `]}`,
		"GET /api/v1/namespaces/team-a/pods?fieldSelector=spec.nodeName%3Dn1&watch=true": `{"type":"ADDED","object":` + pod + `}`,
	}, nil)
	if v, err := client.ServerVersion(t.Context()); err != nil || v.GitVersion != "v1.37.2" {
		t.Errorf("version %v, %v", v, err)
	}
	o := metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}
	var pods corev1.PodList
	if err := client.List(t.Context(), "team-a", &pods, o); err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "a" {
		t.Errorf("listed %+v, %v", pods.Items, err)
	}
	w, err := client.Watch(t.Context(), "team-a", &corev1.PodList{}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if p, ok := (<-w.ResultChan()).Object.(*corev1.Pod); !ok || p.Name != "a" {
		t.Errorf("watched %+v", p)
	}
}

// TestClientReadsALog: the options are in the request as the API server names them, and a refusal is an error that says so.
func TestClientReadsALog(t *testing.T) {
	client := apiServer(t, map[string]string{
		"GET /api/v1/namespaces/kata-vfio/pods/plugin-a/log?container=plugin&previous=true&tailLines=100": "first\nsecond\n",
	}, nil)
	tail := int64(100)
	log, err := client.Logs(t.Context(), "kata-vfio", "plugin-a", &corev1.PodLogOptions{Container: "plugin", Previous: true, TailLines: &tail})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	if err := errors.Join(err, log.Close()); err != nil || string(text) != "first\nsecond\n" {
		t.Errorf("log %q, %v; want the server's two lines", text, err)
	}
	if _, err := client.Logs(t.Context(), "kata-vfio", "plugin-b", &corev1.PodLogOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a log that may not be read: %v, want the server's refusal", err)
	}
}

func TestClientCreates(t *testing.T) {
	const url = "POST /apis/resource.k8s.io/v1/namespaces/probe/resourceclaims?dryRun=All"
	bodies := map[string]string{}
	client := apiServer(t, map[string]string{url: `{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{"name":"c","uid":"made"}}`}, bodies)
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if err := client.Create(t.Context(), "probe", c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || c.UID != "made" {
		t.Errorf("created %+v, %v", c, err)
	}
	var sent metav1.TypeMeta
	if err := json.Unmarshal([]byte(bodies[url]), &sent); err != nil || sent.Kind != "ResourceClaim" || sent.APIVersion != "resource.k8s.io/v1" {
		t.Errorf("sent %s, %v", bodies[url], err)
	}
}

// forbids answers each request at once.
type forbids struct{}

func (forbids) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
}

// TestClientLimitsItsRequests of all groups together, unless a negative QPS says that there is no limit.
func TestClientLimitsItsRequests(t *testing.T) {
	for qps, want := range map[float32]time.Duration{0: 10 * time.Second, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			client, err := kube.NewClient(&rest.Config{Host: "https://api.example.com", Transport: forbids{}, QPS: qps})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			for range (rest.DefaultBurst + 10*int(rest.DefaultQPS)) / 2 {
				_ = client.List(t.Context(), "", &corev1.PodList{}, metav1.ListOptions{})
				_ = client.List(t.Context(), "", &resourceapi.ResourceClaimList{}, metav1.ListOptions{})
			}
			if took := time.Since(start).Round(time.Second); took != want {
				t.Errorf("60 requests with QPS %v take %s, want %s", qps, took, want)
			}
		})
	}
}

func TestClientRefusesAnUnknownKind(t *testing.T) {
	if err := apiServer(t, nil, nil).List(t.Context(), "", &metav1.PartialObjectMetadataList{}, metav1.ListOptions{}); err == nil {
		t.Error("a list of an unknown kind is accepted")
	}
}

func TestClientListsTheResourcesThatAreServed(t *testing.T) {
	const list = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
		{"metadata":{"name":"kueue.x-k8s.io"},"versions":[{"version":"v1beta2","resources":[{"resource":"workloads"}]},{"version":"v1beta1","resources":[{"resource":"topologies"}]}]},
		{"metadata":{"name":"custom.metrics.k8s.io"},"versions":[{"version":"v1beta2","freshness":"Stale"}]}]}`
	got, err := apiServer(t, map[string]string{"GET /apis": list}, nil).Resources(t.Context())
	want := []schema.GroupResource{
		{Group: "kueue.x-k8s.io"}, {Group: "kueue.x-k8s.io", Resource: "workloads"}, {Group: "kueue.x-k8s.io", Resource: "topologies"}, {Group: "custom.metrics.k8s.io"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for answer, want := range map[string]string{`{"kind":"APIGroupList"}`: "older than Kubernetes 1.30", "[]": "decode"} {
		if _, err := apiServer(t, map[string]string{"GET /apis": answer}, nil).Resources(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
	if _, err := apiServer(t, nil, nil).Resources(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("%v", err)
	}
}

func TestClientDeletes(t *testing.T) {
	bodies := map[string]string{}
	client := apiServer(t, map[string]string{"DELETE /api/v1/namespaces/probe/pods/a": `{"kind":"Status","apiVersion":"v1","status":"Success"}`}, bodies)
	o := metav1.DeleteOptions{GracePeriodSeconds: new(int64(5))}
	if err := client.Delete(t.Context(), "probe", "a", &corev1.Pod{}, o); err != nil || !strings.Contains(bodies["DELETE /api/v1/namespaces/probe/pods/a"], `"gracePeriodSeconds":5`) {
		t.Errorf("got %v, %q; want the pod deleted with its grace period", err, bodies)
	}
	if err := client.Delete(t.Context(), "probe", "b", &corev1.Pod{}, o); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want that it is forbidden", err)
	}
}
