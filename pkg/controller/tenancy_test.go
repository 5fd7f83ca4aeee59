package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// tenancyLabel joins namespaces in these tests.
const tenancyLabel = "example.com/team"

// counting returns a source of IDs that counts up: 1, 2, 3.
func counting() func() string {
	n := 0
	return func() string { n++; return testID(n) }
}

func testID(n int) string { return fmt.Sprintf("%016x", n) }

// ns is a namespace: "a", or "a/red" with a value of the label. Its UID is "uid-a", or the one after a "#".
func ns(text string) tenantNamespace {
	text, uid, other := strings.Cut(text, "#")
	name, value, _ := strings.Cut(text, "/")
	if !other {
		uid = "uid-" + name
	}
	return tenantNamespace{name: name, uid: uid, value: value}
}

func all(texts ...string) []tenantNamespace {
	namespaces := make([]tenantNamespace, len(texts))
	for i, text := range texts {
		namespaces[i] = ns(text)
	}
	return namespaces
}

// data returns the ConfigMap of namespaces with their IDs: "a=1", or "a/red=1".
func data(texts ...string) map[string]string {
	d := map[string]string{}
	for _, text := range texts {
		who, number, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(number)
		if err != nil {
			panic(err)
		}
		one := ns(who)
		d[v1alpha1.TenantKey(one.name)], d[identityPrefix+one.name] = testID(n), one.identity()
		if one.value != "" {
			d[labelPrefix+one.value], d[tenantLabelKey] = testID(n), tenancyLabel
		}
	}
	return d
}

// with returns data with other entries: "key=value", or "key" for an entry that is removed.
func with(d map[string]string, changes ...string) map[string]string {
	for _, c := range changes {
		if key, value, ok := strings.Cut(c, "="); ok {
			d[key] = value
		} else {
			delete(d, key)
		}
	}
	return d
}

