package dra_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestLinkOfAVF: a claim whose VF has no link is ready, says so, and warns in Events.
func TestLinkOfAVF(t *testing.T) {
	linkState := func(value string) string {
		return strings.Replace(plugintest.Untagged, "{", `{"linkState":"`+value+`",`, 1)
	}
	for name, c := range map[string]struct {
		driver     vftest.Driver
		parameters string
		change     func(*vftest.Links)
		condition  string
		message    string
		warns      string // the Events' reason; empty if there is none
	}{
		"the PF has a link":          {vftest.Igb(), plugintest.Untagged, nil, "LinkUp=True (PFHasCarrier)", "PF 0000:21:00.0 has a carrier", ""},
		"the PF has no carrier":      {vftest.Igb(), plugintest.Untagged, (*vftest.Links).Unplug, "LinkUp=False (PFNoCarrier)", "of PF 0000:21:00.0 has no carrier: the VF has no link", "PFNoCarrier"},
		"the PF is down":             {vftest.Igb(), plugintest.Untagged, (*vftest.Links).TurnOff, "LinkUp=False (PFDown)", "random MAC address; run `ip link set ", "PFDown"},
		"the claim wants no link":    {vftest.Complete(), linkState("Disable"), (*vftest.Links).Unplug, "LinkUp=False (LinkDisabled)", "its linkState is Disable", ""},
		"the claim wants one anyway": {vftest.Complete(), linkState("Enable"), (*vftest.Links).Unplug, "LinkUp=True (LinkEnabled)", "its linkState is Enable", ""},
		"but the PF is down":         {vftest.Complete(), linkState("Enable"), (*vftest.Links).TurnOff, "LinkUp=False (PFDown)", "is down", "PFDown"},
	} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			n.Links.Use(c.driver)
			_, vfs := n.Kernel.AddNIC(0x21, 1)
			if c.change != nil {
				c.change(n.Links)
			}
			asked := plugintest.Allocated("uid-1", "vf-"+vfs[0].Label())
			asked.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{plugintest.FromClass("gpu", c.parameters)}
			k := plugintest.Serve(t, n, n.Claims, "", asked, pooled(asked))
			n.Publish(&plugintest.Recorder{})
			if answer := k.Prepare(asked)["uid-1"]; answer.Error != "" {
				t.Fatal(answer.Error)
			}
			got := k.Status(asked)[0]
			want := []string{"Ready=True (Prepared)", "Isolated=True (Isolated)", "Reset=True (MemoryNotChecked)", c.condition}
			if diff := cmp.Diff(want, plugintest.Conditions(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if link := meta.FindStatusCondition(got.Conditions, dra.ConditionLinkUp); link != nil && !strings.Contains(link.Message, c.message) {
				t.Errorf("the message is %q, want %q", link.Message, c.message)
			}
			events := []string{"ResourceClaim team-a/claim-uid-1 Normal Prepared", "Pod team-a/train Normal Prepared"}
			if c.warns != "" {
				warning := c.warns + " Prepare: vf 0000:21:"
				events = append(events, "ResourceClaim team-a/claim-uid-1 Warning "+warning, "Pod team-a/train Warning "+warning)
			}
			k.Events.Want(t, events...)
		})
	}
}

