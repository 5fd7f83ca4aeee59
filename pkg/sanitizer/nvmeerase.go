package sanitizer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// erased is a namespace on its way from its tenant's data to none.
type erased struct {
	controller nvmeController
	info       controllerInfo
	method     Method
	all        bool // read all blocks afterwards
	log        *slog.Logger

	namespace *namespace
	marker    []byte
	blocks    []uint64 // that have the marker
	spent     time.Duration
}

const (
	markerSize = 16
	// randomBlocks is how many blocks get a marker besides the first and the last.
	randomBlocks = 16
	// forceUnit lets a write or read reach the medium before it completes: FUA in dword 12.
	forceUnit = 1 << 30
)

// mark writes markers into the namespace, and checks that they can be read.
func (e *erased) mark(ctx context.Context, id uint32) error {
	defer e.time(time.Now())
	if err := e.identify(id); err != nil {
		return err
	}
	if err := e.dropMetadata(ctx); err != nil {
		return err
	}
	if err := e.choose(); err != nil {
		return err
	}
	for _, block := range e.blocks {
		data := bytes.Repeat(e.marker, int(e.namespace.blockSize())/markerSize)
		if err := e.access(nvmWrite, block, 1, data); err != nil {
			return fmt.Errorf("write a marker: %w", err)
		}
	}
	for _, block := range e.blocks {
		found, err := e.marked(block)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%s: block %d does not keep what is written to it: an erase can't be verified", e.namespace.name(), block)
		}
	}
	return nil
}

// time adds the time since begun to what the namespace took.
func (e *erased) time(begun time.Time) { e.spent += time.Since(begun) }

func (e *erased) identify(id uint32) (err error) {
	e.namespace, err = identifyNamespace(e.controller, id)
	return err
}

// dropMetadata formats a namespace whose blocks have metadata, so that blocks can be read as they are.
func (e *erased) dropMetadata(ctx context.Context) error {
	if e.namespace.current().metadata == 0 {
		return nil
	}
	if e.method == WriteZeroes {
		return fmt.Errorf("%s has blocks with metadata, which %s does not erase", e.namespace.name(), e.method)
	}
	if err := e.format(ctx); err != nil {
		return err
	}
	return e.identify(e.namespace.id)
}

// choose chooses the marker and the blocks for it: the first, the last, and some between.
func (e *erased) choose() error {
	e.marker = make([]byte, markerSize)
	if _, err := rand.Read(e.marker); err != nil {
		return fmt.Errorf("make a random marker: %w", err)
	}
	e.blocks = []uint64{0, e.namespace.blocks - 1}
	for range randomBlocks {
		n, err := rand.Int(rand.Reader, new(big.Int).SetUint64(e.namespace.blocks))
		if err != nil {
			return fmt.Errorf("choose blocks: %w", err)
		}
		e.blocks = append(e.blocks, n.Uint64())
	}
	slices.Sort(e.blocks)
	e.blocks = slices.Compact(e.blocks)
	return nil
}

// access reads or writes blocks.
func (e *erased) access(opcode uint8, block, count uint64, data []byte) error {
	err := e.controller.io(&nvmeCommand{
		opcode: opcode, nsid: e.namespace.id, cdw10: uint32(block), cdw11: uint32(block >> 32), cdw12: uint32(count-1) | forceUnit, data: data,
	})
	if err != nil {
		return fmt.Errorf("%s, block %d: %w", e.namespace.name(), block, err)
	}
	return nil
}

// marked reports whether the marker can be read in a block.
func (e *erased) marked(block uint64) (bool, error) {
	data := make([]byte, e.namespace.blockSize())
	if err := e.access(nvmRead, block, 1, data); err != nil {
		return false, fmt.Errorf("read a marker: %w", err)
	}
	return bytes.Contains(data, e.marker), nil
}

// erase erases the namespace by the method.
func (e *erased) erase(ctx context.Context) error {
	defer e.time(time.Now())
	e.log.Info("erase", slog.String("namespace", e.namespace.name()), slog.String("method", string(e.method)), slog.Uint64("bytes", e.namespace.bytes()))
	if e.method != WriteZeroes {
		return e.format(ctx)
	}
	return e.writeZeroes(ctx)
}

// Values of SES in bits 11:9 of Format NVM's dword 10.
const (
	sesUserData = 1
	sesCrypto   = 2
)

// format formats the namespace without metadata, and erases by the method.
func (e *erased) format(ctx context.Context) error {
	plain, err := e.namespace.plain()
	if err != nil {
		return err
	}
	ses := uint32(sesUserData)
	if e.method == Crypto {
		ses = sesCrypto
	}
	id := e.namespace.id
	if e.info.format&(formatsAll|erasesAll) != 0 {
		id = everyNamespace
	}
	// Bits 3:0 and 13:12 are the number of the format.
	command := &nvmeCommand{
		opcode: adminFormat, nsid: id, cdw10: uint32(plain.number&0xf) | uint32(plain.number>>4)<<12 | ses<<9, timeout: remaining(ctx),
	}
	if _, err := e.controller.admin(command); err != nil {
		return fmt.Errorf("format %s (%s): %w", e.namespace.name(), e.method, err)
	}
	return nil
}