// TestDecisionAboutTenants: new IDs count from 11 on.
func TestDecisionAboutTenants(t *testing.T) {
	for name, tt := range map[string]struct {
		label    string
		present  map[string]string
		all      []tenantNamespace
		want     map[string]string
		replaced []string
	}{
		"the first namespaces":            {"", nil, all("b", "a"), data("a=11", "b=12"), nil},
		"nothing changed":                 {"", data("a=1", "b=2"), all("a", "b"), data("a=1", "b=2"), nil},
		"one more":                        {"", data("b=2"), all("a", "b"), data("a=11", "b=2"), nil},
		"one is gone":                     {"", data("a=1", "b=2"), all("b"), data("b=2"), nil},
		"one was created again":           {"", data("a=1", "b=2"), all("a#other", "b"), data("a#other=11", "b=2"), nil},
		"namespaces of one value":         {tenancyLabel, nil, all("a/red", "b/red", "c/blue", "d"), data("a/red=11", "b/red=11", "c/blue=12", "d=13"), nil},
		"one more of a value":             {tenancyLabel, data("a/red=1"), all("a/red", "b/red"), data("a/red=1", "b/red=1"), nil},
		"the first of a value is gone":    {tenancyLabel, data("a/red=1", "b/red=1"), all("b/red"), data("b/red=1"), nil},
		"all of a value are gone":         {tenancyLabel, data("a/red=1", "b=2"), all("b"), with(data("b=2"), tenantLabelKey+"="+tenancyLabel), nil},
		"a value came back later":         {tenancyLabel, with(data("b=2"), tenantLabelKey+"="+tenancyLabel), all("a/red", "b"), data("a/red=11", "b=2"), nil},
		"one of a value was created anew": {tenancyLabel, data("a/red=1", "b/red=1"), all("a/red#other", "b/red"), data("a/red#other=1", "b/red=1"), nil},
		"one has another value":           {tenancyLabel, data("a/red=1", "b/red=1", "c/blue=2"), all("a/red", "b/blue", "c/blue"), data("a/red=1", "b/blue=2", "c/blue=2"), nil},
		"two exchange their values":       {tenancyLabel, data("a/red=1", "b/blue=2"), all("a/blue", "b/red"), data("a/blue=2", "b/red=1"), nil},
		"one lost its value":              {tenancyLabel, data("a/red=1", "b/red=1"), all("a/red", "b"), data("a/red=1", "b=11"), nil},
		"the only one lost its value":     {tenancyLabel, data("a/red=1"), all("a"), with(data("a=11"), tenantLabelKey+"="+tenancyLabel), nil},
		"one got a value":                 {tenancyLabel, with(data("a=1"), tenantLabelKey+"="+tenancyLabel), all("a/red"), data("a/red=11"), nil},
		"the label is new":                {tenancyLabel, data("a=1", "b=2"), all("a/red", "b"), data("a/red=11", "b=2"), nil},
		"there is no label any more":      {"", data("a/red=1", "b/red=1", "c=2"), all("a", "b", "c"), data("a=11", "b=12", "c=2"), nil},
		"another label, the same value":   {tenancyLabel, with(data("a/red=1"), tenantLabelKey+"=example.com/color"), all("a/red"), data("a/red=11"), nil},
		"an entry that is no ID":          {"", with(data("a=1", "b=2"), "namespace.a=b"), all("a", "b"), data("a=11", "b=2"), []string{"namespace a"}},
		"an entry in capitals":            {"", with(data("a=1"), "namespace.a=00000000000000AB"), all("a"), data("a=11"), []string{"namespace a"}},
		"an empty entry":                  {"", with(data("a=1"), "namespace.a="), all("a"), data("a=11"), []string{"namespace a"}},
		"an ID that two share":            {"", data("a=1", "b=1", "c=2"), all("a", "b", "c"), data("a=11", "b=12", "c=2"), []string{"namespace a", "namespace b"}},
		"the ID of one that is gone":      {"", data("a=1", "b=1"), all("a"), data("a=11"), []string{"namespace a"}},
		"the ID of a value":               {tenancyLabel, data("a/red=1", "b=1"), all("a/red", "b"), data("a/red=11", "b=12"), []string{"label value red", "namespace a", "namespace b"}},
		"a value's entry is another's":    {tenancyLabel, with(data("a/red=1", "b=2"), "label.red="+testID(2)), all("a/red", "b"), data("a/red=11", "b=12"), []string{"label value red", "namespace a", "namespace b"}},
		"two values share an ID":          {tenancyLabel, data("a/red=1", "b/blue=1"), all("a/red", "b/blue"), data("a/red=11", "b/blue=12"), []string{"label value blue", "label value red", "namespace a", "namespace b"}},
		"a member's entry is no ID":       {tenancyLabel, with(data("a/red=1", "b/red=1"), "namespace.a=x"), all("a/red", "b/red"), data("a/red=1", "b/red=1"), []string{"namespace a"}},
		"a member's entry is another's":   {tenancyLabel, with(data("a/red=1", "b=2"), "namespace.a="+testID(2)), all("a/red", "b"), data("a/red=1", "b=11"), []string{"namespace a", "namespace b"}},
		"a value's entry is removed":      {tenancyLabel, with(data("a/red=1"), "label.red"), all("a/red"), data("a/red=11"), []string{"namespace a"}},
		"an entry without identity":       {"", with(data("a=1"), "identity.a"), all("a"), data("a=11"), []string{"namespace a"}},
		"an identity without entry":       {"", with(data("a=1"), "namespace.a"), all("a"), data("a=11"), nil},
		"an entry of nobody":              {"", with(data("a=1"), "namespace.b="+testID(2), "other=x"), all("a"), data("a=1"), nil},
		"IDs that are used":               {"", data("x=11", "b=12"), all("a", "b"), data("a=13", "b=12"), nil},
	} {
		next := counting()
		for range 10 {
			next()
		}
		decide := tenancy{label: tt.label, newID: next}
		got := decide.decide(tt.all, tt.present)
		if diff := cmp.Diff(tt.want, got.data); diff != "" {
			t.Errorf("%s: the data differ (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(tt.replaced, got.replaced); diff != "" {
			t.Errorf("%s: what is replaced differs (-want +got):\n%s", name, diff)
		}
		if again := decide.decide(tt.all, got.data); !again.isDone(got.data) || len(again.replaced) > 0 {
			t.Errorf("%s: decided again, it is %v, replaced %v", name, again.data, again.replaced)
		}
		if len(got.left) > 0 || got.registered() != len(tt.all) {
			t.Errorf("%s: %d are registered, and there is no room for %v", name, got.registered(), got.left)
		}
	}
}

// TestRoomForTenants: at the limit, who is registered stays so, nobody is dropped silently, and there is room again after others.
func TestRoomForTenants(t *testing.T) {
	decide := tenancy{newID: counting()}
	var many []tenantNamespace
	for i := range 15000 {
		many = append(many, tenantNamespace{name: fmt.Sprintf("namespace-%010d", i), uid: "11111111-2222-3333-4444-555555555555"})
	}
	first := decide.decide(many[5000:], nil)
	if len(first.left) > 0 || first.registered() != 10000 {
		t.Fatalf("%d of 10,000 namespaces are registered, and there is no room for %d", first.registered(), len(first.left))
	}
	full := decide.decide(many, first.data)
	if len(full.left) == 0 || full.registered()+len(full.left) != len(many) {
		t.Fatalf("of %d, %d are registered, and there is no room for %d", len(many), full.registered(), len(full.left))
	}
	if values, stored := size(full.data); values > valuesRoom || stored > storedRoom || stored < storedRoom-1000 {
		t.Errorf("the data have %d bytes in values, and %d in all", values, stored)
	}
	for key, value := range first.data {
		if full.data[key] != value {
			t.Fatalf("%s is %q, want %q as before", key, full.data[key], value)
		}
	}
	if rest := decide.decide(many[5000:], full.data); len(rest.left) > 0 {
		t.Errorf("after others are gone, there is no room for %d", len(rest.left))
	}
}

// TestRoomForLongValues: the API server counts values, too.
func TestRoomForLongValues(t *testing.T) {
	decide := tenancy{label: tenancyLabel, newID: counting()}
	var many []tenantNamespace
	for i := range 12000 {
		many = append(many, tenantNamespace{name: strconv.Itoa(i), uid: "11111111-2222-3333-4444-555555555555", value: strings.Repeat("x", 63)})
	}
	d := decide.decide(many, nil)
	if values, stored := size(d.data); values > valuesRoom || stored > storedRoom || len(d.left) == 0 {
		t.Errorf("the data have %d bytes in values, and %d in all; no room for %d", values, stored, len(d.left))
	}
}

// TestRandomTenants compares decisions about random namespaces, in a random order of events, with what must hold for each of them.
func TestRandomTenants(t *testing.T) {
	for seed := range uint64(300) {
		m := newTenantModel(t, seed)
		for range 60 {
			m.step()
		}
	}
}

// tenantModel has what happened to tenants.
type tenantModel struct {
	t          *testing.T
	seed       uint64
	random     *rand.Rand
	tenancy    tenancy
	namespaces map[string]tenantNamespace
	uids       int
	present    map[string]string
	// owners are the tenants that ever had an ID. A tenant is as long as it has a namespace.
	owners map[string]string
	// eras count how often a tenant began: the first namespace of a value, or a namespace without one.
	eras map[string]int
	// edited says that somebody changed the data since the last write.
	edited bool
}

func newTenantModel(t *testing.T, seed uint64) *tenantModel {
	m := &tenantModel{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 36)), namespaces: map[string]tenantNamespace{}, present: map[string]string{},
		owners: map[string]string{}, eras: map[string]int{}, tenancy: tenancy{label: tenancyLabel},
	}
	// The source returns IDs of others, too.
	next := counting()
	m.tenancy.newID = func() string {
		used := slices.DeleteFunc(slices.Sorted(maps.Values(m.present)), func(v string) bool { return !v1alpha1.IsTenantID(v) })
		if len(used) > 0 && m.random.IntN(4) == 0 {
			return used[m.random.IntN(len(used))]
		}
		return next()
	}
	return m
}