// TestStatusFollowsTheLink of a prepared VF, with the time of the change, and is written
// once for each.
func TestStatusFollowsTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := plugintest.New(t)
		_, vfs := n.Kernel.AddNIC(0x21, 1)
		name := "vf-" + vfs[0].Label()
		n.Prepare("uid-1", name)
		c := plugintest.Allocated("uid-1", name)
		server, uplink := newAwayServer(c), n.Policy.Uplink
		r := dra.NewReporter(dra.ReporterConfig{
			Client: server, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet(),
			Uplink: func(ctx context.Context, pf pci.Address) (*vf.Link, error) { return uplink(ctx, pf) },
		})
		go func() { _ = r.Run(t.Context()) }() // it has no error to return
		statuses := &dra.StatusSync{Reporter: r, Records: n.Records, Attributes: n.Publisher.Attributes}
		var changed time.Time
		for i, c := range []struct {
			change func()
			want   string
		}{
			{func() {}, "LinkUp=True (PFHasCarrier)"},
			{n.Links.Unplug, "LinkUp=False (PFNoCarrier)"},
			{n.Links.TurnOff, "LinkUp=False (PFDown)"},
			{func() { uplink = cutOff }, "LinkUp=Unknown (PFUnreadable)"},
		} {
			c.change()
			lookEachMinute(t, statuses, 10)
			devices := server.devices(t, plugintest.Allocated("uid-1", name))
			if got := plugintest.Conditions(devices[0]); len(got) != 4 || got[3] != c.want {
				t.Fatalf("conditions %q, want %s last", got, c.want)
			}
			link := meta.FindStatusCondition(devices[0].Conditions, dra.ConditionLinkUp)
			if same := c.want == "LinkUp=False (PFDown)"; same != link.LastTransitionTime.Time.Equal(changed) {
				t.Errorf("%s since %s, after %s", c.want, link.LastTransitionTime, changed)
			}
			changed = link.LastTransitionTime.Time
			if server.writes != i+1 || server.asked > 3*(i+1) { // to see it, to see it written, and by this test
				t.Errorf("%s: %d writes and %d questions", c.want, server.writes, server.asked)
			}
		}
	})
}

// TestLookReadsEachPFOnce: to read a PF is to read all of its VFs, and a node may have hundreds of claims.
func TestLookReadsEachPFOnce(t *testing.T) {
	n := plugintest.New(t)
	_, vfs := n.Kernel.AddNIC(0x21, 3)
	for i, a := range vfs {
		n.Prepare("uid-"+itoa(i), "vf-"+a.Label())
	}
	reads := 0
	r := dra.NewReporter(dra.ReporterConfig{
		Client: plugintest.Cluster(), Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet(),
		Uplink: func(ctx context.Context, pf pci.Address) (*vf.Link, error) {
			reads++
			return n.Policy.Uplink(ctx, pf)
		},
	})
	statuses := &dra.StatusSync{Reporter: r, Records: n.Records, Attributes: n.Publisher.Attributes}
	for look := 1; look <= 2; look++ {
		if statuses.Look(t.Context()); reads != look {
			t.Errorf("%d reads of the PF after %d looks, want one for each", reads, look)
		}
	}
}

// TestVFWithoutAMACHasNoLinkCondition: what the interface of an InfiniBand PF says is not the VF's link.
func TestVFWithoutAMACHasNoLinkCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := plugintest.New(t)
		n.Links.Use(vftest.InfiniBand())
		n.Links.TurnOff()
		_, vfs := n.Kernel.AddHCA(0x21, 1)
		c := plugintest.Allocated("uid-1", "vf-"+vfs[0].Label())
		c.Status.Allocation.Devices.Config = nil
		req, err := claim.Decode(c, "kata-vfio.dev")
		if err != nil {
			t.Fatal(err)
		}
		rec, err := n.Claims.Prepare(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		server, events := newAwayServer(c), &plugintest.EventLog{}
		r := dra.NewReporter(dra.ReporterConfig{Client: server, Recorder: events, Log: plugintest.Quiet(), Uplink: n.Policy.Uplink})
		go func() { _ = r.Run(t.Context()) }() // it has no error to return
		r.Prepared(t.Context(), c, rec, n.Publisher.Attributes)
		synctest.Wait()
		if devices := server.devices(t, c); len(devices) != 1 || len(devices[0].Conditions) != 3 || events.Count("Warning") > 0 {
			t.Errorf("status %+v, %d warnings", devices, events.Count("Warning"))
		}
	})
}

func cutOff(context.Context, pci.Address) (*vf.Link, error) { return nil, context.DeadlineExceeded }