// writeZeroes writes zeros to all blocks. A command has at most 65,536: NLB has 16 bits.
func (e *erased) writeZeroes(ctx context.Context) error {
	const most = 1 << 16
	for block := uint64(0); block < e.namespace.blocks; block += most {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := e.access(nvmWriteZeroes, block, min(most, e.namespace.blocks-block), nil); err != nil {
			return fmt.Errorf("write zeros: %w", err)
		}
	}
	// A volatile write cache may still hold the zeros, and the reads that verify would come from it.
	if !e.info.writeCache {
		return nil
	}
	if err := e.controller.io(&nvmeCommand{opcode: nvmFlush, nsid: e.namespace.id}); err != nil {
		return fmt.Errorf("flush %s: %w", e.namespace.name(), err)
	}
	return nil
}

// verify reads the blocks that must no longer have their data, and returns the check.
func (e *erased) verify(ctx context.Context) (sanitize.Check, error) {
	begun := time.Now()
	was := e.namespace
	if err := e.identify(was.id); err != nil {
		return sanitize.Check{}, err
	}
	// A smaller namespace would leave blocks that nothing verifies.
	if e.namespace.bytes() != was.bytes() || e.namespace.blocks != was.blocks {
		return sanitize.Check{}, fmt.Errorf("%s has %d bytes after the erase, and had %d", was.name(), e.namespace.bytes(), was.bytes())
	}
	verdict, reason, err := e.look(ctx)
	if err != nil {
		return sanitize.Check{}, err
	}
	e.time(begun)
	return sanitize.Check{
		Name: e.namespace.name(), Method: e.checkMethod(), Verdict: verdict, Bytes: e.namespace.bytes(),
		Pattern: fmt.Sprintf("random marker in %d blocks", len(e.blocks)), Seconds: e.spent.Seconds(), Reason: reason,
	}, nil
}

// checkMethod names what was done in a check.
func (e *erased) checkMethod() string {
	name := map[Method]string{Crypto: "FormatCryptoErase", UserData: "FormatUserDataErase", WriteZeroes: "WriteZeroes"}[e.method]
	if e.all {
		return name + "VerifyAll"
	}
	return name + "VerifyMarkers"
}

// look reads the blocks that had a marker, and all others if they are to be read.
func (e *erased) look(ctx context.Context) (sanitize.Verdict, string, error) {
	for _, block := range e.blocks {
		found, err := e.marked(block)
		if err != nil {
			return "", "", err
		}
		if found {
			return sanitize.Dirty, fmt.Sprintf("block %d still has the data that was written before the erase", block), nil
		}
	}
	if !e.all {
		return sanitize.Clean, "", nil
	}
	block, err := e.firstNonZero(ctx)
	switch {
	case err == nil:
		return sanitize.Clean, "", nil
	case !errors.Is(err, errNonZero):
		return "", "", err
	case e.method == WriteZeroes:
		return sanitize.Dirty, fmt.Sprintf("block %d is not zero after zeros were written", block), nil
	}
	// The specification leaves open what is read after Format NVM's erase.
	return sanitize.Unknown, fmt.Sprintf("block %d is not zero after the format, which may or may not be a tenant's data: verify by sample, or erase by write-zeroes", block), nil
}

var errNonZero = errors.New("the block is not zero")

// firstNonZero returns the first block that is not zero, with [errNonZero].
func (e *erased) firstNonZero(ctx context.Context) (uint64, error) {
	size := e.namespace.blockSize()
	perRead := max(e.info.chunk()/size, 1)
	data := make([]byte, perRead*size)
	zeros := make([]byte, size)
	for block := uint64(0); block < e.namespace.blocks; block += perRead {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		count := min(perRead, e.namespace.blocks-block)
		if err := e.access(nvmRead, block, count, data[:count*size]); err != nil {
			return 0, fmt.Errorf("verify the zeros: %w", err)
		}
		for i := range count {
			if !bytes.Equal(data[i*size:(i+1)*size], zeros) {
				return block + i, errNonZero
			}
		}
	}
	return 0, nil
}

// chunk returns how many bytes to read by one command: no more than MDTS allows, in units of the smallest page, which has
// 4 KiB or more.
func (c controllerInfo) chunk() uint64 {
	const most, page = 128 << 10, 4 << 10
	if c.maxTransfer == 0 || c.maxTransfer > 5 {
		return most
	}
	return page << c.maxTransfer
}