func (m *tenantModel) step() {
	for range 1 + m.random.IntN(3) {
		m.happen()
	}
	if m.seed%3 == 0 && m.random.IntN(8) == 0 {
		m.edit()
	}
	d := m.tenancy.decide(slices.Collect(maps.Values(m.namespaces)), m.present)
	if m.random.IntN(4) == 0 {
		return // a crash before the write, or a conflict
	}
	m.check(d)
	m.present, m.edited = d.data, false
}

// happen changes a namespace, or who is one tenant.
func (m *tenantModel) happen() {
	name := string(rune('a' + m.random.IntN(6)))
	n, exists := m.namespaces[name]
	switch what := m.random.IntN(20); {
	case what == 0:
		m.tenancy.label = []string{"", tenancyLabel, "example.com/color"}[m.random.IntN(3)]
		for name, n := range m.namespaces {
			n.value = m.value()
			m.namespaces[name] = n
		}
	case !exists || what < 4: // created, or deleted and created again
		m.uids++
		m.namespaces[name] = tenantNamespace{name: name, uid: fmt.Sprint("uid-", m.uids), value: m.value()}
	case what < 10:
		delete(m.namespaces, name)
	default:
		n.value = m.value()
		m.namespaces[name] = n
	}
}

// value returns a value of the label.
func (m *tenantModel) value() string {
	if m.tenancy.label == "" {
		return ""
	}
	return []string{"", "", "red", "blue"}[m.random.IntN(4)]
}

