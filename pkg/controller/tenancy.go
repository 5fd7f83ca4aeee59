package controller

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Keys of [v1alpha1.TenantsConfigMap], beside [v1alpha1.TenantKey] for each namespace. The chart's admission policy reads the first two.
const (
	// tenantLabelKey is the key of the name of the label that joins namespaces. It is missing if each namespace is a tenant by
	// itself.
	tenantLabelKey = "tenantLabel"
	// identityPrefix and a namespace's name form the key of the namespace's identity when the ID was chosen: its UID and, after
	// a space, the label's value. A namespace of the same name that has another UID or value is another tenant.
	identityPrefix = "identity."
	// labelPrefix and a value of the label form the key of the ID of the tenant with this value.
	labelPrefix = "label."
)

// Limits of the size of one ConfigMap, in bytes. MaxSecretSize of k8s.io/api/core/v1 limits its values, and --max-request-bytes
// of etcd (1.5 MiB by default) the whole object. These constants leave more than 100 KiB for the metadata.
const (
	valuesRoom = 1 << 20
	storedRoom = 1400 << 10
	// entryOverhead is more than protobuf needs for an entry of a map, in bytes.
	entryOverhead = 8
)

// tenantNamespace is what a decision about tenants needs of a namespace.
type tenantNamespace struct {
	name, uid string
	// value is the value of the tenancy's label; "" for a namespace that is a tenant by itself.
	value string
}

// identity is the value of the namespace's key with identityPrefix.
func (n *tenantNamespace) identity() string {
	if n.value == "" {
		return n.uid
	}
	return n.uid + " " + n.value
}

// holder names the tenant that an ID is for: the namespaces of a value of the label, or one namespace.
func (n *tenantNamespace) holder() string {
	if n.value != "" {
		return labelHolder(n.value)
	}
	return "namespace " + n.name + " " + n.uid
}

func labelHolder(value string) string { return "label value " + value }

// tenancy decides about the IDs of tenants.
type tenancy struct {
	// label is the label that joins namespaces to one tenant; "" if each namespace is a tenant by itself.
	label string
	newID func() string
}

// tenantsDecision has the entries that the ConfigMap is to have.
type tenantsDecision struct {
	data map[string]string
	// replaced are the namespaces and label values whose entries could not be believed, and got a new ID.
	replaced []string
	// left are the namespaces for which the ConfigMap has no room. Their claims are refused.
	left []string
}

// decide decides which IDs the namespaces are to have, from the present data of the ConfigMap. A tenant keeps its ID as long as
// it has a namespace. decide replaces what it can't trust: an entry that is not an ID, an ID that two tenants share, and an
// entry that does not say for which namespace it was chosen.
func (t *tenancy) decide(all []tenantNamespace, present map[string]string) *tenantsDecision {
	d := &decidesTenants{tenancy: t, present: present, holders: holders(present), chosen: map[string]string{}, result: &tenantsDecision{data: map[string]string{}}}
	if t.label != "" {
		d.put(tenantLabelKey, t.label)
	}
	for _, n := range d.inOrder(all) {
		d.register(&n)
	}
	slices.Sort(d.result.replaced)
	d.result.replaced = slices.Compact(d.result.replaced)
	return d.result
}

// holders returns, by ID, the tenants that have the ID according to the data. IDs of tenants that are gone count, so that no
// other tenant gets them while they are in the data.
func holders(present map[string]string) map[string][]string {
	holders := map[string][]string{}
	add := func(id, holder string) {
		if !slices.Contains(holders[id], holder) {
			holders[id] = append(holders[id], holder)
		}
	}
	for key, id := range present {
		if value, ok := strings.CutPrefix(key, labelPrefix); ok {
			add(id, labelHolder(value))
		}
		name, ok := strings.CutPrefix(key, v1alpha1.TenantKey(""))
		if !ok {
			continue
		}
		uid, value, _ := strings.Cut(present[identityPrefix+name], " ")
		add(id, (&tenantNamespace{name: name, uid: uid, value: value}).holder())
	}
	return holders
}

// decidesTenants is one decision.
type decidesTenants struct {
	*tenancy
	present map[string]string
	holders map[string][]string
	// chosen are the IDs of the result, by holder.
	chosen         map[string]string
	values, stored int
	result         *tenantsDecision
}

