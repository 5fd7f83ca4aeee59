package image

// Recipe is what an image is made of.
type Recipe struct {
	// Suite is the Debian release of the machine. Its QEMU is run on the host as well: the one in Debian 12's
	// backports (10.0.2) maps the BARs of virtual functions above 4 GiB at their low 32 bits.
	Suite string
	// Packages are installed in the machine's root, on top of debootstrap's minbase variant.
	Packages []string
	// Tools are installed in the root in which modules are built, which the machine never sees.
	Tools []string
	// Modules are the kernel modules of the machine, without those they depend on.
	Modules []string
	// StockVFIO are the modules that only the legacy variant carries, as Debian built them.
	StockVFIO []string
	// RootMiB is the size of the machine's root disk.
	RootMiB int
}

// standard is the one recipe of the lab.
func standard() Recipe {
	return Recipe{
		Suite: "trixie",
		Packages: []string{
			"driverctl", "ethtool", "grub2-common", "iproute2", "iptables", "iputils-ping", "kmod", "netbase",
			"pci.ids", "pciutils", "procps", "qemu-system-x86", "seabios",
			"virtiofsd", // Kata's
		},
		Tools: []string{"linux-headers-amd64", "linux-source", "make", "xz-utils", "zstd"},
		Modules: []string{
			"virtio_blk", "virtio_net", "virtio_rng", "ext4", "crc32c_generic", "9p", "9pnet_virtio", "overlay", "loop", "fuse",
			"igb", "igbvf", "e1000", "e1000e", "nvme", "bochs", "virtio-gpu", "snd-hda-intel",
			"kvm-amd", "kvm-intel", "pci-stub", "uio_pci_generic", "vhost_net", "vhost_vsock", "tun",
			"vmw_vsock_virtio_transport", "bridge", "br_netfilter", "veth", "macvlan", "dummy", "8021q",
			"nf_tables", "nft_compat", "nft_chain_nat", "nft_ct", "nft_masq", "xt_MASQUERADE", "xt_addrtype",
			"xt_comment", "xt_conntrack", "xt_mark", "xt_multiport", "xt_nat", "xt_tcpudp",
			"ip_tables", "iptable_filter", "iptable_nat", "ip6_tables",
			"psample", // netdevsim's
			// Kata's: it opens every family of netlink, and leads a pod's traffic to its VM.
			"xfrm_user", "sch_ingress", "cls_u32", "act_mirred",
		},
		StockVFIO: []string{"vfio-pci", "vfio_iommu_type1"},
		RootMiB:   1024,
	}
}