// edit changes an entry by hand: to something else, to another's, or to nothing.
func (m *tenantModel) edit() {
	keys := slices.Sorted(maps.Keys(m.present))
	if len(keys) == 0 || m.edited {
		return
	}
	m.edited = true
	m.present = maps.Clone(m.present)
	key := keys[m.random.IntN(len(keys))]
	switch m.random.IntN(4) {
	case 0:
		m.present[key] = "broken"
	case 1:
		m.present[key] = m.present[keys[m.random.IntN(len(keys))]]
	case 2:
		delete(m.present, key)
	case 3:
		clear(m.present)
	}
}

// check compares a decision that is written with those before.
func (m *tenantModel) check(d *tenantsDecision) {
	m.t.Helper()
	if d.registered() != len(m.namespaces) {
		m.t.Fatalf("seed %d: %d of %d namespaces are registered", m.seed, d.registered(), len(m.namespaces))
	}
	lived, ids := m.lived(), map[string]string{}
	for _, n := range m.namespaces {
		tenant := m.tenant(&n)
		if !lived[tenant] {
			m.eras[tenant]++
			lived[tenant] = true
		}
		tenant = fmt.Sprint(tenant, " since ", m.eras[tenant])
		id := d.data[v1alpha1.TenantKey(n.name)]
		if !v1alpha1.IsTenantID(id) {
			m.t.Fatalf("seed %d: namespace %s has the ID %q", m.seed, n.name, id)
		}
		if before, ok := ids[tenant]; ok && before != id {
			m.t.Fatalf("seed %d: tenant %s has the IDs %s and %s", m.seed, tenant, before, id)
		}
		ids[tenant] = id
	}
	m.checkOwners(ids, d)
}

// tenant names the tenant of a namespace.
func (m *tenantModel) tenant(n *tenantNamespace) string {
	if n.value == "" {
		return n.uid
	}
	return m.tenancy.label + "=" + n.value
}

// lived returns the tenants at the last write.
func (m *tenantModel) lived() map[string]bool {
	lived := map[string]bool{}
	for key, identity := range m.present {
		if !strings.HasPrefix(key, identityPrefix) {
			continue
		}
		if uid, value, joined := strings.Cut(identity, " "); joined {
			lived[m.present[tenantLabelKey]+"="+value] = true
		} else {
			lived[uid] = true
		}
	}
	return lived
}

// checkOwners compares the IDs of tenants with those that they, and others, had before.
func (m *tenantModel) checkOwners(ids map[string]string, d *tenantsDecision) {
	m.t.Helper()
	for tenant, id := range ids {
		if owner, ok := m.owners[id]; ok && owner != tenant && !m.edited {
			m.t.Fatalf("seed %d: tenant %s has the ID %s of tenant %s", m.seed, tenant, id, owner)
		}
		for other, its := range ids {
			if other != tenant && its == id {
				m.t.Fatalf("seed %d: tenants %s and %s share the ID %s", m.seed, tenant, other, id)
			}
		}
		for before, owner := range m.owners {
			if owner == tenant && before != id && !m.edited {
				m.t.Fatalf("seed %d: tenant %s had the ID %s, and has %s (%v)", m.seed, tenant, before, id, d.replaced)
			}
		}
	}
	if m.edited {
		clear(m.owners)
	}
	for tenant, id := range ids {
		m.owners[id] = tenant
	}
}