// inOrder returns the namespaces in the order in which they get room: first those that already have an entry.
func (d *decidesTenants) inOrder(all []tenantNamespace) []tenantNamespace {
	return slices.SortedFunc(slices.Values(all), func(a, b tenantNamespace) int {
		if known := d.isKnown(&a); known != d.isKnown(&b) {
			return map[bool]int{true: -1, false: 1}[known]
		}
		return strings.Compare(a.name, b.name)
	})
}

// isKnown reports whether the data has an entry for this namespace, as it is now.
func (d *decidesTenants) isKnown(n *tenantNamespace) bool {
	_, ok := d.present[v1alpha1.TenantKey(n.name)]
	return ok && d.present[identityPrefix+n.name] == n.identity() && (n.value == "" || d.present[tenantLabelKey] == d.label)
}

// register adds a namespace, if there is room.
func (d *decidesTenants) register(n *tenantNamespace) {
	entries := map[string]string{identityPrefix + n.name: n.identity()}
	id, known := d.chosen[n.holder()]
	if !known {
		id = d.choose(n)
		if n.value != "" {
			entries[labelPrefix+n.value] = id
		}
	}
	entries[v1alpha1.TenantKey(n.name)] = id
	if !d.fits(entries) {
		d.result.left = append(d.result.left, n.name)
		return
	}
	d.chosen[n.holder()] = id
	for key, value := range entries {
		d.put(key, value)
	}
	if old, ok := d.present[v1alpha1.TenantKey(n.name)]; ok && old != id && d.isSuspect(n) {
		d.result.replaced = append(d.result.replaced, "namespace "+n.name)
	}
}

// isSuspect reports whether a new ID of a namespace means that its former entry could not be trusted. That is the case if the
// former entry was for the same namespace in its present state, or for no known one.
func (d *decidesTenants) isSuspect(n *tenantNamespace) bool {
	_, identified := d.present[identityPrefix+n.name]
	return !identified || d.isKnown(n)
}

// choose returns the ID of a namespace's tenant: the one that it has, or a new one.
func (d *decidesTenants) choose(n *tenantNamespace) string {
	id, has := d.before(n)
	if v1alpha1.IsTenantID(id) && slices.Equal(d.holders[id], []string{n.holder()}) {
		return id
	}
	if has && n.value != "" {
		d.result.replaced = append(d.result.replaced, labelHolder(n.value))
	}
	for {
		id := d.newID()
		if _, used := d.holders[id]; !used {
			d.holders[id] = []string{n.holder()}
			return id
		}
	}
}

// before returns the ID that the data has for a namespace's tenant.
func (d *decidesTenants) before(n *tenantNamespace) (id string, ok bool) {
	switch {
	case n.value == "" && d.isKnown(n):
		id, ok = d.present[v1alpha1.TenantKey(n.name)]
	case n.value != "" && d.present[tenantLabelKey] == d.label:
		id, ok = d.present[labelPrefix+n.value]
	}
	return id, ok
}

// fits reports whether there is room for more entries.
func (d *decidesTenants) fits(entries map[string]string) bool {
	values, stored := size(entries)
	return d.values+values <= valuesRoom && d.stored+stored <= storedRoom
}

func (d *decidesTenants) put(key, value string) {
	values, stored := size(map[string]string{key: value})
	d.values, d.stored, d.result.data[key] = d.values+values, d.stored+stored, value
}

// size returns the size of entries in bytes: as the API server counts the values, and as etcd counts all of it.
func size(entries map[string]string) (values, stored int) {
	for key, value := range entries {
		values += len(value)
		stored += len(key) + len(value) + entryOverhead
	}
	return values, stored
}

// registered returns how many namespaces a decision has an ID for.
func (d *tenantsDecision) registered() int {
	n := 0
	for key := range d.data {
		if strings.HasPrefix(key, v1alpha1.TenantKey("")) {
			n++
		}
	}
	return n
}

// isDone reports whether the data is as decided.
func (d *tenantsDecision) isDone(present map[string]string) bool { return maps.Equal(d.data, present) }

// randomID returns an ID that nobody can guess. crypto/rand never fails: see [rand.Read].
func randomID() string {
	var id [8]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
