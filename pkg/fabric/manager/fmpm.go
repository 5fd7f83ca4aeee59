package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/program"
)

// defaultAddress is where fmpm connects without --hostname.
const defaultAddress = "127.0.0.1:6666"

// FMPM asks Fabric Manager through NVIDIA's program fmpm (github.com/NVIDIA/Fabric-Manager-Client, version 1.0.1). It
// connects by TCP alone: with --unix-domain-socket it connects to 127.0.0.1 all the same, so a client for a socket is
// [Helper].
type FMPM struct {
	// Program is the path of fmpm.
	Program string
	// Address is where Fabric Manager's API is: tcp:address:port.
	Address string
}

var _ fabric.Manager = (*FMPM)(nil)

// Partitions implements [fabric.Manager].
func (f *FMPM) Partitions(ctx context.Context) (fabric.List, error) {
	out, err := f.call(ctx, fabric.CallList, "-l")
	if err != nil {
		return nil, err
	}
	list, err := parseFMPM(out)
	if err != nil {
		return nil, fmt.Errorf("read the list of fmpm: %w", err)
	}
	return list, list.Check()
}

// Activate implements [fabric.Manager].
func (f *FMPM) Activate(ctx context.Context, id int) error {
	return f.change(ctx, fabric.CallActivate, []int{id}, "-a", strconv.Itoa(id))
}

// Deactivate implements [fabric.Manager].
func (f *FMPM) Deactivate(ctx context.Context, id int) error {
	return f.change(ctx, fabric.CallDeactivate, []int{id}, "-d", strconv.Itoa(id))
}

// SetActivated implements [fabric.Manager]. An empty argument of fmpm is a list of no partitions.
func (f *FMPM) SetActivated(ctx context.Context, ids []int) error {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(id)
	}
	return f.change(ctx, fabric.CallReplay, ids, "--set-activated-list", strings.Join(texts, ","))
}

// change makes a call that prints nothing. It treats any output as an error, whatever the exit code: fmpm ends with code 0 after some
// errors. It refuses a list with a partition twice, because fmpm never ends with such a list.
func (f *FMPM) change(ctx context.Context, call fabric.Call, ids []int, args ...string) error {
	if err := checkIDs(ids); err != nil {
		return fmt.Errorf("ask Fabric Manager to %s: %w", call, err)
	}
	out, err := f.call(ctx, call, args...)
	if err != nil {
		return err
	}
	if text := program.Said(out); text != "" {
		return fmt.Errorf("ask Fabric Manager to %s: fmpm ended with success, and it is unknown whether there was any%s", call, text)
	}
	return nil
}

func (f *FMPM) call(ctx context.Context, call fabric.Call, args ...string) ([]byte, error) {
	kind, rest, err := fabric.SplitAddress(f.Address)
	if err != nil {
		return nil, err
	}
	if kind != fabric.TCP {
		return nil, fmt.Errorf("fmpm connects by TCP alone, and the address of Fabric Manager is %s: use the client %s", f.Address, Program)
	}
	ctx, cancel := limited(ctx, call)
	defer cancel()
	if rest != defaultAddress { // fmpm before 1.0.1 has no other
		args = append([]string{"--hostname", strings.TrimSuffix(rest, ":6666")}, args...)
	}
	e, err := program.Program{Path: f.Program}.Run(ctx, nil, args...)
	if err != nil {
		return nil, fmt.Errorf("ask Fabric Manager to %s: %w", call, err)
	}
	if e.Code == 0 {
		return e.Stdout, nil
	}
	return nil, f.failure(call, e)
}

// printed is the code in what fmpm prints of an error.
var printed = regexp.MustCompile(`fmReturn: (-\d+)\b`)

// failure returns the error for an exit code other than 0. Fabric Manager's code is negative, and the kernel keeps its last 8 bits as the
// exit code. If fmpm prints the code too, both must agree.
func (f *FMPM) failure(call fabric.Call, e *program.Ended) error {
	code := fabric.Code(e.Code - 256)
	if m := printed.FindSubmatch(e.Stdout); m != nil && string(m[1]) != strconv.Itoa(int(code)) {
		return fmt.Errorf("ask Fabric Manager to %s: exit code %d of fmpm stands for %d%s", call, e.Code, code, program.Said(e.Stdout))
	}
	// Fabric Manager's codes go down to -29. Lower ones are fmpm's own, such as for a wrong option, or a shell's.
	if code < -29 {
		return fmt.Errorf("ask Fabric Manager to %s: exit code %d of fmpm is none of Fabric Manager%s%s", call, e.Code, program.Said(e.Stdout), program.Said(e.Stderr))
	}
	return &fabric.CodeError{Call: call, Code: code}
}

// fmpmList is what fmpm prints of partitions: the structures of the library, with their names.
type fmpmList struct {
	Count      *int            `json:"numPartitions"`
	Partitions []fmpmPartition `json:"partitionInfo"`
}

type fmpmPartition struct {
	ID     *int      `json:"partitionId"`
	Active *int      `json:"isActive"`
	Count  int       `json:"numGpus"`
	GPUs   []fmpmGPU `json:"gpuInfo"`
}

type fmpmGPU struct {
	Module   *int   `json:"physicalId"`
	UUID     string `json:"uuid"`
	Address  string `json:"pciBusId"`
	Links    int    `json:"numNvLinksAvailable"`
	MaxLinks int    `json:"maxNumNvLinks"`
	LineRate int    `json:"nvlinkLineRateMBps"`
}

// parseFMPM reads the list. A field must be present if the partition would have another meaning without it: 0 is a valid ID.
func parseFMPM(out []byte) (fabric.List, error) {
	var from fmpmList
	if err := json.Unmarshal(out, &from); err != nil {
		return nil, err
	}
	if from.Count == nil || *from.Count != len(from.Partitions) {
		return nil, fmt.Errorf("numPartitions is missing, or not the number of its partitions, %d", len(from.Partitions))
	}
	list := fabric.List{}
	for i := range from.Partitions {
		p := &from.Partitions[i]
		if p.ID == nil || p.Active == nil || p.Count != len(p.GPUs) {
			return nil, fmt.Errorf("partition %d of the list has no partitionId, no isActive, or not numGpus GPUs", i)
		}
		to := fabric.Partition{ID: *p.ID, Active: *p.Active != 0}
		for _, g := range p.GPUs {
			if g.Module == nil {
				return nil, fmt.Errorf("a GPU of partition %d has no physicalId", *p.ID)
			}
			to.GPUs = append(to.GPUs, fabric.GPU{Module: *g.Module, UUID: g.UUID, Address: g.Address, Links: g.Links, MaxLinks: g.MaxLinks, LineRate: g.LineRate})
		}
		list = append(list, to)
	}
	return list, nil
}
