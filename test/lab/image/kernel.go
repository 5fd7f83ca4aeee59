package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// findKernel learns the version of the one kernel that the tools root has.
func (b *build) findKernel() error {
	entries, err := os.ReadDir(filepath.Join(b.tools(), "usr/lib/modules"))
	if err != nil {
		return fmt.Errorf("find the kernel: %w", err)
	}
	if len(entries) != 1 {
		return fmt.Errorf("find the kernel: %d versions in the tools root, not 1", len(entries))
	}
	b.kernel = entries[0].Name()
	return nil
}

// unpackKernel copies the kernel for the machine and unpacks it for its nested VM: started by its PVH entry, the
// VM saves itself the decompression, some seconds under software emulation.
func (b *build) unpackKernel(ctx context.Context) error {
	image, err := os.ReadFile(filepath.Join(b.tools(), "boot/vmlinuz-"+b.kernel))
	if err != nil {
		return err
	}
	payload, err := zstdPayload(image)
	if err != nil {
		return fmt.Errorf("unpack vmlinuz-%s: %w", b.kernel, err)
	}
	packed, plain := filepath.Join(b.tools(), "build/vmlinux.zst"), "boot/vmlinux-"+b.kernel
	if err := errors.Join(
		os.WriteFile(filepath.Join(b.dir, kernelFile), image, 0o644),
		os.WriteFile(packed, payload, 0o644),
	); err != nil {
		return err
	}
	if _, err := b.chroot(ctx, b.tools(), "zstd", "-d", "-q", "-o", "/build/vmlinux", "/build/vmlinux.zst"); err != nil {
		return err
	}
	return os.Rename(filepath.Join(b.tools(), "build/vmlinux"), filepath.Join(b.layer(baseLayer), plain))
}

// zstdPayload cuts the compressed kernel out of a bzImage (Documentation/arch/x86/boot.rst: setup_sects at 0x1f1,
// payload_offset at 0x248, payload_length at 0x24c; the last four bytes of the payload are its unpacked size).
func zstdPayload(image []byte) ([]byte, error) {
	const header = 0x250
	if len(image) < header || string(image[0x202:0x206]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	sectors := uint64(image[0x1f1])
	start := (sectors+1)*512 + uint64(binary.LittleEndian.Uint32(image[0x248:]))
	length := uint64(binary.LittleEndian.Uint32(image[0x24c:]))
	if length < 4 || start+length > uint64(len(image)) {
		return nil, fmt.Errorf("payload of %d bytes at %d is outside the image of %d", length, start, len(image))
	}
	payload := image[start : start+length-4]
	if !bytes.HasPrefix(payload, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return nil, fmt.Errorf("payload begins with % x, which is not zstd", payload[:min(4, len(payload))])
	}
	return payload, nil
}
