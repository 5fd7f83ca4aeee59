package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/network/vf/link"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// AddressesFile is the file in which a copy of a node holds the IPv4 addresses of its interfaces ([link.Address]). No file of the node
// itself names the interfaces of the addresses. Older copies don't have the file.
const AddressesFile = "kata-vfio/addresses.json"

// asking makes a scan ask for addresses through one connection, so that at most one request is in progress, even if the kernel does not
// answer.
func asking(of *link.Rtnetlink) Option { return func(s *scan) { s.ask = of } }

// connection returns the connection to a node's kernel; false for a copy.
func connection(fsys *sysfs.FS) (*link.Rtnetlink, bool, error) {
	_, live, err := link.Live(fsys)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // without permission to enter the node's namespace, the reader's own namespace is asked
		return nil, false, err
	}
	return link.NewRtnetlink(filepath.Join(fsys.Path(), "proc")), live, nil
}

// Addresses returns the IPv4 addresses of a running node's interfaces from the kernel, and those of a copy from its
// file; nil if the copy has none.
func Addresses(ctx context.Context, fsys *sysfs.FS) ([]link.Address, error) {
	return addressesBy(ctx, fsys, nil)
}

func addressesBy(ctx context.Context, fsys *sysfs.FS, ask *link.Rtnetlink) ([]link.Address, error) {
	if ask == nil {
		kernel, live, err := connection(fsys)
		if err != nil {
			return nil, err
		}
		if !live {
			return copiedAddresses(fsys)
		}
		ask = kernel
	}
	all, err := ask.Addresses(ctx)
	if all == nil {
		// The result must not be nil: nil means unknown, and the addresses would be guessed from the routes.
		all = []link.Address{}
	}
	return all, err
}

func copiedAddresses(fsys *sysfs.FS) ([]link.Address, error) {
	text, err := readOptional(fsys, AddressesFile)
	if err != nil || text == "" {
		return nil, err
	}
	var all []link.Address
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", AddressesFile, err)
	}
	return all, nil
}

// of4 returns the IPv4 addresses of a netdev.
func (n *network) of4(netdev string) ([]string, error) {
	if len(n.byIndex) == 0 {
		return nil, nil
	}
	text, err := readOptional(n.fs, path.Join("sys/class/net", netdev, "ifindex"))
	if errors.Is(err, syscall.EINVAL) { // it is going: no attribute of it answers (net/core/net-sysfs.c dev_isalive)
		return nil, nil
	}
	if text == "" || err != nil { // it has gone
		return nil, err
	}
	index, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("index of interface %s: %w", netdev, err)
	}
	return n.byIndex[index], nil
}
