package ledger_test

import (
	"context"
	"fmt"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// A ledger is verified against a checkpoint that was kept off the node.
func ExampleVerify() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	w, err := writer.Open(ctx, writer.Config{Dir: dir, Node: "node-1", BootID: "boot-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	anchor, err := w.Append(ctx,
		ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: &ledger.Claim{Namespace: "tenant-a", Name: "gpu"}},
		ledger.Event{Type: ledger.Unprepare, Result: ledger.OK, Claim: &ledger.Claim{Namespace: "tenant-a", Name: "gpu"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := ledger.Verify(os.DirFS(dir), ledger.Options{Anchors: ledger.FindCheckpoints([]byte(anchor))})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("sound:", report.OK(), "events:", report.Size, "anchored:", report.Anchored)
	for entry, err := range ledger.Events(os.DirFS(dir)) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(entry.Event.Type, entry.Event.Result)
	}
	// Output:
	// sound: true events: 2 anchored: 2
	// prepare ok
	// unprepare ok
}
